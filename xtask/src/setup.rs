//! `cargo xtask setup`: makes a fresh machine ready, and is fast when there is nothing to do.
//!
//! `bench`, `test`, `build` and `ci` call it too, in a form that does not repeat an attempt
//! which failed before. Apart from `rustup component add` everything lands under `target/`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::toolchain::{self, Toolchain};
use crate::{ptxas, qemu, repo, rust_src};

/// The command: does what is missing, repeats what failed before, says what there is.
pub fn run() -> Result<()> {
    ptxas::forget_failure();
    qemu::forget_failure();
    let toolchain = ready()?;
    for (tool, component) in [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")] {
        if !toolchain.has(tool) && !rust_src::add_component(component) {
            println!("{component}: not available; `cargo xtask ci` skips that step");
        }
    }
    println!("toolchain: {}", toolchain.sysroot.display());
    match &toolchain.ptxas {
        Some(path) => println!("ptxas: {}", path.display()),
        None => println!("ptxas: none; checks that need it are skipped"),
    }
    match qemu::find_or_fetch()? {
        Some(path) => println!("qemu: {}", path.display()),
        None => println!("qemu: none; tests that need it are skipped"),
    }
    Ok(())
}

/// A toolchain that can build everything, fetched if it must be. Silent when nothing was to do.
///
/// # Errors
/// The standard library's sources cannot be had; the message lists the ways.
pub fn ready() -> Result<Toolchain> {
    let mut toolchain = Toolchain::find()?;
    if toolchain.rust_src().is_none() {
        rust_src::fetch(&toolchain::unpacked_root())?;
        toolchain = Toolchain::find()?;
    }
    fetch_std_crates(&toolchain)?;
    if let Some(path) = ptxas::find_or_fetch()? {
        toolchain.use_ptxas(path);
    }
    Ok(toolchain)
}

/// Downloads the few crates that the standard library itself is built from, once per toolchain
/// and cargo home: the device build then needs no network.
fn fetch_std_crates(toolchain: &Toolchain) -> Result<()> {
    let library = toolchain
        .rust_src()
        .context("rust-src vanished from the toolchain")?;
    let stamp = repo::target().join("setup/std-crates");
    let wanted = format!("{}\n{}\n", library.display(), cargo_home().display());
    if fs::read_to_string(&stamp).is_ok_and(|done| done == wanted) {
        return Ok(());
    }
    let mut fetch = toolchain.cargo();
    fetch.args([
        "fetch",
        "--locked",
        "--target",
        "nvptx64-nvidia-cuda",
        "--manifest-path",
    ]);
    // The library's manifest uses cargo features that stable cargo refuses otherwise.
    fetch
        .arg(library.join("Cargo.toml"))
        .env("RUSTC_BOOTSTRAP", "1");
    if let Err(error) = repo::run(&mut fetch) {
        // Not fatal: an earlier device build may have left all that the next one needs.
        eprintln!("note: the crates of the standard library were not fetched ahead: {error:#}");
        return Ok(());
    }
    write(&stamp, &wanted)
}

fn cargo_home() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(home)
        .unwrap_or_default()
}

/// Writes a file under `target/`, making its folder.
pub fn write(path: &std::path::Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
