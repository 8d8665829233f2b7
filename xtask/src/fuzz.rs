//! `cargo xtask test fuzz`: the targets of tests/fuzz, each for a while.
//!
//! cargo-fuzz builds and runs them, in a version of its own under `target/`. It expects a nightly
//! compiler; `RUSTC_BOOTSTRAP=1` lets the pinned one take the flags that it passes. New inputs
//! stay in `target/fuzz/corpus`, so that each run goes on from the last one; an input that fails
//! a target stays in `target/fuzz/artifacts`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::toolchain::{HOST, Toolchain};
use crate::{repo, rust_src, setup};

const FOLDER: &str = "tests/fuzz";
const CARGO_FUZZ: &str = "0.13.2";
/// The longest that one input may take, in seconds: beyond is a hang.
const LONGEST_INPUT: &str = "-timeout=20";

/// What to fuzz, and for how long.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds for each target
    #[arg(default_value_t = 20)]
    seconds: u32,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// Print how many lines of each file the inputs found so far reach, and fuzz nothing
    #[arg(long)]
    coverage: bool,
}

/// Fuzzes.
///
/// # Errors
/// A target failed, or could not be built.
pub fn run(args: &Args) -> Result<()> {
    if !has_cpp() {
        println!("SKIPPED: no C++ compiler (c++) on this machine, which libFuzzer is written for");
        return Ok(());
    }
    let toolchain = setup::ready()?;
    let mut targets = targets(&repo::root().join(FOLDER))?;
    if let Some(only) = &args.target {
        targets.retain(|target| target == only);
        ensure!(!targets.is_empty(), "{FOLDER} has no target {only}");
    }
    let fuzzer = Fuzzer::ready(&toolchain)?;
    for target in &targets {
        if args.coverage {
            fuzzer.cover(target)?;
        } else {
            println!("fuzz {target}: {} s", args.seconds);
            fuzzer.fuzz(target, args.seconds)?;
        }
    }
    if !args.coverage {
        println!("{} targets fuzzed, 0 failed", targets.len());
    }
    Ok(())
}

/// Whether there is what libFuzzer is written for.
pub fn has_cpp() -> bool {
    repo::stdout_of(repo::command("c++").arg("--version")).is_ok()
}

/// The names of the targets, which cargo knows as programs.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let programs = manifest.get("bin").and_then(|bin| bin.as_array());
    let names = programs.into_iter().flatten();
    let names = names.filter_map(|bin| bin.get("name")?.as_str().map(str::to_owned));
    Ok(names.collect())
}

/// cargo-fuzz, and where it works.
struct Fuzzer<'a> {
    toolchain: &'a Toolchain,
    home: PathBuf,
    program: PathBuf,
    /// AddressSanitizer, if the toolchain has its run time.
    sanitizer: &'static str,
}

impl<'a> Fuzzer<'a> {
    fn ready(toolchain: &'a Toolchain) -> Result<Self> {
        let home = repo::target().join("fuzz");
        let tools = home.join("cargo-fuzz").join(CARGO_FUZZ);
        let program = tools.join("bin/cargo-fuzz");
        if !program.is_file() {
            println!("cargo-fuzz {CARGO_FUZZ}: installing it under target/");
            let mut cargo = toolchain.cargo();
            cargo.args(["install", "--quiet", "--locked"]);
            cargo.arg(format!("cargo-fuzz@{CARGO_FUZZ}"));
            cargo.arg("--root").arg(&tools);
            repo::run(cargo.arg("--target-dir").arg(home.join("tools")))?;
        }
        let sanitizer = if toolchain.has_runtime("asan") {
            "address"
        } else {
            println!("SKIPPED: AddressSanitizer, which this toolchain does not bring");
            "none"
        };
        Ok(Self {
            toolchain,
            home,
            program,
            sanitizer,
        })
    }

    fn cargo_fuzz(&self, verb: &str, target: &str) -> Command {
        let mut command = self.toolchain.command(&self.program);
        command.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", verb]);
        command.args(["--fuzz-dir", FOLDER, "--sanitizer", self.sanitizer]);
        command.arg("--target-dir").arg(self.home.join(verb));
        command.arg(target);
        command
    }

    /// Where a target's inputs are: those found here come first, as libFuzzer adds to them.
    fn corpora(&self, target: &str) -> Result<[PathBuf; 2]> {
        let found = self.home.join("corpus").join(target);
        fs::create_dir_all(&found)?;
        let seeds = repo::root().join(FOLDER).join("seeds").join(target);
        ensure!(seeds.is_dir(), "{target} has no seeds: {}", seeds.display());
        Ok([found, seeds])
    }

    fn fuzz(&self, target: &str, seconds: u32) -> Result<()> {
        let artifacts = self.home.join("artifacts").join(target);
        fs::create_dir_all(&artifacts)?;
        let mut prefix = OsString::from("-artifact_prefix=");
        prefix.push(artifacts.join(""));
        let mut command = self.cargo_fuzz("run", target);
        command.args(self.corpora(target)?).arg("--").arg(prefix);
        command.args([LONGEST_INPUT, "-print_final_stats=1"]);
        command.arg(format!("-max_total_time={seconds}"));
        if repo::run(&mut command).is_err() {
            bail!(
                "{target} failed; the input is in {}, and `{} fuzz run --fuzz-dir {FOLDER} {target} \
                 FILE` runs it again",
                artifacts.display(),
                self.program.display()
            );
        }
        Ok(())
    }
}

impl Fuzzer<'_> {
    /// Runs a target's inputs once, instrumented, and prints a table by file of the crates that
    /// are fuzzed.
    fn cover(&self, target: &str) -> Result<()> {
        let tool = self.toolchain.rustlib().join("bin/llvm-cov");
        if !tool.is_file() && !rust_src::add_component("llvm-tools") {
            println!("SKIPPED: no llvm-tools, and rustup cannot add them");
            return Ok(());
        }
        println!("coverage {target}: building, then running the inputs found so far");
        let mut command = self.cargo_fuzz("coverage", target);
        // Its output is a line for each input.
        repo::stdout_of(command.args(self.corpora(target)?))?;
        let program = self.home.join("coverage").join(HOST);
        let profile = format!("{FOLDER}/coverage/{target}/coverage.profdata");
        let mut report = repo::command(tool);
        report
            .arg("report")
            .arg(program.join("release").join(target));
        report.arg(format!("--instr-profile={profile}"));
        report.args(["--show-region-summary=false", "--show-branch-summary=false"]);
        report.arg("--ignore-filename-regex=/(rustc|registry|fuzz|library|simt)/");
        repo::run(&mut report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds() {
        let folder = repo::root().join(FOLDER);
        let targets = targets(&folder).unwrap();
        assert!(targets.len() >= 3, "{targets:?}");
        for target in targets {
            let mut seeds = fs::read_dir(folder.join("seeds").join(&target)).unwrap();
            assert!(seeds.next().is_some(), "{target}");
        }
    }
}
