//! The table, as a fetch changes it: claim, attach, then publish or fail.

use warpstore_simt::{Cell, Cells, Order, Platform};

use crate::clock::{SlotClaim, occupant};
use crate::{Failure, LineTable, Meta, State};

/// The right to fetch a line: its word is BUSY and nobody else changes it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claimed line stays BUSY until it is attached and settled, or released"]
pub struct Claim {
    line: u64,
    version: u16,
}

impl Claim {
    /// The claimed line.
    #[inline(always)]
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// The version that the line will have.
    #[inline(always)]
    pub const fn version(&self) -> u16 {
        self.version
    }
}

/// A line on its way into a slot.
///
/// Plain data, since whoever drains the completion ends the fetch, not whoever began it. It is
/// ended once, by [`LineTable::publish`] or [`LineTable::fail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The line.
    pub line: u64,
    /// The slot that its bytes go to.
    pub slot: u32,
    /// The version that the line will have.
    pub version: u16,
}

impl<P: Platform> LineTable<P> {
    /// Claims a line that is not resident, after a lookup that found `meta`. Of many callers
    /// one wins. None: look again.
    #[inline(always)]
    pub fn claim(self, line: u64, meta: Meta) -> Option<Claim> {
        if !matches!(meta.state(), State::Invalid | State::Failed) {
            return None;
        }
        let cell = self.meta.at(line);
        let busy = Meta::busy(meta.version(), 0).bits();
        // Ordering: [LC-8] pairs with the release of whoever left the line not resident.
        match cell.compare_exchange(meta.bits(), busy, Order::AcqRel) {
            Ok(_) => Some(Claim { line, version: meta.version() }),
            // A late reader or the clock has changed the hint: one more attempt.
            Err(found) if meta.same_but_hint(Meta::from_bits(found)) => cell
                .compare_exchange(found, busy, Order::AcqRel)
                .ok()
                .map(|_| Claim { line, version: meta.version() }),
            Err(_) => None,
        }
    }

    /// Gives a claimed line the slot that its bytes go to. From here on submit the read, or fail
    /// the fetch.
    #[inline(always)]
    pub fn attach(self, claim: Claim, slot: SlotClaim) -> Fetch {
        let Claim { line, version } = claim;
        let slot = slot.into_index();
        // Ordering: relaxed; the release of `publish` carries it to whoever evicts ([LC-4]).
        self.owner.at(u64::from(slot)).store(occupant(line), Order::Relaxed);
        // Ordering: [LC-5] a store, since BUSY is ours; the doorbell's fence carries it to the
        // finisher.
        self.meta.at(line).store(Meta::busy(version, slot).bits(), Order::Relaxed);
        Fetch { line, slot, version }
    }

    /// The fetch that a line is BUSY with, for a finisher that knows only the line. None if the
    /// line is not BUSY: then the completion was not this line's.
    #[inline(always)]
    pub fn fetch_of(self, line: u64) -> Option<Fetch> {
        // Ordering: relaxed; the completion came after the doorbell, which came after `attach`.
        let meta = Meta::from_bits(self.meta.at(line).load(Order::Relaxed));
        (meta.state() == State::Busy).then(|| Fetch {
            line,
            slot: meta.slot(),
            version: meta.version(),
        })
    }

    /// Makes a fetched line resident. The bytes are in the slot, and the caller has acquired
    /// them (the completion's phase, then a fence).
    #[inline(always)]
    pub fn publish(self, fetch: Fetch) {
        let meta = Meta::valid(fetch.version, fetch.slot);
        // Ordering: [LC-1] release: the bytes, before the word that says they are there. A store
        // by [LC-5].
        self.meta.at(fetch.line).store(meta.bits(), Order::Release);
    }

    /// Ends a fetch that failed: its slot is free again and its waiters see why.
    ///
    /// The controller is done with the slot: it has completed the command, or never got it.
    /// (A command that timed out ends neither way: its slot stays claimed.)
    #[inline(always)]
    pub fn fail(self, fetch: Fetch, failure: Failure) {
        // The slot first, so that whoever sees FAILED and claims again finds it: with one slot
        // there is no other. Nothing names the slot meanwhile, as BUSY readers do not look at it.
        self.give_back(fetch.slot);
        let meta = Meta::failed(fetch.version, failure);
        // Ordering: [LC-8] the fetch's end, before the next claim. A store by [LC-5].
        self.meta.at(fetch.line).store(meta.bits(), Order::Release);
    }

    /// Gives up a claim that found no slot. The access goes round the cache.
    #[inline(always)]
    pub fn release_claim(self, claim: Claim) {
        let meta = Meta::invalid(claim.version);
        // Ordering: [LC-8] passes on what the claim acquired. A store by [LC-5].
        self.meta.at(claim.line).store(meta.bits(), Order::Release);
    }
}
