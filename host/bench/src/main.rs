//! The benchmark binary: `cargo xtask bench`.

use std::env;
use std::process::ExitCode;

use warpstore_bench::exit::finish;
use warpstore_bench::experiments::run;

fn main() -> ExitCode {
    finish(env::args_os(), run)
}
