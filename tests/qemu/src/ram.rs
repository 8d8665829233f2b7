//! The machine's memory, which QEMU and this process both map.
#![allow(unsafe_code, reason = "cells are made of a mapping")]
// UNSAFETY: words of a shared mapping become cells; their owner keeps the mapping.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, memfd_create};
use warpstore_simt::NativeCells;

use crate::memory::Words;

/// The first byte that is given out: below lie the holes of a PC.
const FIRST: u64 = 1 << 20;
/// What allocations are aligned to: the largest page that the driver takes.
const ALIGNMENT: u64 = 64 * 1024;

/// Memory of a machine, given out once, from the bottom up.
pub(crate) struct Ram {
    file: File,
    mapping: MmapRaw,
    next: AtomicU64,
}

impl Ram {
    pub(crate) fn new(bytes: u64) -> io::Result<Arc<Self>> {
        let file = File::from(memfd_create("warpstore-qemu", MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        let mapping = MmapRaw::map_raw(&file)?;
        Ok(Arc::new(Self {
            file,
            mapping,
            next: AtomicU64::new(FIRST),
        }))
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

    /// `bytes` of memory, all ones at first, so that whatever must be zeroed shows.
    ///
    /// # Panics
    /// If the machine has too little.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: u64) -> Words {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let offset = self.next.fetch_add(bytes, Ordering::Relaxed);
        let all = self.mapping.len() as u64;
        assert!(
            offset + bytes <= all,
            "the machine's {all} bytes are used up"
        );
        let address = self.mapping.as_mut_ptr().wrapping_add(offset as usize);
        // SAFETY: the range lies in the mapping, which the words keep; nobody else got it, and
        // QEMU's accesses are a controller's.
        let cells = unsafe { NativeCells::new(address.cast(), bytes / 8) };
        let words = Words::kept_by(cells, Arc::clone(self) as Arc<_>);
        words.fill(u64::MAX);
        words
    }
}
