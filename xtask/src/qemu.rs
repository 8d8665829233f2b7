//! Finds or fetches QEMU, whose NVMe controller the driver is tested against.
//!
//! It is wanted, not needed: without it those tests are skipped. Debian's package is unpacked
//! under `target/qemu`, not installed: installing it may remove other parts of QEMU.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::debian::Debian;
use crate::{repo, setup};

/// What the tests call.
const PROGRAM: &str = "qemu-system-x86_64";
/// The package that holds it.
const PACKAGE: &str = "qemu-system-x86";

/// A QEMU of this machine, else Debian's, else none, said aloud the first time.
pub fn find_or_fetch() -> Result<Option<PathBuf>> {
    if let Some(path) = find() {
        return Ok(Some(path));
    }
    if failure().exists() {
        return Ok(None);
    }
    println!("qemu: none here; unpacking Debian's {PACKAGE} in target/qemu");
    match fetch() {
        Ok(path) => Ok(Some(path)),
        Err(error) => {
            println!("qemu: not available, tests that need it are skipped ({error:#})");
            // Remembered, so that a machine without network does not wait at every command.
            setup::write(&failure(), "`cargo xtask setup` tries again\n")?;
            Ok(None)
        }
    }
}

/// A usable QEMU: on `PATH`, or fetched before.
pub fn find() -> Option<PathBuf> {
    let on_path = env::var_os("PATH").unwrap_or_default();
    let fetched = wrapper().parent().map(Path::to_path_buf);
    env::split_paths(&on_path)
        .chain(fetched)
        .map(|folder| folder.join(PROGRAM))
        .find(|path| path.is_file() && runs(path))
}

/// Lets the next [`find_or_fetch`] try the network again.
pub fn forget_failure() {
    // Absent is what we want; if it cannot be removed, the old answer stands.
    let _ = fs::remove_file(failure());
}

fn folder() -> PathBuf {
    repo::target().join("qemu")
}

fn failure() -> PathBuf {
    folder().join("unavailable")
}

/// The script that calls the unpacked QEMU.
fn wrapper() -> PathBuf {
    folder().join("bin").join(PROGRAM)
}

fn fetch() -> Result<PathBuf> {
    let tree = folder().join("tree");
    fs::create_dir_all(folder())?;
    let debian = Debian::update(&tree)?;
    let packages = debian.with_missing(&[PACKAGE])?;
    debian.unpack(&packages)?;
    let wrapper = wrapper();
    setup::write(&wrapper, &script(&tree))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    find().context("the QEMU that was fetched does not run here")
}

/// Calls the QEMU in `tree` with its own libraries, modules and firmware.
fn script(tree: &Path) -> String {
    let tree = tree.display();
    let libraries = format!("lib/{}-linux-gnu", env::consts::ARCH);
    format!(
        "#!/bin/sh\n\
         tree='{tree}'\n\
         export LD_LIBRARY_PATH=\"$tree/usr/{libraries}:$tree/{libraries}\"\n\
         export QEMU_MODULE_DIR=\"$tree/usr/{libraries}/qemu\"\n\
         exec \"$tree/usr/bin/{PROGRAM}\" \
         -L \"$tree/usr/share/qemu\" -L \"$tree/usr/share/seabios\" \"$@\"\n"
    )
}

fn runs(qemu: &Path) -> bool {
    repo::stdout_of(repo::command(qemu).arg("--version")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_hands_its_arguments_on_and_finds_the_trees_libraries() {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path().join("a folder");
        let program = tree.join("usr/bin").join(PROGRAM);
        let echo = "#!/bin/sh\necho \"$LD_LIBRARY_PATH\"\nprintf '<%s>' \"$@\"\n";
        setup::write(&program, echo).unwrap();
        let script = script(&tree);
        let path = tree.join("call");
        setup::write(&path, &script).unwrap();
        for file in [&program, &path] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let output = repo::stdout_of(repo::command(&path).args(["-M", "two words"])).unwrap();
        assert!(
            output.starts_with(&format!("{}/usr/lib/", tree.display())),
            "{output}"
        );
        assert!(output.ends_with("<-M><two words>"), "{output}");
    }
}
