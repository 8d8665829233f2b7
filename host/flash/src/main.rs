//! `cargo xtask flash`, `ls`, `verify` and `extract`: volumes on SSDs and media files.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | it failed: a file, a member, a refusal |
//! | 2 | the command line is wrong |
//! | 3 | `verify` found something wrong |

mod destination;
mod extract;
mod flash;
mod list;
mod options;
mod shown;
mod sources;
mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

use warpstore_terminal::{UsageError, told};

use options::{Command, Request};

/// Why a command did not end well.
enum Failure {
    Usage(UsageError),
    Run(anyhow::Error),
    Damaged(String),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast::<UsageError>() {
            Ok(usage) => Self::Usage(usage),
            Err(error) => Self::Run(error),
        }
    }
}

fn main() -> ExitCode {
    let done = match options::parse(std::env::args_os()) {
        Ok(Request::Show(text)) => {
            print(&text);
            Ok(())
        }
        Ok(Request::Run(command)) => match &command {
            Command::Flash(options) => flash::run(options),
            Command::Ls(options) => list::run(options),
            Command::Verify(options) => verify::run(options),
            Command::Extract(options) => extract::run(options),
        },
        Err(usage) => Err(Failure::Usage(usage)),
    };
    let (message, status) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Run(error)) => (told(&error), 1),
        Err(Failure::Usage(error)) => (error.to_string(), 2),
        Err(Failure::Damaged(what)) => (what, 3),
    };
    let _ = writeln!(io::stderr(), "error: {message}");
    ExitCode::from(status)
}

/// Whoever closed stdout does not want to read on.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}
