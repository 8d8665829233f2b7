//! Gets the standard library's sources, from which core is built for the GPU.
//!
//! In this order: `rustup component add`; Debian's `rustc-web`, `cargo-web` and `rust-web-src`
//! with their libraries, downloaded and unpacked under `target/toolchain` without installing
//! anything. `rust-toolchain.toml` lists the component too, but rustup heeds that only when it
//! installs the toolchain itself, which `RUSTUP_AUTO_INSTALL=0` forbids.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

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
    // A tree that an interrupted run left behind may lack anything.
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let debs = tree.join("debs");
    for folder in ["lists/partial", "cache/archives/partial", "debs"] {
        fs::create_dir_all(tree.join(folder))?;
    }
    repo::run(apt(tree).args(["-q", "update"]))?;
    let uris = repo::stdout_of(apt(tree).args([
        "install",
        "--print-uris",
        "--no-install-recommends",
        "-qq",
        "-y",
        "rustc-web",
        "cargo-web",
        "rust-web-src",
    ]))?;
    let packages = package_names(&uris);
    if packages.is_empty() {
        bail!("apt-get offers no packages to download");
    }
    repo::run(
        apt(tree)
            .args(["-q", "download"])
            .args(packages)
            .current_dir(&debs),
    )?;
    for entry in fs::read_dir(&debs)? {
        repo::run(repo::command("dpkg").arg("-x").arg(entry?.path()).arg(tree))?;
    }
    for folder in ["lists", "cache", "debs"] {
        fs::remove_dir_all(tree.join(folder))?;
    }
    if Toolchain::unpacked(tree).is_none() {
        bail!("the packages hold no complete toolchain");
    }
    Ok(())
}

/// apt-get with its own lists and cache: needs no root and leaves the system's alone.
fn apt(tree: &Path) -> Command {
    let mut apt = repo::command("apt-get");
    apt.arg("-o").arg(format!(
        "Dir::State::lists={}",
        tree.join("lists").display()
    ));
    apt.arg("-o")
        .arg(format!("Dir::Cache={}", tree.join("cache").display()));
    // As root, apt would download as a user who may not write here.
    apt.args(["-o", "APT::Sandbox::User=root"]);
    apt
}

/// The names in `apt-get --print-uris`'s lines: `'URI' NAME_VERSION_ARCH.deb SIZE HASH`.
fn package_names(uris: &str) -> Vec<&str> {
    let file = |line: &'_ str| -> Option<usize> { line.find("' ").map(|quote| quote + 2) };
    uris.lines()
        .filter_map(|line| {
            line.get(file(line)?..)?
                .split_once('_')
                .map(|(name, _)| name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_names_come_from_the_file_names() {
        let uris = "'http://deb.example/l/llvm/libllvm22_22.1.8-1%7e.deb' \
                    libllvm22_1%3a22.1.8-1~deb12u1_amd64.deb 29378692 \n\
                    'http://deb.example/r/rustc_web_1.deb' rustc-web_1.96.0_amd64.deb 44 MD5Sum:6\n\
                    a line of another kind\n";
        assert_eq!(package_names(uris), ["libllvm22", "rustc-web"]);
    }
}
