//! The real binary from the outside: answers, reports, exit statuses, and what it leaves behind.
//!
//! Everything runs on host threads in a folder of its own, so the tests need neither GPU nor root.

mod answers;
mod disks;
mod media;
mod processes;
mod refusals;
mod reports;
mod sizes;
mod volumes;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest run: a hang is an error, not a test that never ends.
const PATIENCE: Duration = Duration::from_secs(120);
/// Two rings and a loner: 3 components, and from 0 distances 0, 1, 2, 3.
const SMALL: &str = "0 1\n1 2\n2 3\n3 0\n5 4\n4 5\n6 6\n";

/// A folder in which the binary runs.
struct Folder(TempDir);

/// How a run ended.
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A folder with the graph [`SMALL`] in it, as `g.el`.
    fn with_graph() -> Self {
        let folder = Self::new();
        folder.write("g.el", SMALL.as_bytes());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
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

    /// The binary with the words of `line`, on host threads.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpstore-bench"));
        command.args(line.split_whitespace());
        if !line.contains("--runner") && !line.starts_with("serve-ssds") {
            command.args(["--runner", "threads"]);
            if !line.contains("--timeout") {
                // Far longer than anything takes on a machine that is busy with other things.
                command.args(["--timeout", "60"]);
            }
        }
        command.current_dir(self.0.path());
        command
    }

    fn run(&self, line: &str) -> Ended {
        self.end(self.command(line))
    }

    /// Runs the binary and expects success.
    fn succeed(&self, line: &str) -> Ended {
        let ended = self.run(line);
        assert_eq!(ended.status, Some(0), "{line}: {}", ended.stderr);
        ended
    }

    /// Runs the binary and expects this status and one message that holds all of `words`.
    fn fail(&self, line: &str, status: i32, words: &[&str]) {
        let ended = self.run(line);
        assert_eq!(ended.status, Some(status), "{line}: {}", ended.stderr);
        let message = ended.message();
        for word in words {
            assert!(message.contains(word), "{line}: no {word:?} in {message:?}");
        }
    }

    /// Runs the binary with `--json` and gives the report's only result.
    fn result(&self, line: &str) -> serde_json::Value {
        self.succeed(&format!("{line} --json result.json"));
        let mut report = self.json("result.json");
        assert_eq!(report["verified"], true, "{line}");
        assert_eq!(report["results"].as_array().unwrap().len(), 1, "{line}");
        report["results"][0].take()
    }

    fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// Runs a command to its end, or stops it.
    fn end(&self, mut command: Command) -> Ended {
        // Outside the folder, and files: a full pipe would stop the process.
        let said = TempDir::new().unwrap();
        let [out, err] = ["out", "err"].map(|name| said.path().join(name));
        command
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{command:?} hangs: {}", read(&err));
            }
            thread::sleep(Duration::from_millis(2));
        };
        let ended = Ended {
            status: status.code(),
            stdout: read(&out),
            stderr: read(&err),
        };
        assert!(
            !ended.stderr.contains("panicked"),
            "{command:?}: {}",
            ended.stderr
        );
        ended
    }
}

impl Ended {
    /// The one error message.
    fn message(&self) -> &str {
        let mut messages = self
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("error: "));
        let message = messages.next().unwrap_or_default();
        assert!(
            !message.is_empty() && messages.next().is_none(),
            "not one message: {}",
            self.stderr
        );
        message
    }
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()
}

/// The e-mail graph that comes with the project.
fn email_graph() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/email-enron.el.gz")
}

/// Says aloud that a test could not do its work on this machine.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
