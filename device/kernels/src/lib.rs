//! warpstore's own kernels, one file a workload, and the emulated-SSD kernel.
//!
//! An rlib: warpstore-builder compiles it to PTX, and the `threads` runner calls it as it is.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod bfs;
pub mod cache;
pub mod cc;
pub mod controller;
pub mod counted;
pub mod crowd;
pub mod flush;
pub mod iops;
pub mod rw;
