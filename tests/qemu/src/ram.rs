//! The machine's memory, which QEMU and this process both map.
#![allow(unsafe_code, reason = "cells are made of a mapping")]
// UNSAFETY: words of a shared mapping become cells; their owner keeps the mapping.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, memfd_create};
use warpstore_simt::NativeCells;

use crate::memory::{Arena, Words};

/// The first byte that is given out: below lie the holes of a PC.
const FIRST: u64 = 1 << 20;

/// Memory of a machine.
pub(crate) struct Ram {
    file: File,
    mapping: Arc<MmapRaw>,
    arena: Arena,
}

impl Ram {
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let file = File::from(memfd_create("warpstore-qemu", MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        let mapping = Arc::new(MmapRaw::map_raw(&file)?);
        // SAFETY: the mapping, which the arena keeps, is this long and aligned to a page; nobody
        // makes references to it, and QEMU's accesses are a controller's.
        let cells = unsafe { NativeCells::new(mapping.as_mut_ptr().cast(), bytes / 8) };
        let usable = cells.part(FIRST / 8, (bytes - FIRST) / 8);
        Ok(Self {
            file,
            arena: Arena::new(usable, mapping.clone()),
            mapping,
        })
    }

    /// Where another process opens the memory. It has no name, so it cannot outlive us both.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Its address in the machine, if `len` bytes from `address` on are all in this memory.
    pub(crate) fn in_machine(&self, address: u64, len: u64) -> Option<u64> {
        let offset = address.checked_sub(self.mapping.as_ptr().expose_provenance() as u64)?;
        let bytes = self.mapping.len() as u64;
        (offset <= bytes && len <= bytes - offset).then_some(offset)
    }

    /// `bytes` of memory, all ones at first.
    ///
    /// # Panics
    /// If the machine has too little.
    pub(crate) fn allocate(&self, bytes: u64) -> Words {
        self.arena.allocate(bytes)
    }
}
