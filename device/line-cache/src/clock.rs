//! Who gets a slot: the clock.

use core::num::NonZeroU32;

use warpstore_simt::{Cell, Cells, Order, Platform};

use crate::LineTable;
use crate::meta::{Meta, REF};

/// A slot's word: nobody's.
const FREE: u64 = 0;
/// A slot's word: held by a [`SlotClaim`].
const CLAIMED: u64 = u64::MAX;

/// A slot's word: `line` was attached last.
#[inline(always)]
pub(crate) const fn occupant(line: u64) -> u64 {
    line + 1
}

/// The right to a slot: no line is in it and nobody else will take it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claimed slot is lost until it is attached or freed"]
pub struct SlotClaim(u32);

impl SlotClaim {
    /// Index of the slot.
    #[inline(always)]
    pub const fn slot(&self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn into_index(self) -> u32 {
        self.0
    }
}

impl<P: Platform> LineTable<P> {
    /// Takes a slot: a free one, or that of a line that was not read since the clock last
    /// passed. At most `bound` steps of the hand; None if none of them found a slot.
    ///
    /// A line that is pinned, dirty, being cleaned or being fetched is passed over; a referenced
    /// one loses its mark and stays. So with nothing pinned and nobody else about, two rounds
    /// (`2 * slots`) always find one.
    #[inline(always)]
    pub fn victim(self, bound: u32) -> Option<SlotClaim> {
        let slots = NonZeroU32::new(self.slots())?;
        for _ in 0..bound {
            // Ordering: relaxed; the hand only spreads the searchers.
            let slot = self.hand.fetch_add(1, Order::Relaxed) % slots;
            // Ordering: relaxed; the word only says where to look ([LC-4]).
            let taken = match self.owner.at(u64::from(slot)).load(Order::Relaxed) {
                FREE => self.take_free(slot),
                CLAIMED => false,
                occupant => self.evict(occupant - 1, slot),
            };
            if taken {
                return Some(SlotClaim(slot));
            }
        }
        None
    }

    /// Gives a slot back that was claimed and not used.
    #[inline(always)]
    pub fn free_slot(self, slot: SlotClaim) {
        self.give_back(slot.into_index());
    }

    #[inline(always)]
    pub(crate) fn give_back(self, slot: u32) {
        // Ordering: [LC-7] whatever was written into the slot, before its next user.
        self.owner.at(u64::from(slot)).store(FREE, Order::Release);
    }

    #[inline(always)]
    fn take_free(self, slot: u32) -> bool {
        // Ordering: [LC-7] pairs with `give_back`.
        self.owner
            .at(u64::from(slot))
            .compare_exchange(FREE, CLAIMED, Order::Acquire)
            .is_ok()
    }

    /// Evicts `line` from `slot` if it is there, unused and unmarked.
    #[inline(always)]
    fn evict(self, line: u64, slot: u32) -> bool {
        let cell = self.meta.at(line);
        // Ordering: relaxed; the compare-exchange confirms the word.
        let meta = Meta::from_bits(cell.load(Order::Relaxed));
        if !meta.may_leave(slot) {
            return false;
        }
        if meta.is_referenced() {
            // Ordering: [LC-9] relaxed, whatever the line has become.
            cell.fetch_and(!REF, Order::Relaxed);
            return false;
        }
        // Ordering: [LC-4] acquires the fetch that filled the slot, [LC-6] the unpins; [LC-8]
        // releases what was done to the line. [LC-2] the doorbell's fence orders it before the
        // overwriting.
        if cell
            .compare_exchange(meta.bits(), meta.evicted().bits(), Order::AcqRel)
            .is_err()
        {
            return false;
        }
        // Ordering: relaxed; after the store of `attach`, which the exchange acquired ([LC-4]).
        self.owner
            .at(u64::from(slot))
            .store(CLAIMED, Order::Relaxed);
        true
    }
}
