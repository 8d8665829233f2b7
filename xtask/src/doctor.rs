//! `cargo xtask doctor`: what this machine offers, and what to do about the rest.
//!
//! Each finding is one line: `ok`, `note` (works without, or to be known) or `missing` (needed
//! to run at all). It only looks; nothing is changed, fetched or opened for writing. Only
//! `--accept`, the acceptance test, writes: to the SSDs that it is given.

mod accept;
mod fio;
mod machine;
mod nvme;
mod peer;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

pub use machine::has_gpu;

use crate::toolchain::Toolchain;
use crate::{ptxas, qemu, repo};

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    Note,
    Missing,
}

/// One line of the report.
#[derive(Debug)]
struct Finding {
    level: Level,
    subject: &'static str,
    /// What was found and, where something is to be done, what.
    text: String,
}

impl Finding {
    fn new(level: Level, subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            level,
            subject,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Missing => "missing",
        };
        write!(f, "{level:8} {:12} {}", self.subject, self.text)
    }
}

/// Arguments of `doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// Run the acceptance test, which writes over the SSDs it is given
    #[arg(long)]
    accept: bool,
    #[command(flatten)]
    acceptance: accept::Args,
}

/// Prints the report, or runs the acceptance test.
///
/// # Errors
/// Something is missing without which not even the emulated SSD on host threads runs; or the
/// acceptance test failed.
pub fn run(args: &Args) -> Result<()> {
    if args.accept {
        return accept::run(&args.acceptance);
    }
    let system = Path::new("/");
    let mut findings = toolchain();
    findings.push(machine::driver(system));
    findings.extend(machine::gpus(system));
    findings.push(machine::memlock(system));
    findings.push(machine::huge_pages(system));
    findings.push(machine::iommu(system));
    findings.extend(nvme::controllers(system));
    findings.extend(peer::ways(system));
    for finding in &findings {
        println!("{finding}");
    }
    let missing = findings
        .iter()
        .filter(|finding| finding.level == Level::Missing)
        .count();
    if missing > 0 {
        bail!("{missing} needed things are missing; `cargo xtask setup` gets what it can");
    }
    Ok(())
}

/// The compiler against the pinned one, the library's sources, ptxas, QEMU.
fn toolchain() -> Vec<Finding> {
    let pinned = fs::read_to_string(repo::root().join("rust-toolchain.toml")).unwrap_or_default();
    let version = repo::stdout_of(repo::command("rustc").arg("--version")).unwrap_or_default();
    let rust_src = match Toolchain::find().map(|toolchain| toolchain.rust_src()) {
        Ok(Some(library)) => Finding::new(Level::Ok, "rust-src", library.display().to_string()),
        _ => Finding::new(Level::Missing, "rust-src", "none; run `cargo xtask setup`"),
    };
    let ptxas = match ptxas::find() {
        Some(path) => Finding::new(Level::Ok, "ptxas", path.display().to_string()),
        None => Finding::new(
            Level::Note,
            "ptxas",
            "none of a usable release; its checks are skipped. `cargo xtask setup` fetches one",
        ),
    };
    let qemu = match qemu::find() {
        Some(path) => Finding::new(Level::Ok, "QEMU", path.display().to_string()),
        None => Finding::new(
            Level::Note,
            "QEMU",
            "none; tests against its controller are skipped. `cargo xtask setup` fetches it",
        ),
    };
    vec![compiler(&pinned, &version), rust_src, ptxas, qemu]
}

/// Compares `rustc --version` with the channel in the text of rust-toolchain.toml.
fn compiler(pinned: &str, version: &str) -> Finding {
    let channel = toml::from_str::<toml::Table>(pinned).ok();
    let channel = channel
        .as_ref()
        .and_then(|table| table.get("toolchain")?.get("channel")?.as_str())
        .unwrap_or("unknown");
    let version = version.trim();
    match version.split(' ').nth(1) {
        None => Finding::new(
            Level::Missing,
            "compiler",
            "no rustc; see https://rustup.rs",
        ),
        Some(number) if number == channel => Finding::new(Level::Ok, "compiler", version),
        Some(_) => Finding::new(
            Level::Note,
            "compiler",
            format!("{version}, but {channel} is what the project is tested with"),
        ),
    }
}

/// Text of a file below the system's root, empty if it cannot be read.
fn read(system: &Path, path: &str) -> String {
    fs::read_to_string(system.join(path)).unwrap_or_default()
}

/// Entries of a folder below the system's root, sorted; none if it is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).into_iter().flatten();
    let mut entries: Vec<_> = listing
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .collect();
    entries.sort();
    entries
}

/// The name of the file that a path ends in.
fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
pub mod fake {
    //! A made-up system.

    use super::*;

    /// Files by path and text.
    pub fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let system = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = system.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        system
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_compared_with_the_pinned_one() {
        let pinned = "[toolchain]\nchannel = \"1.95.0\"\n";
        assert_eq!(
            compiler(pinned, "rustc 1.95.0 (5980 2026)\n").level,
            Level::Ok
        );
        assert_eq!(
            compiler(pinned, "rustc 1.96.0 (ac68 2026)").level,
            Level::Note
        );
        assert_eq!(compiler(pinned, "").level, Level::Missing);
    }
}
