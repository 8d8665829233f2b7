//! Golden PTX: what the compiler must and must not emit.
//!
//! ```text
//! warpstore-builder ─► PTX text ─► listing: functions, blocks, instructions
//!                         │            ├─ golden:  collectives, fences, doorbells counted against golden/*.toml
//!                         │            ├─ rules:   no panic, no print, no unscoped atomic, no ld.global.nc
//!                         │            ├─ hit_path: a hit returns without a call and keeps off the stack
//!                         │            └─ hit_order: table, data, table, each after the other, nothing between
//!                         └─► ptxas ─► registers, spills, stack ─► budget: budgets.toml
//! ```
//!
//! loom and the host runner cannot see what is checked here: a compiler that duplicates a
//! barrier, drops an atomic's scope or reads shared memory through the read-only cache. The
//! crate `probe` has kernels that break each rule, so that every check is seen to fail.
//!
//! `UPDATE_GOLDEN=1 cargo test -p warpstore-ptx-tests` rewrites the golden files; budgets are
//! edited by hand.

use std::env;
use std::path::{Path, PathBuf};

pub mod budget;
pub mod golden;
pub mod hit_order;
pub mod hit_path;
pub mod listing;
pub mod ptxas;
pub mod rules;

/// The repository's root: two folders above this crate.
pub fn root() -> PathBuf {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir
        .ancestors()
        .nth(2)
        .map_or_else(|| manifest_dir.clone(), Path::to_path_buf)
}

/// A file of this crate.
pub fn file(name: &str) -> PathBuf {
    root().join("tests/ptx").join(name)
}
