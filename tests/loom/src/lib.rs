//! The loom implementation of the simt seams, for protocol tests.
//!
//! A loom thread stands for a warp of one lane: outside a running warp the functions of
//! [`warpstore_simt::warp`] are those of a single lane. [`explore`] runs a scenario once for
//! every interleaving, and for every value that a relaxed load may return, within a bound on
//! preemptions; the words that [`cell`] and [`cells`] make live until the next interleaving.
//!
//! What loom does not see: scopes (all words are one machine's), load buffering, and an access
//! that is not atomic. Time stands still here, so deadlines never expire.

mod memory;

pub use memory::{Loom, LoomCell, LoomCells, cell, cells};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `scenario` under every interleaving with at most `preemptions` involuntary switches and
/// returns how many there were. A test asserts that this is more than one: a scenario whose
/// words are not loom's passes after a single execution and proves nothing.
///
/// # Panics
/// If the scenario panics, deadlocks or spins forever under one of them.
pub fn explore(preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) -> u64 {
    let executions = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        memory::forget_words();
        scenario();
    });
    executions.load(Ordering::Relaxed)
}
