//! What each kernel may cost, and how many of its warps then fit on a multiprocessor.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::ptxas::Cost;

/// Limits of one kernel on every architecture. What is not named must be 0.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of spills.
    #[serde(default)]
    pub spills: u32,
    /// Those of them in the kernel itself.
    #[serde(default)]
    pub own_spills: u32,
    /// Bytes of stack of a thread.
    #[serde(default)]
    pub stack: u32,
}

/// Budgets by kernel.
pub type Budgets = BTreeMap<String, Budget>;

/// Reads a budget file.
///
/// # Errors
/// It is missing or broken.
pub fn read(path: &Path) -> Result<Budgets> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// What exceeds its budget, or has none, or is a budget without kernel; empty if all is well.
pub fn breaches(costs: &[Cost], budgets: &Budgets) -> Vec<String> {
    let mut breaches: Vec<String> = costs
        .iter()
        .filter_map(|cost| breach(cost, budgets))
        .collect();
    let gone = budgets
        .keys()
        .filter(|name| costs.iter().all(|cost| cost.kernel != **name));
    breaches.extend(gone.map(|name| format!("{name}: a budget, but no kernel of that name")));
    breaches
}

fn breach(cost: &Cost, budgets: &Budgets) -> Option<String> {
    let Cost {
        kernel,
        arch,
        registers,
        spills,
        own_spills,
        stack,
    } = cost;
    let found = format!(
        "registers = {registers}, spills = {spills}, own_spills = {own_spills}, stack = {stack}"
    );
    let Some(budget) = budgets.get(kernel) else {
        return Some(format!(
            "{kernel}: no budget; on {arch} it needs {{ {found} }}"
        ));
    };
    let within = *registers <= budget.registers
        && *spills <= budget.spills
        && *own_spills <= budget.own_spills
        && *stack <= budget.stack;
    (!within).then(|| format!("{kernel} on {arch}: {found} is above {budget:?}"))
}

/// Share of a multiprocessor's warps, in percent, that a kernel with this many registers can
/// have resident in blocks of `threads`, as far as registers decide.
///
/// All of sm_80, sm_90 and sm_100 have 65536 registers, given out to warps by 256, 64 warps and
/// 32 blocks (CUDA C++ Programming Guide, "Compute Capabilities").
pub fn occupancy_percent(registers: u32, threads: u32) -> u32 {
    const WARPS: u32 = 64;
    let block_warps = threads.div_ceil(32).max(1);
    let warp_registers = (registers.max(1) * 32).next_multiple_of(256);
    let warps = (65536 / warp_registers).min(WARPS);
    let blocks = (warps / block_warps).min(32);
    blocks * block_warps * 100 / WARPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_is_that_of_the_programming_guide() {
        assert_eq!(occupancy_percent(32, 256), 100);
        assert_eq!(occupancy_percent(33, 256), 75);
        assert_eq!(occupancy_percent(64, 1024), 50);
        assert_eq!(occupancy_percent(65, 1024), 0);
        assert_eq!(occupancy_percent(16, 32), 50);
    }

    #[test]
    fn too_much_no_budget_and_no_kernel_are_breaches() {
        let cost = |kernel: &str, registers| Cost {
            kernel: kernel.to_owned(),
            arch: "sm_90".to_owned(),
            registers,
            ..Cost::default()
        };
        let budgets: Budgets = toml::from_str("a = { registers = 32 }").unwrap();
        assert_eq!(breaches(&[cost("a", 32)], &budgets), [""; 0]);
        assert!(breaches(&[cost("a", 33)], &budgets)[0].contains("above"));
        assert!(breaches(&[cost("a", 1), cost("b", 1)], &budgets)[0].contains("no budget"));
        assert!(breaches(&[], &budgets)[0].contains("no kernel"));
        let spilling = Cost {
            spills: 4,
            ..cost("a", 32)
        };
        assert!(breaches(&[spilling], &budgets)[0].contains("above"));
        let in_the_callee: Budgets = toml::from_str("a = { registers = 32, spills = 4 }").unwrap();
        let spilling = Cost {
            spills: 4,
            ..cost("a", 32)
        };
        assert_eq!(breaches(&[spilling], &in_the_callee), [""; 0]);
        let in_the_kernel = Cost {
            spills: 4,
            own_spills: 4,
            ..cost("a", 32)
        };
        assert!(breaches(&[in_the_kernel], &in_the_callee)[0].contains("above"));
    }
}
