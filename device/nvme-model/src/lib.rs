//! An emulated NVMe controller with a timing model.
//!
//! | part | runs on | what it does |
//! |---|---|---|
//! | [`Controller`] | CPU | registers, admin queue, media, DMA ranges |
//! | [`serve`] | CPU threads, or a resident GPU kernel | I/O queues: fetch, check, move data, complete |
//!
//! Both work on one *image* ([`Image`]): words at fixed offsets that hold queues, namespaces,
//! DMA ranges, clocks and counters. On the CPU they share it. For the GPU the image is copied
//! into its memory before the kernel starts and back after it has ended.
//!
//! Above `simt` this crate shares only `nvme-wire` with the submitter, so that one misreading of
//! the specification cannot hide in both. Commands name memory by IOVA; what is not mapped
//! ([`Controller::map_dma`]) is refused with Data Transfer Error and never touched.
//!
//! Data moves when a command is fetched; modelled time only delays its completion. A drive can
//! have a volatile write cache and lose its power, on host threads, and do wrong by a plan
//! ([`Faults`]), wherever it is served.
//!
//! What this does not do: interrupts, SGLs, fused commands, metadata, several submission queues
//! on one completion queue, atomic writes: commands that touch one LBA at the same time may tear
//! it.
#![cfg_attr(target_arch = "nvptx64", no_std)]

mod command;
#[cfg(not(target_arch = "nvptx64"))]
mod controller;
#[cfg(not(target_arch = "nvptx64"))]
mod faults;
mod layout;
#[cfg(not(target_arch = "nvptx64"))]
mod media;
mod memory;
#[cfg(not(target_arch = "nvptx64"))]
mod profile;
mod random;
mod service;
mod timing;
mod transfer;
#[cfg(not(target_arch = "nvptx64"))]
mod write_cache;

#[cfg(not(target_arch = "nvptx64"))]
pub use controller::{
    Configuration, ConfigurationError, Controller, Counters, LentDoorbells, MapError, Namespace,
    Placement, Serving,
};
#[cfg(not(target_arch = "nvptx64"))]
pub use faults::{Commands, Fault, Faults, Rule, When};
#[cfg(not(target_arch = "nvptx64"))]
pub use media::{Media, MediaError, MediaFile, Sharing, holds_nothing, open_regular};
pub use memory::{Image, Service};
#[cfg(not(target_arch = "nvptx64"))]
pub use profile::{Generation, Link, PROFILES, Profile, Published};
pub use service::{serve, serve_once, step};
