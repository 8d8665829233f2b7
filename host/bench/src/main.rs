//! The benchmark binary: `cargo xtask bench`.

use std::env;
use std::process::ExitCode;

use warpstore_bench::exit::{Failure, finish};

fn main() -> ExitCode {
    finish(env::args_os(), |options| {
        let name = options
            .experiment
            .map_or_else(|| "main".to_owned(), |experiment| experiment.to_string());
        Err(Failure::Run(anyhow::anyhow!(
            "this build does not hold the experiment {name}; build a later one"
        )))
    })
}
