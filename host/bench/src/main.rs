//! The benchmark binary: `cargo xtask bench`.

use std::env;
use std::process::ExitCode;

use warpstore_bench::experiments::run;
use warpstore_bench::{exit, serve};

fn main() -> ExitCode {
    let is_serving = env::args_os()
        .nth(1)
        .is_some_and(|word| word == serve::NAME);
    if is_serving {
        // The word stands where a program's name does.
        return exit::end(serve::run(env::args_os().skip(1)));
    }
    exit::finish(env::args_os(), run)
}
