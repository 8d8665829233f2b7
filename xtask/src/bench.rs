//! `cargo xtask bench` and `size`: hand everything to warpstore-bench.
//!
//! The child replaces this process and runs in the caller's folder: its exit status, its
//! signals and its relative file names are then exactly what the caller sees and means.
//! The experiment `registers` runs nothing but looks at compiled kernels, so it is a program of
//! the golden PTX tests, `ptx-report`, and needs no host crate.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{repo, setup};

/// The benchmark program, as arguments of cargo.
pub const PROGRAM: &[&str] = &["-p", "warpstore-bench"];

/// Runs the benchmark program; returns only if it could not be started.
///
/// # Errors
/// The toolchain is incomplete or cargo cannot be started.
pub fn run(args: &[OsString]) -> Result<()> {
    let (program, args) = program(args);
    Err(command(program, args)?.exec()).context("cannot start cargo")
}

/// Runs the program that sizes a testbed: the constants of SSDs are known there. Returns only if
/// it could not be started.
///
/// # Errors
/// As for `run`.
pub fn size(args: &[OsString]) -> Result<()> {
    let program = &["-p", "warpstore-bench", "--bin", "warpstore-size"];
    Err(command(program, args)?.exec()).context("cannot start cargo")
}

/// Cargo, about to build and become a program, in the caller's folder.
///
/// # Errors
/// The toolchain is incomplete, or the current folder is gone.
pub fn command(program: &[&str], args: &[OsString]) -> Result<Command> {
    let toolchain = setup::ready()?;
    let mut cargo = toolchain.cargo();
    cargo.current_dir(env::current_dir().context("the current folder is gone")?);
    cargo.args(["run", "--release"]).args(program);
    cargo
        .arg("--manifest-path")
        .arg(repo::root().join("Cargo.toml"));
    cargo.arg("--").args(args);
    Ok(cargo)
}

/// Which program runs the experiment, as arguments of cargo, and with which arguments of its own.
fn program(args: &[OsString]) -> (&'static [&'static str], &[OsString]) {
    match args.split_first() {
        Some((experiment, rest)) if experiment == "registers" => {
            (&["-p", "warpstore-ptx-tests", "--bin", "ptx-report"], rest)
        }
        _ => (PROGRAM, args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_experiment_registers_is_another_program() {
        let of = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let (program, rest) = program(&args);
            (program.contains(&"ptx-report"), rest.len())
        };
        assert_eq!(of("registers --json f"), (true, 2));
        assert_eq!(of("bfs --json registers"), (false, 3));
        assert_eq!(of(""), (false, 0));
    }
}
