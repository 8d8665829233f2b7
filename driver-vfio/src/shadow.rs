//! Shadow doorbells: a virtual controller takes doorbells from memory, and says which of them it wants
//! to be told by the register as well, which costs it an exit from the guest (Base 5.8, B.5).
//!
//! ```text
//!  tail ─► shadow doorbell ─ [DB-2] full fence ─► event index: is it passed? ─► register
//! ```
//!
//! For queues whose doorbells the CPU rings: those of block I/O, and of kernels behind the proxy. Both
//! pages are laid out as the registers are.

use nvme_wire::regs::doorbell_offset;
use warpstore_simt::{Cell, Cells, NativeCell, NativeCells, Order, Platform, System};

use crate::backing::Iova;
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
        let page = |index| shared.part(index * page_bytes / 8, page_bytes / 8).halves();
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

    /// Zeroes the words of a queue pair that is about to be created, as its registers are.
    pub(crate) fn clear(&self, qid: u16) {
        for word in self.cells(qid).into_iter().flatten() {
            word.store(0, Order::Relaxed);
        }
    }

    /// The words of a queue pair's doorbells, SQ tail and CQ head: value and event index of each.
    pub(crate) fn cells(&self, qid: u16) -> [[NativeCell<u32, System>; 2]; 2] {
        [false, true].map(|is_cq| {
            let at = byte(qid, is_cq, self.dstrd) / 4;
            [self.values.at(at), self.events.at(at)]
        })
    }

    /// Where those lie.
    pub(crate) fn of(&self, qid: u16) -> [Shadow; 2] {
        self.cells(qid).map(|[value, event]| Shadow {
            value: value.address() as u64,
            event: event.address() as u64,
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

/// Entries from `from` up to `to`, forward, whatever the two are.
pub(crate) fn distance(from: u32, to: u32, entries: u32) -> u32 {
    to.wrapping_sub(from).wrapping_add(entries) % entries
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use warpstore_qemu_tests::memory::doorbell;
    use warpstore_simt::Native;

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
        for event in [8, u32::MAX, u32::MAX - 6] {
            assert!(distance(3, event, 8) < 8);
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
