//! A line table in the machine's own memory.
#![allow(unsafe_code, reason = "handles are made from raw addresses")]
// UNSAFETY: the words are atomics of this struct, which outlives every use of the handles.

use std::sync::atomic::{AtomicU32, AtomicU64};

use line_cache::{LineTable, ReadOrder};
use warpstore_simt::{Device, Native, NativeCell, NativeCells};

/// The words behind a table and its slots' data.
pub struct Words {
    pub meta: Vec<AtomicU64>,
    owner: Vec<AtomicU64>,
    data: Vec<AtomicU64>,
    hand: AtomicU32,
}

impl Words {
    pub fn new(lines: usize, slots: usize, words_per_slot: usize) -> Self {
        Self {
            meta: zeros(lines),
            owner: zeros(slots),
            data: zeros(slots * words_per_slot),
            hand: AtomicU32::new(0),
        }
    }

    pub fn table(&self) -> LineTable<Native> {
        // SAFETY: the hand is an atomic of `self`, which the caller keeps.
        let hand = unsafe { NativeCell::new(self.hand.as_ptr()) };
        LineTable::new(
            handles(&self.meta),
            handles(&self.owner),
            hand,
            ReadOrder::Strict,
            0,
        )
    }

    pub fn data(&self) -> NativeCells<u64, Device> {
        handles(&self.data)
    }
}

fn zeros(len: usize) -> Vec<AtomicU64> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

fn handles(words: &[AtomicU64]) -> NativeCells<u64, Device> {
    let first = words.as_ptr().cast_mut().cast::<u64>();
    // SAFETY: an AtomicU64 is laid out as a u64, may be written through a shared reference, and
    // the slice has `len` of them; the caller keeps the words.
    unsafe { NativeCells::new(first, words.len() as u64) }
}
