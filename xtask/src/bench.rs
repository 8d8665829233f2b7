//! `cargo xtask bench`: hands everything to warpstore-bench.
//!
//! The child replaces this process and runs in the caller's folder: its exit status, its
//! signals and its relative file names are then exactly what the caller sees and means.
//! The experiment `registers` runs nothing but looks at compiled kernels, so it is a program of
//! the golden PTX tests, `ptx-report`, and needs no host crate.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::{repo, setup};

/// Runs the benchmark program; returns only if it could not be started.
///
/// # Errors
/// The toolchain is incomplete or cargo cannot be started.
pub fn run(args: &[OsString]) -> Result<()> {
    let toolchain = setup::ready()?;
    let mut cargo = toolchain.cargo();
    cargo.current_dir(env::current_dir().context("the current folder is gone")?);
    let (program, args) = program(args);
    cargo.args(["run", "--release"]).args(program);
    cargo
        .arg("--manifest-path")
        .arg(repo::root().join("Cargo.toml"));
    cargo.arg("--").args(args);
    Err(cargo.exec()).context("cannot start cargo")
}

/// Which program runs the experiment, as arguments of cargo, and with which arguments of its own.
fn program(args: &[OsString]) -> (&'static [&'static str], &[OsString]) {
    match args.split_first() {
        Some((experiment, rest)) if experiment == "registers" => {
            (&["-p", "warpstore-ptx-tests", "--bin", "ptx-report"], rest)
        }
        _ => (&["-p", "warpstore-bench"], args),
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
