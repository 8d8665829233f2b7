//! How often each kernel has each operation that must be neither lost nor doubled.
//!
//! A compiler that copies a barrier, or a call of a function with one, into both arms of a branch,
//! or merges the votes of two, changes a number here. Counts are of places in the text, over the kernel and what it calls.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::listing::{Instruction, Listing};

/// Operations that lanes do together, those that order memory between agents, and calls, since
/// what is called may be either.
const COUNTED: [&str; 10] = [
    "activemask",
    "bar",
    "barrier",
    "call",
    "fence",
    "match",
    "membar",
    "redux",
    "shfl",
    "vote",
];

/// Kernel → operation → count.
pub type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// Counts the operations of every kernel.
pub fn counts(listing: &Listing) -> Counts {
    let of = |function| {
        let mut counts = BTreeMap::new();
        for function in listing.reachable(function) {
            for instruction in function.instructions().filter(|i| is_counted(i)) {
                *counts
                    .entry(instruction.opcode.replace('.', "-"))
                    .or_default() += 1;
            }
        }
        counts
    };
    listing
        .kernels()
        .map(|kernel| (kernel.name.clone(), of(kernel)))
        .collect()
}

/// Doorbells, the only stores to device registers, count too.
fn is_counted(instruction: &Instruction) -> bool {
    let operation = instruction.opcode.split('.').next().unwrap_or_default();
    COUNTED.contains(&operation) || instruction.opcode.starts_with("st.mmio")
}

/// Compares with a golden file, or writes it if `UPDATE_GOLDEN` is set.
///
/// # Errors
/// They differ; every difference is listed.
pub fn compare(counts: &Counts, golden: &Path) -> Result<()> {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(golden, toml::to_string(counts)?)
            .with_context(|| format!("cannot write {}", golden.display()));
    }
    let text = fs::read_to_string(golden)
        .with_context(|| format!("{}: UPDATE_GOLDEN=1 writes it", golden.display()))?;
    let expected: Counts = toml::from_str(&text).with_context(|| golden.display().to_string())?;
    let differences = differences(&expected, counts);
    if !differences.is_empty() {
        bail!(
            "{} differs; UPDATE_GOLDEN=1 accepts what the compiler does now:\n{}",
            golden.display(),
            differences.join("\n")
        );
    }
    Ok(())
}

fn differences(expected: &Counts, found: &Counts) -> Vec<String> {
    let count = |counts: &Counts, kernel: &str, operation: &str| {
        counts
            .get(kernel)
            .and_then(|kernel| kernel.get(operation))
            .copied()
            .unwrap_or(0)
    };
    let mut all = Vec::new();
    for (name, counts) in expected.iter().chain(found) {
        if !(expected.contains_key(name) && found.contains_key(name)) {
            all.push(format!("  {name}: a kernel in only one of them"));
        }
        for operation in counts.keys() {
            let (was, is) = (
                count(expected, name, operation),
                count(found, name, operation),
            );
            if was != is {
                all.push(format!("  {name}: {operation} was {was}, is {is}"));
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubled_barrier_and_a_lost_kernel_are_differences() {
        let one = |kernel: &str, count| {
            let counts = BTreeMap::from([("bar-sync".to_owned(), count)]);
            Counts::from([(kernel.to_owned(), counts)])
        };
        assert_eq!(differences(&one("k", 1), &one("k", 1)), [""; 0]);
        assert_eq!(
            differences(&one("k", 1), &one("k", 2)),
            ["  k: bar-sync was 1, is 2"]
        );
        assert!(differences(&one("k", 0), &one("l", 0))[0].contains("only one"));
    }
}
