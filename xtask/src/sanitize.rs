//! `cargo xtask test sanitize`: kernels on a GPU under NVIDIA's compute-sanitizer.
//!
//! The SSDs are a process of their own, so that they serve while kernels run: the tool lets no kernel
//! start beside a resident one. That a clean run means something is shown by a build with a store that goes
//! far beyond its memory, which must be reported.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench;
use crate::mutants::{Mutant, Tree};
use crate::repo;
use crate::setup;
use crate::toolchain::Toolchain;

const TOOL: &str = "compute-sanitizer";
/// Where CUDA puts it.
const CUDA: &str = "/usr/local/cuda/bin";
/// Exit status of the tool when it has reported something.
const REPORTED: i32 = 9;
const CHECKS: [&str; 3] = ["memcheck", "initcheck", "synccheck"];
/// Small, since every access is checked: reads of blocks; reads, writes and additions with held lines in a
/// cache that is too small; a search through the cache.
const RUNS: [&str; 4] = [
    "iops --queues 2 --in-flight 64 --ops 640 --span 65536",
    "crowd --queues 2 --threads 256 --cache-lines 7 --line 512",
    "rw --queues 2 --threads 256 --span 65536 --ops 4096 --line 512 --ssds 2",
    "bfs --queues 2 --cache-lines 64",
];
/// The store of device/src/memory.rs that the planted fault sends too far.
const STORE: &str = ".wrapping_add(index as usize)\n                .write_volatile";
const SSD: &str = "--runner cuda --ssd process:ideal --timeout 60";

/// Runs everything under every check, and shows that a fault is seen.
///
/// # Errors
/// The tool is not there, reported something, or missed the planted fault.
pub fn run() -> Result<()> {
    let tool = find().with_context(|| {
        format!("{TOOL} is neither in the path nor in {CUDA}; it comes with the CUDA toolkit")
    })?;
    let toolchain = setup::ready()?;
    let program = build(&toolchain, &repo::root(), &repo::target())?;
    for check in CHECKS {
        for run in RUNS {
            println!("{check}: bench {run}");
            let status = checked(&tool, check, &program, run).status()?;
            ensure!(
                status.success(),
                "{check}: `bench {run} {SSD}` ended with {status}"
            );
        }
    }
    planted(&tool, &toolchain)?;
    println!(
        "{} runs clean, and the planted fault was reported",
        CHECKS.len() * RUNS.len()
    );
    Ok(())
}

/// A store of `iops` that goes 2^40 elements too far must be reported.
fn planted(tool: &Path, toolchain: &Toolchain) -> Result<()> {
    println!("memcheck: a planted fault");
    let tree = Tree::copied()?;
    let fault = Mutant {
        name: "a store beyond its memory".to_owned(),
        rule: String::new(),
        file: "device/src/memory.rs".into(),
        find: STORE.to_owned(),
        replace: ".wrapping_add(index as usize + (1 << 40))\n                .write_volatile"
            .to_owned(),
        test: Vec::new(),
    };
    let output = tree.with(&fault, || {
        let program = build(toolchain, tree.folder(), tree.builds())?;
        Ok(checked(tool, "memcheck", &program, RUNS[0]).output()?)
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(REPORTED) && said.contains("Invalid __global__ write"),
        "memcheck did not report the planted store: {}, {said}",
        output.status
    );
    Ok(())
}

/// Builds the benchmark program of `folder` and gives its path.
fn build(toolchain: &Toolchain, folder: &Path, builds: &Path) -> Result<PathBuf> {
    let mut cargo = toolchain.cargo();
    cargo.current_dir(folder).env("CARGO_TARGET_DIR", builds);
    repo::run(cargo.args(["build", "--release"]).args(bench::PROGRAM))?;
    Ok(builds.join("release/warpstore-bench"))
}

fn checked(tool: &Path, check: &str, program: &Path, run: &str) -> Command {
    let mut command = repo::command(tool);
    command.args(["--tool", check, "--error-exitcode", &REPORTED.to_string()]);
    command
        .arg(program)
        .args(run.split(' '))
        .args(SSD.split(' '));
    command
}

/// The tool, in the path or where CUDA puts it.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from(CUDA)])
        .map(|folder| folder.join(TOOL))
        .find(|tool| tool.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planted_fault_fits_its_file() {
        let text = std::fs::read_to_string(repo::root().join("device/src/memory.rs")).unwrap();
        assert_eq!(text.matches(STORE).count(), 1);
    }
}
