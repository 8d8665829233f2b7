//! `ptx-report`: registers, spills, stack and occupancy of every kernel, against the budgets.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::Table;
use serde_json::{Value, json};
use warpstore_builder::{Builder, Ptx};
use warpstore_ptx_tests::budget::{self, occupancy_percent};
use warpstore_ptx_tests::ptxas::{self, Cost};
use warpstore_ptx_tests::{file, root};

/// Prints what ptxas says about every kernel. Exits with 1 if one is above its budget in
/// tests/ptx/budgets.toml.
#[derive(Parser)]
struct Args {
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is within the budgets.
fn run(args: &Args) -> Result<bool> {
    let ptxas = ptxas::find().context(
        "no ptxas that knows sm_100; run `cargo xtask setup`, or set WARPSTORE_PTXAS to one of \
         CUDA 12.8 or newer",
    )?;
    let ptx = Builder::new(root().join("device/kernels")).build()?;
    let budgets = budget::read(&file("budgets.toml"))?;
    let mut costs = Vec::new();
    for arch in ptxas::ARCHITECTURES {
        costs.extend(ptxas::assemble(&ptxas, &ptx.path, arch)?);
    }
    costs.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    let release = ptxas::release(&ptxas)?;
    println!("{}", table(&costs, &ptx));
    println!("{release}; PTX for compute_80; occupancy as far as registers decide");
    let breaches = budget::breaches(&costs, &budgets);
    for breach in &breaches {
        println!("over budget: {breach}");
    }
    if let Some(path) = &args.json {
        let report = report(&costs, &ptx, &release, breaches.is_empty());
        fs::write(path, serde_json::to_string_pretty(&report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(breaches.is_empty())
}

/// Largest block of a kernel, in threads.
fn block(ptx: &Ptx, kernel: &str) -> u32 {
    let info = ptx.kernels.iter().find(|info| info.name == kernel);
    info.and_then(|info| info.max_threads).unwrap_or(1024)
}

fn table(costs: &[Cost], ptx: &Ptx) -> Table {
    let mut table = Table::new();
    table.set_header([
        "kernel",
        "architecture",
        "registers",
        "spills [B]",
        "in itself [B]",
        "stack [B]",
        "block [threads]",
        "occupancy [%]",
    ]);
    for cost in costs {
        let block = block(ptx, &cost.kernel);
        table.add_row([
            cost.kernel.clone(),
            cost.arch.clone(),
            cost.registers.to_string(),
            cost.spills.to_string(),
            cost.own_spills.to_string(),
            cost.stack.to_string(),
            block.to_string(),
            occupancy_percent(cost.registers, block).to_string(),
        ]);
    }
    table
}

fn report(costs: &[Cost], ptx: &Ptx, release: &str, within: bool) -> Value {
    let result = |cost: &Cost| {
        let block = block(ptx, &cost.kernel);
        json!({
            "kernel": cost.kernel,
            "arch": cost.arch,
            "registers": cost.registers,
            "spill_bytes": cost.spills,
            "own_spill_bytes": cost.own_spills,
            "stack_bytes": cost.stack,
            "block_threads": block,
            "occupancy_percent": occupancy_percent(cost.registers, block),
        })
    };
    json!({
        "schema": 1,
        "experiment": "registers",
        "runner": "ptxas",
        "ssd": null,
        "machine": release,
        "verified": within,
        "modelled": false,
        "results": costs.iter().map(result).collect::<Vec<_>>(),
    })
}
