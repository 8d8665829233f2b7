//! The Rust toolchain and the assembler that the tasks hand to every command they start.
//!
//! Usually that is the toolchain which runs xtask. Where it has no rust-src and none can be
//! added, `setup` unpacks Debian's toolchain under `target/toolchain`; from then on that one
//! builds everything, host and device, so that nothing downstream has to know.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::repo;

/// The machine that host code is built for and runs on.
pub const HOST: &str = "x86_64-unknown-linux-gnu";

/// Which cargo to call, and the environment that makes it work.
pub struct Toolchain {
    cargo: PathBuf,
    /// The compiler's own tree: `lib/rustlib` lies below.
    pub sysroot: PathBuf,
    /// Folders that children find before the caller's `PATH`.
    path: Vec<PathBuf>,
    /// Shared libraries of an unpacked toolchain.
    libraries: Option<PathBuf>,
    /// The assembler, once `setup` has found one.
    pub ptxas: Option<PathBuf>,
}

impl Toolchain {
    /// The toolchain to use: the one that runs xtask if it has rust-src, else the unpacked one
    /// if there is one, else the former after all.
    ///
    /// # Errors
    /// `rustc` cannot be run.
    pub fn find() -> Result<Self> {
        let native = Self::native()?;
        if native.rust_src().is_some() {
            return Ok(native);
        }
        Ok(Self::unpacked(&unpacked_root()).unwrap_or(native))
    }

    fn native() -> Result<Self> {
        let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let sysroot = repo::stdout_of(repo::command("rustc").args(["--print", "sysroot"]))
            .context("no working Rust compiler; install one from https://rustup.rs")?;
        Ok(Self {
            cargo,
            sysroot: PathBuf::from(sysroot.trim()),
            path: Vec::new(),
            libraries: None,
            ptxas: None,
        })
    }

    /// The toolchain unpacked from Debian's packages at `tree`, if it is complete.
    pub fn unpacked(tree: &Path) -> Option<Self> {
        let usr = tree.join("usr");
        let toolchain = Self {
            cargo: usr.join("bin/cargo"),
            path: vec![usr.join("bin")],
            libraries: Some(
                usr.join("lib")
                    .join(format!("{}-linux-gnu", env::consts::ARCH)),
            ),
            sysroot: usr,
            ptxas: None,
        };
        (toolchain.cargo.is_file() && toolchain.rust_src().is_some()).then_some(toolchain)
    }

    /// The folder of the standard library's sources, if the toolchain has them.
    pub fn rust_src(&self) -> Option<PathBuf> {
        let library = self.sysroot.join("lib/rustlib/src/rust/library");
        library.join("core/Cargo.toml").is_file().then_some(library)
    }

    /// Whether the toolchain brings `tool` (`cargo-fmt`, `cargo-clippy`).
    pub fn has(&self, tool: &str) -> bool {
        self.sysroot.join("bin").join(tool).is_file()
    }

    /// Gives children an assembler, which they find on their `PATH`.
    pub fn use_ptxas(&mut self, ptxas: PathBuf) {
        self.path.extend(ptxas.parent().map(Path::to_path_buf));
        self.ptxas = Some(ptxas);
    }

    /// Gives children a QEMU, which they find on their `PATH`.
    pub fn use_qemu(&mut self, qemu: &Path) {
        self.path.extend(qemu.parent().map(Path::to_path_buf));
    }

    /// Whether the toolchain brings the run time of a sanitizer (`asan`, `tsan`).
    pub fn has_runtime(&self, sanitizer: &str) -> bool {
        let folder = self.rustlib().join("lib");
        let end = format!("_rt.{sanitizer}.a");
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| file.file_name().to_string_lossy().ends_with(&end))
    }

    /// The folder of what belongs to the machine's own target.
    pub fn rustlib(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib").join(HOST)
    }

    /// A cargo command in the repository's root.
    pub fn cargo(&self) -> Command {
        self.command(&self.cargo)
    }

    /// A command in the repository's root that may call cargo.
    pub fn command(&self, program: &Path) -> Command {
        let mut cargo = repo::command(program);
        cargo.env("PATH", joined(&self.path, env::var_os("PATH")));
        if let Some(libraries) = &self.libraries {
            let libraries = std::slice::from_ref(libraries);
            cargo.env(
                "LD_LIBRARY_PATH",
                joined(libraries, env::var_os("LD_LIBRARY_PATH")),
            );
            cargo.env("CARGO", &self.cargo);
            // Would send cargo to rustup's compiler in place of the unpacked one.
            cargo.env_remove("RUSTUP_TOOLCHAIN");
        }
        cargo
    }
}

/// Where `setup` unpacks a toolchain.
pub fn unpacked_root() -> PathBuf {
    repo::target().join("toolchain")
}

/// `first`, then what the variable held.
fn joined(first: &[PathBuf], old: Option<OsString>) -> OsString {
    let old = old.unwrap_or_default();
    let rest = env::split_paths(&old).filter(|path| !path.as_os_str().is_empty());
    let all: Vec<PathBuf> = first.iter().cloned().chain(rest).collect();
    // Fails only for a path that holds a colon, which could not be looked up anyhow.
    env::join_paths(all).unwrap_or(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_tree_counts_only_when_complete() {
        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        at("usr/bin/cargo");
        assert!(Toolchain::unpacked(tree.path()).is_none());
        at("usr/lib/rustlib/src/rust/library/core/Cargo.toml");
        let toolchain = Toolchain::unpacked(tree.path()).unwrap();
        assert!(!toolchain.has("cargo-fmt"));

        let cargo = toolchain.cargo();
        let path = cargo
            .get_envs()
            .find(|(name, _)| *name == "PATH")
            .and_then(|(_, v)| v);
        let first = env::split_paths(path.unwrap()).next();
        assert_eq!(first, Some(tree.path().join("usr/bin")));
    }

    #[test]
    fn ptxas_comes_before_the_callers_path() {
        let mut toolchain = Toolchain::native().unwrap();
        toolchain.use_ptxas(PathBuf::from("/opt/cuda/bin/ptxas"));
        let cargo = toolchain.cargo();
        let path = cargo
            .get_envs()
            .find(|(name, _)| *name == "PATH")
            .and_then(|(_, v)| v);
        let mut path = env::split_paths(path.unwrap());
        assert_eq!(path.next(), Some(PathBuf::from("/opt/cuda/bin")));
        assert!(path.next().is_some());
    }
}
