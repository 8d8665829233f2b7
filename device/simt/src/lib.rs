//! The bottom of the stack: threads, warps, scoped atomics, fences and time, on two machines.
//!
//! | | `target_arch = "nvptx64"` | elsewhere |
//! |---|---|---|
//! | [`thread`], [`warp`] | PTX registers and LLVM's convergent intrinsics | lanes are coroutines, collectives are rendezvous (`host`) |
//! | [`Native`] cells, [`Platform::fence`] | inline PTX with explicit order and scope | `core::sync::atomic` |
//! | [`Platform::pause`] | back-off by `nanosleep` | yields the lane, then the OS thread |
//!
//! Protocol crates (nvme-queue, line-cache, nvme-model) are generic over [`Platform`], so that a
//! third implementation, loom's, explores their interleavings. Outside a running warp every
//! function of [`warp`] behaves as a warp of one lane: that is what loom and the CPU's admin
//! queue see.
//!
//! This is the only room with assembly and intrinsics, and the only one that orders memory.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(
        abi_unadjusted,
        asm_experimental_arch,
        link_llvm_intrinsics,
        stdarch_nvptx
    )
)]
#![cfg_attr(
    target_arch = "nvptx64",
    allow(
        internal_features,
        reason = "convergent operations exist only as LLVM intrinsics"
    )
)]

mod bytes;
mod cell;
#[cfg(not(target_arch = "nvptx64"))]
pub mod host;
mod native;
mod platform;
#[cfg(target_arch = "nvptx64")]
mod ptx;
mod team;
pub mod thread;
pub mod warp;

pub use bytes::NativeBytes;
pub use cell::{Cell, Cells, Device, Order, Scope, System, Word};
pub use native::{Native, NativeCell, NativeCells};
pub use platform::Platform;
pub use team::{Lanes, Party, Solo, Team};
