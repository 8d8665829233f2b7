//! `cargo xtask size`: what a rate of random reads takes. Exit statuses are those of the
//! experiments.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use warpstore_bench::options::UsageError;
use warpstore_bench::sizing::{Options, Sizing};

fn main() -> ExitCode {
    let text = match Options::try_parse() {
        Ok(options) => Sizing::of(&options).map(|sizing| sizing.to_string()),
        // Help and version go to stdout, and are no error.
        Err(shown) if !shown.use_stderr() => Ok(shown.to_string()),
        Err(error) => Err(UsageError::from(error)),
    };
    match text {
        Ok(text) => {
            // Whoever closed stdout does not want to read on.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
