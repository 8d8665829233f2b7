//! What the controllers of these tests see of the driver's memory.
#![allow(unsafe_code, reason = "cells are made from raw addresses")]
// UNSAFETY: cells over memory that the driver keeps as long as the controller is enabled.

use std::ptr::with_exposed_provenance_mut;

use warpstore_simt::{NativeCells, System};

pub use warpstore_qemu_tests::memory::{Admin, Submitter, Words, doorbell};

/// The words at an IOVA that the driver gave to a controller whose IOVAs are addresses.
pub fn at_iova(iova: u64, words: u64) -> NativeCells<u64, System> {
    // SAFETY: the driver keeps the memory of a queue of its own until it has deleted it or disabled the
    // controller, and tests look there only while they answer a command, or hold one.
    unsafe { NativeCells::new(with_exposed_provenance_mut(iova as usize), words) }
}
