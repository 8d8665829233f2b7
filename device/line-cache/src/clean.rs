//! Written lines: how a change is noted, and how it gets to the SSD.
//!
//! A writer pins the line, writes the bytes, says so ([`LineTable::soil`]) and unpins, in this order
//! ([WB-1]). A cleaner ([`LineTable::begin_clean`]) takes DIRTY off and puts CLEANING on, writes the
//! line to the SSD, and takes CLEANING off ([`LineTable::cleaned`]). The line stays resident, and is
//! read and written, all the while; a change meanwhile makes it dirty again, for another write.

use warpstore_simt::{Cell, Cells, Order, Platform};

use crate::meta::{CLEANING, DIRTY, REF};
use crate::{LineTable, Meta};

/// A line that is being written to the SSD. Plain data: whoever drains the completion ends it, by
/// [`LineTable::cleaned`] or [`LineTable::clean_failed`], once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// The line.
    pub line: u64,
    /// The slot that its bytes are in.
    pub slot: u32,
}

impl<P: Platform> LineTable<P> {
    /// Says that the caller has written into the line, which it has pinned. That is a use of the
    /// line, as a read is.
    #[inline(always)]
    pub fn soil(self, line: u64) {
        // Ordering: [WB-1] release: the bytes, before the bit that has them written.
        self.meta.at(line).fetch_or(DIRTY | REF, Order::Release);
    }

    /// Begins a write of `line`, whose word was `meta`. From here on submit the write, from the
    /// slot to the line's place. None: it is not dirty, is being written, or others were faster.
    ///
    /// Pins are no obstacle: who writes while the controller reads makes the line dirty again
    /// afterwards.
    #[inline(always)]
    pub fn begin_clean(self, line: u64, meta: Meta) -> Option<Cleaning> {
        let slot = meta.slot();
        if !meta.may_be_cleaned(slot) {
            return None;
        }
        // Ordering: [WB-1] acquires what was written; the doorbell's fence passes it on to the
        // controller. [WB-3] DIRTY goes before the controller reads, not after.
        self.meta
            .at(line)
            .compare_exchange(meta.bits(), meta.cleaning().bits(), Order::Acquire)
            .ok()
            .map(|_| Cleaning { line, slot })
    }

    /// Whether the write of a line, or a later one of it, is still in flight.
    #[inline(always)]
    pub fn is_cleaning(self, cleaning: Cleaning) -> bool {
        let meta = self.peek(cleaning.line);
        meta.is_cleaning() && meta.slot() == cleaning.slot
    }

    /// Ends a write that succeeded. The controller has read the slot.
    #[inline(always)]
    pub fn cleaned(self, line: u64) {
        // Ordering: [WB-4] the write's end, before an eviction.
        self.meta.at(line).fetch_and(!CLEANING, Order::Release);
    }

    /// Ends a write that failed: the line stays, and is dirty. Nobody who waits for its slot gets it
    /// by trying the same write at once: the clock has to pass it once more.
    #[inline(always)]
    pub fn clean_failed(self, line: u64) {
        let cell = self.meta.at(line);
        // Ordering: [WB-6] relaxed, but in this order, which one word's modifications keep: at no
        // time does the line look clean.
        cell.fetch_or(DIRTY | REF, Order::Relaxed);
        cell.fetch_and(!CLEANING, Order::Release);
    }
}
