//! Page-aligned memory that tests give to the driver.
#![allow(unsafe_code, reason = "cells are made from raw addresses")]
// UNSAFETY: cells over heap memory of atomics, which its owner keeps as long as the driver uses
// the cells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use driver_vfio::{ADMIN_PRIVATE_WORDS, AdminCells, AdminMemory};
use warpstore_simt::{Device, NativeCell, NativeCells, System};

/// Words of the largest page that the driver takes.
const ALIGNMENT: usize = 64 * 1024 / 8;

/// Aligned words; all ones at first, so that whatever must be zeroed shows.
pub struct Words {
    memory: Vec<AtomicU64>,
    first: usize,
}

impl Words {
    pub fn new(len: usize) -> Self {
        let memory: Vec<_> = (0..len + ALIGNMENT)
            .map(|_| AtomicU64::new(u64::MAX))
            .collect();
        let first = memory.as_ptr().align_offset(ALIGNMENT * 8);
        Self { memory, first }
    }

    pub fn cells(&self) -> NativeCells<u64, System> {
        let len = self.memory.len() - ALIGNMENT;
        let address = self.memory[self.first..].as_ptr().cast_mut().cast();
        // SAFETY: `len` words of atomics lie from there on, which live as long as `self`; tests
        // keep it until the controller has stopped.
        unsafe { NativeCells::new(address, len as u64) }
    }
}

/// Memory for an admin queue.
pub struct Admin {
    shared: Words,
    private: Vec<AtomicU64>,
    flags: [AtomicU32; 2],
}

impl Admin {
    pub fn new(shared_bytes: u64) -> Arc<Self> {
        let junk = || AtomicU64::new(u64::MAX);
        Arc::new(Self {
            shared: Words::new(shared_bytes as usize / 8),
            private: (0..ADMIN_PRIVATE_WORDS).map(|_| junk()).collect(),
            flags: [AtomicU32::new(1), AtomicU32::new(0)],
        })
    }
}

impl AdminMemory for Admin {
    fn cells(&self) -> AdminCells {
        let private = self.private.as_ptr().cast_mut().cast();
        let flag = |index: usize| self.flags[index].as_ptr();
        AdminCells {
            shared: self.shared.cells(),
            // SAFETY: the vector's atomics, which live as long as `self`; the driver keeps it.
            private: unsafe { NativeCells::<_, Device>::new(private, ADMIN_PRIVATE_WORDS) },
            // SAFETY: as for private.
            dead: unsafe { NativeCell::new(flag(0)) },
            // SAFETY: as for private.
            abort: unsafe { NativeCell::new(flag(1)) },
        }
    }
}

/// One 32-bit word, as a doorbell.
pub fn doorbell(word: &AtomicU32) -> NativeCell<u32, System> {
    // SAFETY: the word lives as long as the backing that owns it, which the driver keeps.
    unsafe { NativeCell::new(word.as_ptr()) }
}
