//! The host back end: kernels on OS threads, for machines without a GPU and for tests.
//!
//! ```text
//!  launch ── worker OS thread ── resident blocks ── warps ── lanes (stackful coroutines)
//!                 │ one pass: visit every warp of every resident block
//!                 └ a visit resumes each lane that can run, until all of them gave way or wait
//! ```
//!
//! A lane runs until it pauses, waits for other lanes or ends; lanes of one worker never run at
//! the same time, lanes of different workers do. [`launch`] is the entry; `lane` is what a
//! running lane knows of itself, `warp` and `block` hold who waits for whom, `worker` resumes.
//!
//! This does not model the GPU's memory order: cells are `core::sync::atomic` words. loom explores
//! orderings; this runner explores interleavings ([`Interleaving::Seeded`]) and divergence.

mod block;
pub(crate) mod collective;
mod fault;
mod fiber;
pub(crate) mod lane;
mod launch;
pub(crate) mod memory;
mod schedule;
mod warp;
mod worker;

pub use collective::Operation;
pub use fault::LaunchFault;
pub use launch::{Grid, Interleaving, Workers, launch};
