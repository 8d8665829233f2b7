//! `cargo xtask bench`: hands everything to warpstore-bench.
//!
//! The child replaces this process and runs in the caller's folder: its exit status, its
//! signals and its relative file names are then exactly what the caller sees and means.

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
    cargo.args([
        "run",
        "--release",
        "-p",
        "warpstore-bench",
        "--manifest-path",
    ]);
    cargo
        .arg(repo::root().join("Cargo.toml"))
        .arg("--")
        .args(args);
    Err(cargo.exec()).context("cannot start cargo")
}
