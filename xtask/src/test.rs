//! `cargo xtask test`: every test that needs no GPU and no SSD, and how many there were.
//!
//! Unit tests, loom, proptest, host-thread warps and golden PTX are all ordinary tests of the
//! workspace, so this is `cargo test` with the numbers added up. Tiers of their own are what is
//! built in another way: mutants, each of which rebuilds a crate, and projects outside the
//! workspace.

use std::fmt;

use anyhow::{Result, bail};
use clap::Subcommand;

use crate::{examples, fuzz, guest, mutants, qemu, repo, sanitize, setup, tsan};

/// The package whose tests need QEMU.
const QEMU_TESTS: &str = "warpstore-qemu-tests";

/// Which tests to run.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    tier: Option<Tier>,
    /// Passed to `cargo test`: a package (`-p nvme-queue`), a filter, `-- --nocapture`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

#[derive(Subcommand)]
enum Tier {
    /// Plant each known bug of tests/mutants.toml and check that a test turns red
    Mutants {
        /// Only the mutants whose name contains one of these words
        names: Vec<String>,
    },
    /// Boot Linux guests under QEMU and run the driver in them over VFIO
    Qemu {
        /// Passed to the tests: a filter, `--nocapture`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Test and run the projects under examples/
    Examples,
    /// Feed decoders, the emulated controller and the graph readers with anything
    Fuzz(fuzz::Args),
    /// Run the tests of whole warps under ThreadSanitizer
    Tsan,
    /// Run kernels on a GPU under compute-sanitizer
    Sanitize,
}

/// Runs the tests and prints `N passed, N failed` as the last line.
///
/// # Errors
/// A test failed, cargo failed, or no test ran.
pub fn run(args: &Args) -> Result<()> {
    match &args.tier {
        Some(Tier::Mutants { names }) => return mutants::run(names),
        Some(Tier::Examples) => return examples::run(),
        Some(Tier::Qemu { args }) => return guest::run(args),
        Some(Tier::Fuzz(args)) => return fuzz::run(args),
        Some(Tier::Tsan) => return tsan::run(),
        Some(Tier::Sanitize) => return sanitize::run(),
        None => {}
    }
    let mut toolchain = setup::ready()?;
    if wants_qemu(&args.args)
        && let Some(qemu) = qemu::find_or_fetch()?
    {
        toolchain.use_qemu(&qemu);
    }
    let mut cargo = toolchain.cargo();
    cargo.args(["test", "--no-fail-fast"]);
    if !names_package(&args.args) {
        cargo.arg("--workspace");
    }
    let mut totals = Totals::default();
    let green = repo::stream(cargo.args(&args.args), |line| totals.add(line))?;
    println!("{totals}");
    if totals.failed > 0 {
        bail!(
            "{} of {} tests failed",
            totals.failed,
            totals.passed + totals.failed
        );
    }
    if !green {
        bail!("cargo test failed without a failed test: see its messages above");
    }
    if totals.passed == 0 {
        bail!("no test ran; does the filter match anything?");
    }
    Ok(())
}

/// Whether the arguments for cargo (before a `--`) choose a package.
fn names_package(args: &[String]) -> bool {
    let cargo_args = args.iter().take_while(|arg| *arg != "--");
    cargo_args
        .into_iter()
        .any(|arg| arg.starts_with("-p") || arg == "--package" || arg.starts_with("--package="))
}

/// Whether these arguments run the tests against QEMU's controller.
fn wants_qemu(args: &[String]) -> bool {
    !names_package(args) || args.iter().any(|arg| arg.contains(QEMU_TESTS))
}

/// What the test harnesses reported, added up.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

impl Totals {
    /// Adds a harness's summary, `test result: ok. 3 passed; 0 failed; …`; other lines count
    /// for nothing.
    pub fn add(&mut self, line: &str) {
        let Some(summary) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        let (_, counts) = summary.split_once(". ").unwrap_or_default();
        for count in counts.split(';') {
            match count.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_add_up_and_nothing_else_counts() {
        let output = "\
running 3 tests
test a ... ok
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.07s
test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
test results: ok. 9 passed; 9 failed;
";
        let mut totals = Totals::default();
        output.lines().for_each(|line| totals.add(line));
        assert_eq!(
            totals,
            Totals {
                passed: 13,
                failed: 2
            }
        );
        assert_eq!(totals.to_string(), "13 passed, 2 failed");
    }

    #[test]
    fn a_package_is_recognised_before_the_double_dash_only() {
        let names =
            |line: &str| names_package(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(names("-p nvme-queue wrap"));
        assert!(names("--package=nvme-queue"));
        assert!(!names("wrap -- -p"));
    }

    #[test]
    fn qemu_is_for_all_tests_and_for_its_own() {
        let wants =
            |line: &str| wants_qemu(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(wants_qemu(&[]));
        assert!(wants("-p warpstore-qemu-tests pairs"));
        assert!(!wants("-p nvme-queue"));
    }
}
