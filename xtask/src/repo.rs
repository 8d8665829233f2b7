//! The repository as the tasks see it: its root, its files, and child processes run in it.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The repository's root: the folder above this crate's manifest, as cargo gives it at run
/// time (the folder may have moved since xtask was compiled), else as it was at compile time.
pub fn root() -> PathBuf {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir
        .parent()
        .map_or_else(|| manifest_dir.clone(), Path::to_path_buf)
}

/// Where the tasks keep what they fetch and make, and the only place they write to.
pub fn target() -> PathBuf {
    root().join("target")
}

/// A command that runs in the root.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The files git knows or would offer to add, relative to the root, sorted. Files that are
/// deleted but not yet committed are left out.
pub fn files() -> Result<Vec<PathBuf>> {
    let listing = stdout_of(command("git").args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let root = root();
    let mut files: Vec<PathBuf> = listing
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|file| root.join(file).is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Runs a command, its output going to the terminal.
///
/// # Errors
/// The command could not be started, or did not exit with 0.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to standard output.
///
/// # Errors
/// The command could not be started, or did not exit with 0; the message holds its standard
/// error.
pub fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} failed ({}): {}",
            shown(command),
            output.status,
            stderr.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command, passes its standard output on line by line, and shows each line to `see`.
/// Returns whether it exited with 0.
///
/// # Errors
/// The command could not be started or its output not be read.
pub fn stream(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    let mut output = BufReader::new(child.stdout.take().context("no pipe from the child")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        see(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn a_failing_command_is_named_with_its_status() {
        let error = run(command("false").arg("now")).unwrap_err().to_string();
        assert!(error.contains("`false now` failed"), "{error}");
        let error = stdout_of(command("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }

    #[test]
    fn a_stream_shows_every_line_and_the_verdict() {
        let mut lines = Vec::new();
        let ok = stream(
            command("sh").args(["-c", "echo a; printf b; exit 1"]),
            |line| {
                lines.push(line.trim_end().to_owned());
            },
        );
        assert!(!ok.unwrap());
        assert_eq!(lines, ["a", "b"]);
    }
}
