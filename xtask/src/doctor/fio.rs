//! What the kernel's own driver gets out of an SSD, by fio: for comparison, and only by reading.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::repo;

/// Random reads of so many bytes, as `bench iops` makes them here.
pub const BLOCK: u64 = 4096;
/// fio reads for so long. Seconds.
const SECONDS: u32 = 10;

/// What came of it.
#[derive(Debug, PartialEq)]
pub enum Comparison {
    /// Reads a second.
    Reads(f64),
    /// There is nothing to compare with, because of this.
    Skipped(String),
}

/// Reads a second that `program`, which is fio, gets from a block device. It reads only.
///
/// # Errors
/// fio fails, or says something else than it should.
pub fn reads(program: &str, device: Option<&Path>) -> Result<Comparison> {
    let skipped = |why: &str| Ok(Comparison::Skipped(why.to_owned()));
    let Some(device) = device else {
        return skipped(
            "no block device was named: `--block-device /dev/nvmeXnY`, of an SSD of the same kind that \
             the kernel's driver has",
        );
    };
    let kind = fs::metadata(device).with_context(|| device.display().to_string())?;
    if !kind.file_type().is_block_device() {
        return skipped(&format!("{} is no block device", device.display()));
    }
    if repo::stdout_of(Command::new(program).arg("--version")).is_err() {
        return skipped("there is no fio; install the package of that name");
    }
    let output = repo::stdout_of(&mut command(program, device))?;
    Ok(Comparison::Reads(parse(&output)?))
}

fn command(program: &str, device: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--name=accept", "--readonly", "--rw=randread", "--direct=1"])
        .args(["--ioengine=libaio", "--iodepth=256", "--numjobs=4"])
        .args(["--group_reporting", "--time_based", "--output-format=json"])
        .arg(format!("--bs={BLOCK}"))
        .arg(format!("--runtime={SECONDS}"))
        .arg(format!("--filename={}", device.display()));
    command
}

/// The reads a second in fio's JSON.
fn parse(output: &str) -> Result<f64> {
    // fio may write warnings in front of it.
    let json = output.find('{').map_or("", |at| &output[at..]);
    let report: serde_json::Value = serde_json::from_str(json).context("fio wrote no JSON")?;
    report["jobs"][0]["read"]["iops"]
        .as_f64()
        .context("fio's JSON has no jobs[0].read.iops")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fios_report_is_read_behind_its_warnings() {
        let report = r#"fio: a warning
{"fio version": "fio-3.33", "jobs": [{"jobname": "accept", "read": {"iops": 1234.5}}]}"#;
        assert_eq!(parse(report).unwrap(), 1234.5);
        for wrong in ["", "no JSON", "{}", r#"{"jobs": []}"#] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_comparison_that_cannot_be_made_says_why() {
        let why = |device: Option<&Path>| match reads("fio", device).unwrap() {
            Comparison::Skipped(why) => why,
            Comparison::Reads(reads) => panic!("{reads}"),
        };
        assert!(why(None).contains("--block-device"));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(why(Some(file.path())).contains("is no block device"));
        assert!(reads("fio", Some(Path::new("/no/such/device"))).is_err());
    }

    #[test]
    fn fio_is_told_to_read_only() {
        let command = command("fio", Path::new("/dev/nvme1n1"));
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        for word in ["--readonly", "--rw=randread", "--filename=/dev/nvme1n1"] {
            assert!(words.iter().any(|found| found == word), "{word}");
        }
    }
}
