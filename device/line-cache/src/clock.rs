//! Who gets a slot: the clock.

use core::num::NonZeroU32;

use warpstore_simt::{Cell, Cells, Order, Platform};

use crate::meta::{Meta, REF};
use crate::{Cleaning, LineTable};

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

/// What the clock's hand found.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claimed slot or a begun cleaning is the caller's to go on with"]
pub enum Found {
    /// A slot, now the caller's.
    Slot(SlotClaim),
    /// A line that is to be written before its slot can be had; the caller submits the write.
    Dirty(Cleaning),
    /// Nothing within the bound.
    Nothing,
}

impl Found {
    /// The slot, if it is one.
    pub fn slot(self) -> Option<SlotClaim> {
        match self {
            Self::Slot(slot) => Some(slot),
            Self::Dirty(_) | Self::Nothing => None,
        }
    }
}

impl<P: Platform> LineTable<P> {
    /// Takes a slot: a free one, or that of a line that was not read since the clock last
    /// passed. At most `bound` steps of the hand. If the line there is dirty, its cleaning is begun
    /// instead.
    ///
    /// A line that is pinned, being cleaned or being fetched is passed over; a referenced
    /// one loses its mark and stays. So with nothing pinned, nothing dirty and nobody else about,
    /// two rounds (`2 * slots`) always find one.
    #[inline(always)]
    pub fn victim(self, bound: u32) -> Found {
        let Some(slots) = NonZeroU32::new(self.slots()) else {
            return Found::Nothing;
        };
        for _ in 0..bound {
            // Ordering: relaxed; the hand only spreads the searchers.
            let slot = self.hand.fetch_add(1, Order::Relaxed) % slots;
            // Ordering: relaxed; the word only says where to look ([LC-4]).
            match self.owner.at(u64::from(slot)).load(Order::Relaxed) {
                FREE if self.take_free(slot) => return Found::Slot(SlotClaim(slot)),
                FREE | CLAIMED => {}
                occupant => match self.visit(occupant - 1, slot) {
                    Found::Nothing => {}
                    found => return found,
                },
            }
        }
        Found::Nothing
    }

    /// The line that was attached to `slot` last, if the slot is not free or claimed. A hint: by
    /// now it may have left.
    #[inline(always)]
    pub fn occupant_of(self, slot: u32) -> Option<u64> {
        // Ordering: relaxed; the line's own word decides.
        match self.owner.at(u64::from(slot)).load(Order::Relaxed) {
            FREE | CLAIMED => None,
            occupant => Some(occupant - 1),
        }
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

    /// The hand at `slot`, where `line` was attached last: evicts it or begins its cleaning, if it
    /// is there, unused and unmarked.
    #[inline(always)]
    fn visit(self, line: u64, slot: u32) -> Found {
        let cell = self.meta.at(line);
        // Ordering: relaxed; the compare-exchange confirms the word.
        let meta = Meta::from_bits(cell.load(Order::Relaxed));
        let dirty = meta.may_be_cleaned(slot) && meta.pins() == 0;
        if !dirty && !meta.may_leave(slot) {
            return Found::Nothing;
        }
        if meta.is_referenced() {
            // Ordering: [LC-9] relaxed, whatever the line has become.
            cell.fetch_and(!REF, Order::Relaxed);
            return Found::Nothing;
        }
        if dirty {
            return self
                .begin_clean(line, meta)
                .map_or(Found::Nothing, Found::Dirty);
        }
        self.evict(line, meta).map_or(Found::Nothing, Found::Slot)
    }

    /// Takes the slot of a line whose cleaning has ended, wherever the hand is. None: the line is in
    /// use again, changed again, or gone.
    #[inline(always)]
    pub fn take_cleaned(self, cleaning: Cleaning) -> Option<SlotClaim> {
        // Ordering: relaxed; the compare-exchange confirms the word.
        let meta = Meta::from_bits(self.meta.at(cleaning.line).load(Order::Relaxed));
        if !meta.may_leave(cleaning.slot) {
            return None;
        }
        self.evict(cleaning.line, meta)
    }

    /// Evicts `line`, whose word was `meta` and may leave.
    #[inline(always)]
    fn evict(self, line: u64, meta: Meta) -> Option<SlotClaim> {
        let slot = meta.slot();
        // Ordering: [LC-4] acquires the fetch that filled the slot, [LC-6] the unpins, [WB-4] the
        // end of its last write; [LC-8] releases what was done to the line. [LC-2] the doorbell's
        // fence orders it before the overwriting.
        self.meta
            .at(line)
            .compare_exchange(meta.bits(), meta.evicted().bits(), Order::AcqRel)
            .ok()?;
        // Ordering: relaxed; after the store of `attach`, which the exchange acquired ([LC-4]).
        self.owner
            .at(u64::from(slot))
            .store(CLAIMED, Order::Relaxed);
        Some(SlotClaim(slot))
    }
}
