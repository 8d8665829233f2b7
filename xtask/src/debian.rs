//! Debian's packages, downloaded and unpacked under `target/` without installing anything.
//!
//! apt-get gets lists and a cache of its own, so this needs no root and leaves the system's
//! alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::repo;

/// Fresh lists of packages, and the folder that they are unpacked into.
pub struct Debian {
    tree: PathBuf,
}

impl Debian {
    /// Fetches the lists; empties `tree`, since what an interrupted run left there may lack
    /// anything.
    ///
    /// # Errors
    /// There is no apt-get, or no network.
    pub fn update(tree: &Path) -> Result<Self> {
        if tree.exists() {
            fs::remove_dir_all(tree)?;
        }
        for folder in ["lists/partial", "cache/archives/partial", "debs"] {
            fs::create_dir_all(tree.join(folder))?;
        }
        let debian = Self { tree: tree.into() };
        repo::stdout_of(debian.apt("apt-get").args(["-q", "update"]))?;
        Ok(debian)
    }

    /// The packages, and those that they need beyond the installed ones.
    ///
    /// # Errors
    /// There is no such package.
    pub fn with_missing(&self, packages: &[&str]) -> Result<Vec<String>> {
        let mut query = self.apt("apt-get");
        query.args(["install", "--print-uris", "--no-install-recommends"]);
        let uris = repo::stdout_of(query.args(["-qq", "-y"]).args(packages))?;
        let mut names = package_names(&uris);
        // What is installed already is not offered, and is wanted in the tree all the same.
        names.extend(packages);
        names.sort_unstable();
        names.dedup();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// The package that `package` stands for: the one it depends on whose name begins so.
    ///
    /// # Errors
    /// There is none.
    pub fn behind(&self, package: &str, start: &str) -> Result<String> {
        let listing = repo::stdout_of(self.apt("apt-cache").args(["depends", package]))?;
        let names = listing
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        let found = names.into_iter().find(|name| name.starts_with(start));
        Ok(found
            .with_context(|| format!("{package} depends on no {start}…"))?
            .to_owned())
    }

    /// Downloads these packages and unpacks them.
    ///
    /// # Errors
    /// One cannot be had.
    pub fn unpack(self, names: &[String]) -> Result<()> {
        let debs = self.tree.join("debs");
        let mut download = self.apt("apt-get");
        repo::stdout_of(
            download
                .args(["-q", "download"])
                .args(names)
                .current_dir(&debs),
        )?;
        for entry in fs::read_dir(&debs)? {
            repo::run(
                repo::command("dpkg")
                    .arg("-x")
                    .arg(entry?.path())
                    .arg(&self.tree),
            )?;
        }
        for folder in ["lists", "cache", "debs"] {
            fs::remove_dir_all(self.tree.join(folder))?;
        }
        Ok(())
    }

    /// A program of apt's, with its own lists and cache.
    fn apt(&self, program: &str) -> Command {
        let mut apt = repo::command(program);
        for (option, folder) in [("Dir::State::lists", "lists"), ("Dir::Cache", "cache")] {
            let folder = self.tree.join(folder);
            apt.arg("-o").arg(format!("{option}={}", folder.display()));
        }
        // As root, apt would download as a user who may not write here.
        apt.args(["-o", "APT::Sandbox::User=root"]);
        apt
    }
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
