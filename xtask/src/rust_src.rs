//! Gets the standard library's sources, from which core is built for the GPU.
//!
//! In this order: `rustup component add`; Debian's `rustc-web`, `cargo-web` and `rust-web-src`
//! with their libraries, downloaded and unpacked under `target/toolchain` without installing
//! anything. `rust-toolchain.toml` lists the component too, but rustup heeds that only when it
//! installs the toolchain itself, which `RUSTUP_AUTO_INSTALL=0` forbids.

use std::path::Path;

use anyhow::{Result, bail};

use crate::debian::Debian;
use crate::repo;
use crate::toolchain::Toolchain;

/// Makes the sources available, to the running toolchain or in one unpacked at `tree`.
///
/// # Errors
/// None of the ways worked.
pub fn fetch(tree: &Path) -> Result<()> {
    if add_component("rust-src") {
        return Ok(());
    }
    println!("rust-src: rustup cannot add it; trying Debian's packages, unpacked under target/");
    let Err(error) = unpack_debian(tree) else {
        return Ok(());
    };
    bail!(
        "the Rust standard library's sources are missing, and the device code cannot be built \
         without them.\n  rustup could not add them, and Debian's packages could not be \
         unpacked: {error:#}.\n  Run `rustup component add rust-src`, or install your \
         distribution's rust-src package"
    )
}

/// Asks rustup for a component of the toolchain in use; false where that is not possible.
pub fn add_component(component: &str) -> bool {
    let added = repo::stdout_of(repo::command("rustup").args(["component", "add", component]));
    if added.is_ok() {
        println!("{component}: added by rustup");
    }
    added.is_ok()
}

/// Downloads Debian's toolchain with what it needs beyond the installed packages, unpacks it.
fn unpack_debian(tree: &Path) -> Result<()> {
    let debian = Debian::update(tree)?;
    let packages = debian.with_missing(&["rustc-web", "cargo-web", "rust-web-src"])?;
    debian.unpack(&packages)?;
    if Toolchain::unpacked(tree).is_none() {
        bail!("the packages hold no complete toolchain");
    }
    Ok(())
}
