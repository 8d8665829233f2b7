//! `cargo xtask flash | ls | verify | extract`: hands everything to warpstore-flash.
//!
//! As with `bench`, the child replaces this process and runs in the caller's folder.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::{repo, setup};

/// Runs the program; returns only if it could not be started.
///
/// # Errors
/// The toolchain is incomplete or cargo cannot be started.
pub fn run(verb: &str, args: &[OsString]) -> Result<()> {
    let mut cargo = setup::ready()?.cargo();
    cargo.current_dir(env::current_dir().context("the current folder is gone")?);
    cargo.args(["run", "--release", "-p", "warpstore-flash"]);
    cargo
        .arg("--manifest-path")
        .arg(repo::root().join("Cargo.toml"));
    cargo.args(["--", verb]).args(args);
    Err(cargo.exec()).context("cannot start cargo")
}
