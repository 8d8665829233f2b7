//! The cargo that compiles for the GPU, in an environment cleared of the cargo that runs us.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::BuildError;

/// Names a folder with an unpacked toolchain to use in place of the one that runs us.
pub const VARIABLE: &str = "WARPSTORE_DEVICE_TOOLCHAIN";

/// A cargo with its compiler.
pub struct Toolchain {
    cargo: PathBuf,
    /// Folder that holds `bin` of an unpacked toolchain.
    prefix: Option<PathBuf>,
}

impl Toolchain {
    /// The toolchain that [`VARIABLE`] names, else the one that runs us, else the one on `PATH`.
    ///
    /// # Errors
    /// There is none, or it lacks the sources of core.
    pub fn find() -> Result<Self, BuildError> {
        let toolchain = match env::var_os(VARIABLE) {
            Some(folder) => Self::unpacked(Path::new(&folder))?,
            None => Self {
                cargo: env::var_os("CARGO").unwrap_or("cargo".into()).into(),
                prefix: None,
            },
        };
        let sysroot = toolchain.sysroot()?;
        if !sysroot
            .join("lib/rustlib/src/rust/library/core/Cargo.toml")
            .is_file()
        {
            return Err(BuildError::NoRustSrc { sysroot });
        }
        Ok(toolchain)
    }

    fn unpacked(folder: &Path) -> Result<Self, BuildError> {
        let prefixes = [folder.to_path_buf(), folder.join("usr")];
        let prefix = prefixes
            .into_iter()
            .find(|prefix| prefix.join("bin/cargo").is_file());
        let missing = || BuildError::NoToolchain {
            variable: VARIABLE,
            folder: folder.to_path_buf(),
        };
        let prefix = prefix.ok_or_else(missing)?;
        Ok(Self {
            cargo: prefix.join("bin/cargo"),
            prefix: Some(prefix),
        })
    }

    fn sysroot(&self) -> Result<PathBuf, BuildError> {
        let rustc = PathBuf::from("rustc");
        let refuse = |reason: String| BuildError::Start {
            program: rustc.clone(),
            reason,
        };
        let output = self
            .command(&rustc)
            .args(["--print", "sysroot"])
            .output()
            .map_err(|error| refuse(error.to_string()))?;
        if !output.status.success() {
            return Err(refuse(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        Ok(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        ))
    }

    /// A cargo command.
    pub fn cargo(&self) -> Command {
        self.command(&self.cargo)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (variable, _) in env::vars_os().filter(|(variable, _)| belongs_to_the_host(variable)) {
            command.env_remove(variable);
        }
        if let Some(prefix) = &self.prefix {
            let libraries = format!("lib/{}-linux-gnu", env::consts::ARCH);
            let libraries = [prefix.join(libraries), prefix.join("lib")];
            command.env("PATH", prepended(&[prefix.join("bin")], "PATH"));
            command.env("LD_LIBRARY_PATH", prepended(&libraries, "LD_LIBRARY_PATH"));
            // Would send cargo to rustup's compiler in place of the unpacked one.
            command.env_remove("RUSTUP_TOOLCHAIN");
        }
        command
    }
}

/// Variables that cargo, clippy and users set for the host's compilation. One of them left over
/// compiles for the wrong GPU, or with flags that the device compiler does not know.
fn belongs_to_the_host(variable: &OsStr) -> bool {
    let Some(name) = variable.to_str() else {
        return false;
    };
    let ours = ["CARGO", "RUSTC", "RUSTFLAGS", "RUSTDOC", "CLIPPY"];
    // Where crates are cached, and whether there is a network, is true for the device build too.
    ours.iter().any(|prefix| name.starts_with(prefix))
        && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&name)
}

fn prepended(first: &[PathBuf], variable: &str) -> OsString {
    let old = env::var_os(variable).unwrap_or_default();
    let rest = env::split_paths(&old).filter(|path| !path.as_os_str().is_empty());
    // Fails only for a path that holds a colon, which could not be looked up anyhow.
    env::join_paths(first.iter().cloned().chain(rest)).unwrap_or(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_configures_the_host_does_not_reach_the_device() {
        let host = [
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_TARGET_DIR",
            "CLIPPY_ARGS",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTDOCFLAGS",
            "RUSTFLAGS",
        ];
        assert!(
            host.iter()
                .all(|name| belongs_to_the_host(OsStr::new(name)))
        );
        let both = [
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "PATH",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
        ];
        assert!(
            !both
                .iter()
                .any(|name| belongs_to_the_host(OsStr::new(name)))
        );
    }

    #[test]
    fn a_folder_without_a_toolchain_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = Toolchain::unpacked(folder.path())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(VARIABLE) && error.contains(folder.path().to_str().unwrap()));
    }
}
