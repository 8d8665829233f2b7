//! NVIDIA's assembler: does it take the PTX, and what do the kernels cost on each architecture.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// The architectures that every kernel is assembled for: A100, H100 and H200, B200.
pub const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

/// What a kernel costs on one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Cost {
    /// Kernel.
    pub kernel: String,
    /// Architecture.
    pub arch: String,
    /// Registers of a thread, for the kernel and all it calls.
    pub registers: u32,
    /// Bytes stored and loaded because registers ran out, with those of called functions.
    pub spills: u32,
    /// Those of them in the kernel itself, where a hit may come by.
    pub own_spills: u32,
    /// Bytes of stack of a thread, with those of called functions where ptxas knows.
    pub stack: u32,
}

/// A ptxas that knows all of [`ARCHITECTURES`]: the one that `WARPSTORE_PTXAS` names, the one
/// that `cargo xtask setup` unpacked, or one on `PATH`.
pub fn find() -> Option<PathBuf> {
    let named = env::var_os("WARPSTORE_PTXAS").map(PathBuf::from);
    let unpacked = root().join("target/ptxas/nvidia/cu13/bin/ptxas");
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|folder| folder.join("ptxas"));
    named
        .into_iter()
        .chain([unpacked])
        .chain(on_path)
        .find(|ptxas| knows_all(ptxas))
}

fn knows_all(ptxas: &Path) -> bool {
    let Ok(output) = Command::new(ptxas).arg("--help").output() else {
        return false;
    };
    let help = String::from_utf8_lossy(&output.stdout);
    ARCHITECTURES
        .iter()
        .all(|arch| help.contains(&format!("'{arch}'")))
}

/// The release that a ptxas says it is, as one line.
///
/// # Errors
/// It does not run.
pub fn release(ptxas: &Path) -> Result<String> {
    let output = Command::new(ptxas).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("release"));
    Ok(line.unwrap_or("unknown release").trim().to_owned())
}

/// Assembles a PTX file for an architecture.
///
/// # Errors
/// ptxas refuses it; the message holds what it says.
pub fn assemble(ptxas: &Path, ptx: &Path, arch: &str) -> Result<Vec<Cost>> {
    let output = Command::new(ptxas)
        .args([
            "--verbose",
            "--gpu-name",
            arch,
            "--output-file",
            "/dev/null",
        ])
        .arg(ptx)
        .output()
        .with_context(|| format!("cannot run {}", ptxas.display()))?;
    let report = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("ptxas refuses {} for {arch}:\n{report}", ptx.display());
    }
    costs(&report, arch)
}

/// Reads the report of `ptxas --verbose`: a kernel's section begins with "Compiling entry
/// function" and holds the functions that it calls as well.
fn costs(report: &str, arch: &str) -> Result<Vec<Cost>> {
    let mut costs: Vec<Cost> = Vec::new();
    let mut function = "";
    for line in report.lines() {
        if let Some((_, after)) = line.split_once("Compiling entry function '") {
            let kernel = after.split('\'').next().unwrap_or_default().to_owned();
            costs.push(Cost {
                kernel,
                arch: arch.to_owned(),
                ..Cost::default()
            });
            continue;
        }
        let Some(cost) = costs.last_mut() else {
            continue;
        };
        if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim();
        }
        if let Some(registers) = number_before(line, " registers") {
            cost.registers = registers;
        }
        let spilled = [" bytes spill stores", " bytes spill loads"];
        let spilled: u32 = spilled
            .iter()
            .filter_map(|unit| number_before(line, unit))
            .sum();
        cost.spills += spilled;
        if function == cost.kernel {
            cost.own_spills += spilled;
        }
        let frames = [" bytes stack frame", " bytes cumulative stack size"];
        let frame = frames
            .iter()
            .filter_map(|unit| number_before(line, unit))
            .max();
        cost.stack = cost.stack.max(frame.unwrap_or(0));
    }
    match costs.iter().find(|cost| cost.registers == 0) {
        Some(cost) => bail!("ptxas does not say how many registers {} has", cost.kernel),
        None => Ok(costs),
    }
}

fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_gives_a_cost_for_each_kernel() {
        let report = "\
ptxas info    : 12 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
    64 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 80 bytes cumulative stack size
ptxas info    : Function properties for called
    16 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Used 8 registers, used 0 barriers, 384 bytes cmem[0]
";
        let costs = costs(report, "sm_90").unwrap();
        let numbers: Vec<_> = costs
            .iter()
            .map(|c| (c.registers, c.spills, c.own_spills, c.stack))
            .collect();
        assert_eq!(numbers, [(24, 24, 20, 80), (8, 0, 0, 0)]);
        assert!(super::costs("Compiling entry function 'a' for 'sm_90'", "sm_90").is_err());
    }
}
