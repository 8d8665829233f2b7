//! Finds or fetches ptxas, NVIDIA's assembler, which checks the PTX that we generate.
//!
//! It is wanted, not needed: programs load PTX through the driver. An old one is passed over,
//! since it would reject the PTX version or the newest architectures that the checks name.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{repo, setup};

/// The first release that assembles for sm_100.
const OLDEST: (u32, u32) = (12, 8);
/// The package that holds ptxas on PyPI.
const WHEEL: &str = "nvidia-cuda-nvcc==13.0.88";

/// A ptxas of this machine, else one fetched from PyPI, else none, said aloud the first time.
pub fn find_or_fetch() -> Result<Option<PathBuf>> {
    if let Some(path) = find() {
        return Ok(Some(path));
    }
    if failure().exists() {
        return Ok(None);
    }
    println!("ptxas: none here; fetching {WHEEL} from PyPI into target/ptxas");
    match fetch() {
        Ok(path) => Ok(Some(path)),
        Err(error) => {
            println!("ptxas: not available, checks that need it are skipped ({error:#})");
            // Remembered, so that a machine without network does not wait at every command.
            setup::write(&failure(), "`cargo xtask setup` tries again\n")?;
            Ok(None)
        }
    }
}

/// A usable ptxas: on `PATH`, in a CUDA installation, or fetched before.
pub fn find() -> Option<PathBuf> {
    let on_path = env::var_os("PATH").unwrap_or_default();
    let named = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(env::var_os);
    let installed = named.map(|home| PathBuf::from(home).join("bin"));
    let usual = [
        PathBuf::from("/usr/local/cuda/bin"),
        PathBuf::from("/opt/cuda/bin"),
    ];
    let fetched = unpacked().parent().map(Path::to_path_buf);
    env::split_paths(&on_path)
        .chain(installed)
        .chain(usual)
        .chain(fetched)
        .map(|folder| folder.join("ptxas"))
        .find(|path| path.is_file() && release(path).is_some_and(|release| release >= OLDEST))
}

/// Lets the next [`find_or_fetch`] try the network again.
pub fn forget_failure() {
    // Absent is what we want; if it cannot be removed, the old answer stands.
    let _ = fs::remove_file(failure());
}

fn folder() -> PathBuf {
    repo::target().join("ptxas")
}

fn unpacked() -> PathBuf {
    folder().join("nvidia/cu13/bin/ptxas")
}

fn failure() -> PathBuf {
    folder().join("unavailable")
}

fn fetch() -> Result<PathBuf> {
    let folder = folder();
    fs::create_dir_all(&folder)?;
    repo::stdout_of(
        repo::command("python3")
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "-d"])
            .arg(&folder)
            .arg(WHEEL),
    )?;
    let mut wheels = fs::read_dir(&folder)?.filter_map(|entry| entry.ok().map(|e| e.path()));
    let wheel = wheels
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip left no wheel")?;
    repo::stdout_of(
        repo::command("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(&folder),
    )?;
    fs::remove_file(&wheel)?;
    let path = unpacked();
    // Python's unzip drops the executable bit.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel holds no {}", path.display()))?;
    find().context("the ptxas that was fetched does not run here")
}

/// The release that a ptxas says it is, if it runs at all.
fn release(ptxas: &Path) -> Option<(u32, u32)> {
    parse_release(&repo::stdout_of(repo::command(ptxas).arg("--version")).ok()?)
}

/// The numbers in "Cuda compilation tools, release 13.0, V13.0.88".
fn parse_release(text: &str) -> Option<(u32, u32)> {
    let (_, after) = text.split_once("release ")?;
    let (major, after) = after.split_once('.')?;
    let minor = after.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        let old = parse_release("Cuda compilation tools, release 9.1, V9.1.85").unwrap();
        let new = parse_release("Cuda compilation tools, release 13.0, V13.0.88\nBuild").unwrap();
        assert_eq!(new, (13, 0));
        assert!(old < OLDEST && OLDEST < new);
        assert_eq!(parse_release("ptxas: unknown"), None);
    }
}
