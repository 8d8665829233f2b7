//! How a run ends: what is said on stderr, and the exit status.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | everything ran and was verified |
//! | 1 | a run failed: a file, a GPU, an SSD |
//! | 2 | the command line is wrong |
//! | 3 | a result is wrong |

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use warpstore_terminal::told;

use crate::options::{self, Options, Request, UsageError};

/// Why a run did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Something that was needed is missing or failed; shown with its causes.
    #[error("{}", told(.0))]
    Run(#[from] anyhow::Error),
    /// A result differs from the plain CPU implementation's.
    #[error("the result is wrong: {0}")]
    Verification(String),
}

impl Failure {
    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Run(_) => 1,
            Self::Usage(_) => 2,
            Self::Verification(_) => 3,
        }
    }
}

/// Reads the command line, calls `run` with its options and ends as the table above says.
pub fn finish(
    arguments: impl IntoIterator<Item = OsString>,
    run: impl FnOnce(&Options) -> Result<(), Failure>,
) -> ExitCode {
    let done = match options::parse(arguments) {
        Ok(Request::Run(options)) => run(&options),
        // Whoever closed stdout does not want to read on.
        Ok(Request::Show(text)) => {
            let _ = io::stdout().write_all(text.as_bytes());
            Ok(())
        }
        Err(error) => Err(error.into()),
    };
    end(done)
}

/// Ends as the table above says.
pub fn end(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "error: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish_line(line: &str, result: Result<(), Failure>) -> ExitCode {
        finish(line.split_whitespace().map(OsString::from), |_| result)
    }

    #[test]
    fn every_end_has_its_status() {
        assert_eq!(finish_line("bench cc", Ok(())), ExitCode::SUCCESS);
        assert_eq!(
            finish_line(
                "bench --help",
                Err(Failure::Verification("never run".into()))
            ),
            ExitCode::SUCCESS
        );
        assert_eq!(
            finish_line("bench cc", Err(anyhow::anyhow!("no GPU").into())),
            ExitCode::from(1)
        );
        assert_eq!(finish_line("bench sort", Ok(())), ExitCode::from(2));
        assert_eq!(
            finish_line("bench cc", Err(Failure::Verification("vertex 1".into()))),
            ExitCode::from(3)
        );
    }

    #[test]
    fn a_cause_that_is_quoted_is_not_repeated() {
        let error = crate::report::save("/dev/full".as_ref(), b"x").unwrap_err();
        let told = Failure::from(anyhow::Error::from(error)).to_string();
        assert_eq!(told.matches("No space left").count(), 1, "{told}");
    }
}
