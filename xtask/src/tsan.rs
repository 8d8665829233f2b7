//! `cargo xtask test tsan`: the tests of whole warps on host threads, under ThreadSanitizer.
//!
//! Everything is built anew for it, the standard library too, which would otherwise be a blind
//! spot. `--cfg warpstore_tsan` makes `device/simt` tell the tool of coroutines and fences.

use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::test::Totals;
use crate::toolchain::{HOST, Toolchain};
use crate::{repo, setup};

/// What `warpstore_tsan` and the sanitizer need from rustc.
const FLAGS: &str = "-Zsanitizer=thread --cfg warpstore_tsan";
/// Unoptimised checks would make waits longer than tests allow.
const PROFILE: [&str; 2] = ["--config", "profile.dev.opt-level=2"];
/// The tests in which threads meet: warps, queues, cache, emulated controller, and the whole
/// stack. Not loom's, which has threads of its own kind, and not the power cuts, whose moments are
/// over before a session so slow has flushed anything.
const TESTS: [&[&str]; 5] = [
    &["-p", "warpstore-simt", "--tests"],
    &["-p", "nvme-queue", "--test", "threads"],
    &["-p", "line-cache", "--test", "native"],
    &["-p", "nvme-model", "--test", "model", "serving"],
    &[
        "-p",
        "warpstore",
        "--test",
        "threads",
        "--test",
        "writes",
        "--test",
        "crowd",
        "--test",
        "faults",
    ],
];
/// A race on purpose, which the tool must report.
const SEEDED: [&str; 6] = ["-p", "warpstore-simt", "--test", "races", "--", "--ignored"];
const REPORT: &str = "WARNING: ThreadSanitizer: data race";

/// Runs the tests, and shows that a race is seen.
///
/// # Errors
/// A test failed, the tool reported something, or it missed the seeded race.
pub fn run() -> Result<()> {
    let toolchain = setup::ready()?;
    if !toolchain.has_runtime("tsan") {
        println!("SKIPPED: this toolchain does not bring ThreadSanitizer");
        return Ok(());
    }
    let mut totals = Totals::default();
    for test in TESTS {
        println!("tsan: cargo test {}", test.join(" "));
        let mut cargo = cargo_test(&toolchain);
        let green = repo::stream(cargo.args(test), |line| totals.add(line))?;
        ensure!(green, "tsan: `cargo test {}` is red", test.join(" "));
    }
    seeded_race(&toolchain)?;
    println!("{totals}, and the seeded race was seen");
    Ok(())
}

/// Runs the test that races on purpose: it must be reported.
fn seeded_race(toolchain: &Toolchain) -> Result<()> {
    println!("tsan: a seeded race");
    let output = cargo_test(toolchain).args(SEEDED).output()?;
    let reports = String::from_utf8_lossy(&output.stderr).contains(REPORT);
    if output.status.success() || !reports {
        bail!("ThreadSanitizer did not report the race of device/simt/tests/races.rs");
    }
    Ok(())
}

fn cargo_test(toolchain: &Toolchain) -> Command {
    let mut cargo = toolchain.cargo();
    cargo.args(["test", "-Zbuild-std", "--target", HOST]);
    cargo.args(PROFILE);
    cargo.arg("--target-dir").arg(repo::target().join("tsan"));
    // A report ends the test at once: what follows may only be its consequence.
    cargo.env("TSAN_OPTIONS", "halt_on_error=1 second_deadlock_stack=1");
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
    cargo
}
