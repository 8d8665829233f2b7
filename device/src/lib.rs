//! The API that GPU kernels use: arrays on NVMe SSDs, read and written by the GPU thread that needs the
//! byte.
//!
//! ```text
//!  array.get(i) ─ line resident? load, re-check the line's word ──────────────► value
//!       │ no (cold path, fetch.rs: a warp that misses as a whole works together)
//!       ├─ one lane a line claims it and finds a slot, writing another line back where it must,
//!       │  or takes a bounce buffer
//!       ├─ nvme-queue: SQE, tail doorbell ──► controller ──► bytes, CQE
//!       └─ every turn drains: whoever sees a CQE publishes its line ─────────► value
//! ```
//!
//! One definition runs on both runners: compiled for nvptx64 it is PTX, elsewhere it is host
//! code whose lanes are coroutines. [`prelude`] has what a kernel file imports.
//!
//! Only [`Blocks::read`] and [`ArrayMut::write_line`] are collective: the whole warp calls them. The
//! rest is per lane; whether others can help is found out inside.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(stdarch_nvptx))]

mod access;
mod array;
mod array_mut;
mod beside;
mod blocks;
mod bounce;
mod bytes;
mod change;
pub mod counted;
mod error;
mod errors;
mod fetch;
mod finish;
mod flush;
pub mod launch;
mod line;
mod line_mut;
mod memory;
mod miss;
#[cfg(target_arch = "nvptx64")]
mod panic;
mod plan;
mod pool;
mod range;
mod staging;
mod store;
mod stripe;

pub use array::{Array, Element};
pub use array_mut::{Addend, ArrayMut};
pub use blocks::Blocks;
pub use error::{ErrorKind, IoError};
pub use errors::{ErrorRecord, ErrorRing, PendingCommand};
pub use flush::Flusher;
pub use line::Line;
pub use line_mut::LineMut;
pub use memory::{Atomics, DisjointSlice, Global};
pub use pool::{LIST_BYTES, PAGE_BYTES, Pool};
pub use range::Range;
pub use store::{CacheMode, SsdDesc, Store, StoreDesc};
pub use stripe::{Layout, Place, StripeMap};
pub use warpstore_macros::{kernel, launch_bounds, max_registers};
#[cfg(not(target_arch = "nvptx64"))]
pub use warpstore_simt::host;
pub use warpstore_simt::{thread, warp};

/// What a file of kernels imports.
pub mod prelude {
    pub use crate::{
        Array, ArrayMut, Atomics, Blocks, DisjointSlice, Global, IoError, thread, warp,
    };
    pub use crate::{kernel, launch_bounds, max_registers};
    pub use warpstore_simt::{Cell, Cells, Device, Order, System};
}

/// The crates that a description of a store is made with, for the host.
pub mod parts {
    pub use line_cache;
    pub use nvme_queue;
    pub use nvme_wire;
    pub use warpstore_simt as simt;
}
