//! The real binary from the outside: what it writes, says, refuses, and how it ends.

mod refusals;
mod tables;
mod volumes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A folder in which the binary runs.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Names of everything in the folder, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn flip(&self, name: &str, at: usize) {
        let mut bytes = self.read(name);
        bytes[at] ^= 1;
        self.write(name, &bytes);
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpstore-flash"));
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path());
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
        output
    }

    /// Starts the binary, with its stdout to somewhere.
    fn start(&self, line: &str, stdout: impl Into<Stdio>) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpstore-flash"));
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .stdout(stdout)
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Runs the binary, expects success and gives what it printed.
    fn succeed(&self, line: &str) -> String {
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{line}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the binary and expects this status and one message that holds all of `words`.
    fn fail(&self, line: &str, status: i32, words: &[&str]) {
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{line}: {stderr}");
        let messages: Vec<&str> = stderr
            .lines()
            .filter_map(|line| line.strip_prefix("error: "))
            .collect();
        assert_eq!(messages.len(), 1, "{line}: {stderr}");
        for word in words {
            assert!(
                messages[0].contains(word),
                "{line}: no {word:?} in {stderr}"
            );
        }
    }
}

/// The graphs that come with the project.
fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(name);
    path.display().to_string()
}
