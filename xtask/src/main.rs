//! The project's commands: `cargo xtask setup | build | test | bench | size | flash | ls | verify |
//! extract | doctor | bind | unbind | tidy | ci`.
//!
//! One file per task. This crate depends on no other crate of the workspace and does its work
//! by calling cargo, so that it compiles in seconds and runs when the rest does not build.
//! Every task runs from the repository's root, except those whose file arguments are the caller's:
//! `bench`, `flash`, `ls`, `verify` and `extract`.

mod bench;
mod build;
mod ci;
mod debian;
mod doctor;
mod examples;
mod fuzz;
mod guest;
mod mutants;
mod ptxas;
mod qemu;
mod repo;
mod rust_src;
mod sanitize;
mod setup;
mod ssd;
mod test;
mod tidy;
mod toolchain;
mod tsan;
mod volumes;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and measures warpstore.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make a fresh machine ready: rust-src, std's own crates, ptxas, QEMU
    Setup,
    /// Build the workspace, or the device code alone
    Build(build::Args),
    /// Run the tests and print how many passed and failed
    Test(test::Args),
    /// Run an experiment; every argument goes to warpstore-bench (try `bench --help`)
    #[command(disable_help_flag = true)]
    Bench(Passed),
    /// Say how many SSDs and how much in flight a rate of reads takes (try `size --help`)
    #[command(disable_help_flag = true)]
    Size(Passed),
    /// Write a volume from files; every argument goes to warpstore-flash (try `flash --help`)
    #[command(disable_help_flag = true)]
    Flash(Passed),
    /// Say what a volume holds
    #[command(disable_help_flag = true)]
    Ls(Passed),
    /// Read a volume and compare it with its checksums
    #[command(disable_help_flag = true)]
    Verify(Passed),
    /// Copy arrays of a volume to files
    #[command(disable_help_flag = true)]
    Extract(Passed),
    /// Say what this machine offers and what to do about the rest
    Doctor(doctor::Args),
    /// Take a free SSD from the kernel, for VFIO (as root)
    Bind(ssd::bind::Bind),
    /// Give an SSD back to the kernel (as root)
    Unbind(ssd::bind::Unbind),
    /// Check the house rules that a compiler does not
    Tidy,
    /// Run what CI runs, in the same order
    Ci,
}

/// Arguments of a program that xtask only starts.
#[derive(clap::Args)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup => setup::run(),
        Task::Build(args) => build::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Bench(passed) => bench::run(&passed.args),
        Task::Size(passed) => bench::size(&passed.args),
        Task::Flash(passed) => volumes::run("flash", &passed.args),
        Task::Ls(passed) => volumes::run("ls", &passed.args),
        Task::Verify(passed) => volumes::run("verify", &passed.args),
        Task::Extract(passed) => volumes::run("extract", &passed.args),
        Task::Doctor(args) => doctor::run(&args),
        Task::Bind(args) => ssd::bind::bind(&args),
        Task::Unbind(args) => ssd::bind::unbind(&args),
        Task::Tidy => tidy::run(),
        Task::Ci => ci::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_acceptance_is_asked_for_by_name() {
        Cli::command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("xtask doctor --accept --ssd vfio:S1 --ssd vfio:S2").is_ok());
        assert!(
            parse("xtask doctor --ssd vfio:S1").is_err(),
            "nothing to do with it"
        );
    }
}
