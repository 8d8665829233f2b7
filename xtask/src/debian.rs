//! Debian's packages, downloaded and unpacked under `target/` without installing anything.
//!
//! apt-get gets lists and a cache of its own, so this needs no root and leaves the system's
//! alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::repo;

/// Downloads `packages` with what they need beyond the installed ones, and unpacks all into
/// `tree`, which is emptied first.
///
/// # Errors
/// There is no apt-get, no network, or no such package.
pub fn unpack(tree: &Path, packages: &[&str]) -> Result<()> {
    // A tree that an interrupted run left behind may lack anything.
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let debs = tree.join("debs");
    for folder in ["lists/partial", "cache/archives/partial", "debs"] {
        fs::create_dir_all(tree.join(folder))?;
    }
    repo::stdout_of(apt(tree).args(["-q", "update"]))?;
    let mut query = apt(tree);
    query.args(["install", "--print-uris", "--no-install-recommends"]);
    let uris = repo::stdout_of(query.args(["-qq", "-y"]).args(packages))?;
    let names = package_names(&uris);
    if names.is_empty() {
        bail!("apt-get offers no packages to download");
    }
    let mut download = apt(tree);
    download.args(["-q", "download"]).args(names);
    repo::stdout_of(download.current_dir(&debs))?;
    for entry in fs::read_dir(&debs)? {
        repo::run(repo::command("dpkg").arg("-x").arg(entry?.path()).arg(tree))?;
    }
    for folder in ["lists", "cache", "debs"] {
        fs::remove_dir_all(tree.join(folder))?;
    }
    Ok(())
}

/// apt-get with its own lists and cache.
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
