//! Shadow doorbells: a virtual controller takes doorbells from memory, and says which of them it wants
//! to be told by the register as well, which costs it an exit from the guest (Base 5.8, B.5).
//!
//! ```text
//!  tail ─► shadow doorbell ─ [DB-2] full fence ─► event index: is it passed? ─► register
//! ```
//!
//! For queues whose doorbells the CPU rings: those of block I/O, and of kernels behind the proxy. The
//! admin queue rings registers alone, as Linux has it. Both pages are laid out as the registers are.
#![allow(
    unsafe_code,
    reason = "doorbells are words of 4 bytes in memory of words of 8"
)]
// UNSAFETY: memory that nobody accesses by larger words meanwhile becomes words of 4 bytes.

use std::cell::Cell as StdCell;

use nvme_wire::Cqe;
use nvme_wire::regs::doorbell_offset;
use warpstore_simt::{Cell, Cells, Native, NativeCell, NativeCells, Order, Platform, System};

use crate::backing::Iova;
use crate::cpu_queue::{MAX_ENTRIES, RING_PAGES};
use crate::memory::{Mapped, QueueCells};

/// Bytes of [`QueueCells::shared`] that shadow doorbells need, in pages of `page_bytes`: the doorbells,
/// then the event indices.
pub(crate) const fn shared_bytes(page_bytes: u64) -> u64 {
    2 * page_bytes
}

/// Addresses of one doorbell's words in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The value, which the controller reads.
    pub value: u64,
    /// The event index, which the controller writes.
    pub event: u64,
}

/// The two pages, while the controller uses them.
pub(crate) struct Shadows {
    values: NativeCells<u32, System>,
    events: NativeCells<u32, System>,
    dstrd: u8,
}

impl Shadows {
    /// The pages in `memory`, which has [`shared_bytes`] and stays as long as the controller is enabled.
    pub(crate) fn new(memory: &Mapped, page_bytes: u64, dstrd: u8) -> Self {
        let QueueCells { shared, .. } = memory.cells();
        let page = |index| {
            let words = shared.part(index * page_bytes / 8, page_bytes / 8);
            // SAFETY: zeroed before it was mapped, and touched by nobody else here since.
            unsafe { words.halves() }
        };
        Self {
            values: page(0),
            events: page(1),
            dstrd,
        }
    }

    /// Whether pages of `page_bytes` have room for queues up to `qid`.
    pub(crate) fn have_room(page_bytes: u64, dstrd: u8, qid: u16) -> bool {
        byte(qid, true, dstrd) < page_bytes
    }

    /// Where the controller finds the pages in `memory`.
    pub(crate) fn iovas(memory: &Mapped, page_bytes: u64) -> [Iova; 2] {
        [memory.iova(), memory.iova().plus(page_bytes)]
    }

    /// The words of a queue pair's doorbells, SQ tail and CQ head: value and event index of each. None
    /// if that is no I/O queue pair with room in the pages.
    pub(crate) fn cells(&self, qid: u16) -> Option<[[NativeCell<u32, System>; 2]; 2]> {
        let last = byte(qid, true, self.dstrd) / 4;
        (qid > 0 && last < self.values.len()).then(|| {
            [false, true].map(|is_cq| {
                let at = byte(qid, is_cq, self.dstrd) / 4;
                [self.values.at(at), self.events.at(at)]
            })
        })
    }
}

/// Place of a doorbell in the page, as among the registers.
fn byte(qid: u16, is_cq: bool, dstrd: u8) -> u64 {
    doorbell_offset(qid, is_cq, dstrd) - doorbell_offset(0, false, dstrd)
}

/// A doorbell as whoever rings it for others sees it.
#[derive(Clone, Copy)]
pub struct Doorbell<P: Platform> {
    /// The register.
    pub register: P::Cell<u32, System>,
    /// The words in memory, if the controller takes doorbells from there: value, event index.
    pub shadow: Option<[P::Cell<u32, System>; 2]>,
}

impl Doorbell<Native> {
    /// Where its words in memory lie, if it has any.
    pub(crate) fn shadow_addresses(&self) -> Option<Shadow> {
        self.shadow.map(|[value, event]| Shadow {
            value: value.address() as u64,
            event: event.address() as u64,
        })
    }

    /// Zeroes its words in memory: a queue that is about to be created begins so, as its registers do.
    pub(crate) fn clear_shadow(&self) {
        for word in self.shadow.into_iter().flatten() {
            word.store(0, Order::Relaxed);
        }
    }
}

impl<P: Platform> Doorbell<P> {
    /// Rings `to`, after `from`, of a ring of `entries` (a power of two). The caller has fenced.
    pub fn ring(&self, from: u32, to: u32, entries: u32) {
        if let Some([value, event]) = self.shadow {
            value.store(to, Order::Relaxed);
            // Ordering: [DB-2] the store comes before the load, or both sides may miss each other.
            P::full_fence::<System>();
            let event = event.load(Order::Relaxed);
            // The event index is the value after which it wants to be told.
            if distance(from, event, entries) >= distance(from, to, entries) {
                return;
            }
        }
        P::ring(self.register, to);
    }
}

/// Entries from `from` up to `to`, forward, whatever the two are. `entries` is a power of two.
pub(crate) fn distance(from: u32, to: u32, entries: u32) -> u32 {
    to.wrapping_sub(from) % entries
}

/// Doorbells of a queue of the driver's own that is rung in memory: near words that the queue rings, and
/// from which its thread passes values on, as they are.
pub(crate) struct Near {
    words: [NativeCell<u32, System>; 2],
    to: [Doorbell<Native>; 2],
    passed: [StdCell<u32>; 2],
    entries: u32,
}

impl Near {
    /// For a new queue pair of `entries` whose rings are the first pages of `memory`. The words lie at
    /// the end of the CQ's page, of which a ring takes a part only.
    pub(crate) fn new(
        memory: &Mapped,
        page_bytes: u64,
        to: [Doorbell<Native>; 2],
        entries: u16,
    ) -> Self {
        let last = RING_PAGES * page_bytes / 8 - 1;
        // SAFETY: nobody else uses the word: the ring ends before it.
        let words = unsafe { memory.cells().shared.part(last, 1).halves() };
        Self {
            words: [words.at(0), words.at(1)],
            to,
            passed: Default::default(),
            entries: entries.into(),
        }
    }

    /// The words to ring: SQ tail, CQ head.
    pub(crate) fn words(&self) -> [NativeCell<u32, System>; 2] {
        self.words
    }

    /// Passes on what was rung since the last time. A wait for room in the ring would not call this, so
    /// no more is submitted than the queue takes at once.
    pub(crate) fn pass_on(&self) {
        for ((word, to), passed) in self.words.iter().zip(&self.to).zip(&self.passed) {
            // Ordering: none: this thread rang, after its fence ([SQ-3], [CQ-4]).
            let value = word.load(Order::Relaxed);
            let before = passed.replace(value);
            if value != before {
                to.ring(before, value, self.entries);
            }
        }
    }
}

const _: () = {
    let ring = (MAX_ENTRIES as usize) << Cqe::SIZE_LOG2;
    assert!(ring < 4096, "the CQ leaves room in the smallest page");
};

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use warpstore_qemu_tests::memory::doorbell;

    use super::*;

    #[test]
    fn the_register_is_rung_when_the_event_index_is_passed() {
        // Ring of 8: from, event index, to, told.
        for (from, event, to, told) in [
            (0, 0, 1, true),
            (0, 7, 1, false),
            (1, 0, 3, false),
            (1, 2, 3, true),
            (1, 3, 3, false),
            (6, 7, 1, true),
            (6, 0, 1, true),
            (6, 1, 1, false),
            (6, 5, 1, false),
            (2, 2, 1, true),
            (2, 1, 1, false),
        ] {
            let words = [7, 9, event].map(AtomicU32::new);
            let [register, value, index] = &words;
            let rung = Doorbell::<Native> {
                register: doorbell(register),
                shadow: Some([doorbell(value), doorbell(index)]),
            };
            rung.ring(from, to, 8);
            let about = format!("{from} to {to}, event {event}");
            assert_eq!(value.load(Ordering::Relaxed), to, "{about}");
            let expected = if told { to } else { 7 };
            assert_eq!(register.load(Ordering::Relaxed), expected, "{about}");
        }
    }

    #[test]
    fn an_event_index_beyond_the_ring_is_taken_as_one_in_it() {
        for (event, same) in [(8, 0), (u32::MAX, 7), (u32::MAX - 6, 1)] {
            assert_eq!(distance(3, event, 8), distance(3, same, 8), "{event}");
        }
    }

    #[test]
    fn pages_have_room_for_as_many_queues_as_the_stride_lets() {
        assert!(Shadows::have_room(4096, 0, 511));
        assert!(!Shadows::have_room(4096, 0, 512));
        assert!(Shadows::have_room(4096, 5, 15));
        assert!(!Shadows::have_room(4096, 5, 16));
    }
}
