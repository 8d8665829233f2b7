//! `warpstore-builder`: compiles a kernel crate to a PTX file and lists the kernels.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use warpstore_builder::{Arch, Builder, KernelInfo};

/// Compiles a kernel crate to PTX. Needs rust-src, but no GPU and no CUDA.
#[derive(Parser)]
struct Args {
    /// Manifest of the kernel crate
    #[arg(long, value_name = "Cargo.toml")]
    manifest_path: PathBuf,
    /// PTX file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Oldest GPU architecture that shall run the kernels
    #[arg(long, default_value_t = Arch::Compute80)]
    arch: Arch,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let kernel_crate = args
        .manifest_path
        .parent()
        .context("a manifest has a folder")?;
    let ptx = Builder::new(kernel_crate).arch(args.arch).build()?;
    if let Some(folder) = args.out.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(&args.out, &ptx.text)
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    for kernel in &ptx.kernels {
        println!("{}", line(kernel));
    }
    println!(
        "{} kernels for {} in {}",
        ptx.kernels.len(),
        args.arch,
        args.out.display()
    );
    Ok(())
}

fn line(kernel: &KernelInfo) -> String {
    let bytes: u32 = kernel.params.iter().map(|param| param.bytes).sum();
    let mut line = format!(
        "{:<32} {} parameters, {bytes} bytes",
        kernel.name,
        kernel.params.len()
    );
    let bounds = [
        (kernel.max_threads, "threads a block at most"),
        (kernel.min_blocks, "blocks an SM at least"),
        (kernel.max_registers, "registers at most"),
    ];
    for (value, meaning) in bounds {
        if let Some(value) = value {
            line += &format!(", {value} {meaning}");
        }
    }
    line
}
