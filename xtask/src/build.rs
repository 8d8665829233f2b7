//! `cargo xtask build`: the workspace, or with `--ptx` the device code alone.

use anyhow::Result;

use crate::{repo, setup};

/// What to build.
#[derive(clap::Args)]
pub struct Args {
    /// Compile the kernels to target/ptx/kernels.ptx: needs no GPU, no CUDA, no host crate
    #[arg(long)]
    ptx: bool,
    /// GPU architecture of the PTX, as sm_80 or compute_80
    #[arg(long, requires = "ptx", value_parser = parse_arch)]
    arch: Option<String>,
}

/// Builds.
///
/// # Errors
/// The toolchain is incomplete or the build fails.
pub fn run(args: &Args) -> Result<()> {
    let toolchain = setup::ready()?;
    let mut cargo = toolchain.cargo();
    if !args.ptx {
        return repo::run(cargo.args(["build", "--workspace", "--release"]));
    }
    cargo.args(["run", "--release", "-p", "warpstore-builder", "--"]);
    cargo.args(["--manifest-path", "device/kernels/Cargo.toml"]);
    cargo.args(["--out", "target/ptx/kernels.ptx"]);
    if let Some(arch) = &args.arch {
        cargo.args(["--arch", arch]);
    }
    repo::run(&mut cargo)
}

/// PTX is made for a virtual architecture: both spellings of a user mean that one.
fn parse_arch(text: &str) -> Result<String, String> {
    let digits = text
        .strip_prefix("sm_")
        .or_else(|| text.strip_prefix("compute_"));
    match digits.map(str::parse::<u32>) {
        Some(Ok(number)) => Ok(format!("compute_{number}")),
        _ => Err(format!(
            "`{text}` is no architecture; write for example sm_80"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_name_the_virtual_architecture() {
        assert_eq!(parse_arch("sm_90"), Ok("compute_90".to_owned()));
        assert_eq!(parse_arch("compute_80"), Ok("compute_80".to_owned()));
        assert!(parse_arch("90").is_err());
        assert!(parse_arch("sm_x").is_err());
    }
}
