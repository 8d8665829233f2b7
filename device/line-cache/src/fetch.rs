//! The table, as a fetch changes it: claim, attach, then publish or fail.

use warpstore_simt::{Cell, Cells, Order, Platform};

use crate::clock::{SlotClaim, occupant};
use crate::meta::BUSY;
use crate::{Failure, LineTable, Look, Meta, State};

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
/// Plain data, since whoever drains the completion ends the fetch, not whoever began it. It ends
/// once, by [`LineTable::publish`], [`LineTable::fail`] or [`LineTable::lose`].
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
        let version = meta.version();
        let claim = |found: Meta| {
            let busy = Meta::busy(version, 0).with_pins_of(found);
            // Ordering: [LC-8] pairs with the release of whoever left the line not resident.
            cell.compare_exchange(found.bits(), busy.bits(), Order::Acquire)
        };
        let claimed = match claim(meta) {
            // A late reader, the clock or a lane that counts has passed by: one more attempt.
            Err(found) if meta.same_but_passing(Meta::from_bits(found)) => {
                claim(Meta::from_bits(found))
            }
            first => first,
        };
        claimed.ok().map(|_| Claim { line, version })
    }

    /// Gives a claimed line the slot that its bytes go to. From here on submit the read, or fail
    /// the fetch.
    #[inline(always)]
    pub fn attach(self, claim: Claim, slot: SlotClaim) -> Fetch {
        let Claim { line, version } = claim;
        let slot = slot.into_index();
        // Ordering: relaxed; the release of `publish` carries it to whoever evicts ([LC-4]).
        self.owner
            .at(u64::from(slot))
            .store(occupant(line), Order::Relaxed);
        // Ordering: [LC-5] sets bits of a word that is ours; the doorbell's fence carries it to
        // the finisher.
        self.meta
            .at(line)
            .fetch_or(Meta::slot_bits(slot), Order::Relaxed);
        Fetch {
            line,
            slot,
            version,
        }
    }

    /// The fetch that a line is BUSY with, for a finisher that knows only the line. None if the
    /// line is not BUSY: then the completion was not this line's.
    #[inline(always)]
    pub fn fetch_of(self, line: u64) -> Option<Fetch> {
        // Ordering: relaxed; the completion came after the doorbell, which came after `attach`.
        let meta = Meta::from_bits(self.meta.at(line).load(Order::Relaxed));
        let Look::Busy(meta) = meta.look() else {
            return None;
        };
        Some(Fetch {
            line,
            slot: meta.slot(),
            version: meta.version(),
        })
    }

    /// Makes a fetched line resident. The bytes are in the slot, and the caller has acquired them
    /// (the completion's phase, then a fence). False: the fetch was given up before.
    ///
    /// A resident line starts referenced, so that the clock lets its waiters read it.
    #[inline(always)]
    pub fn publish(self, fetch: Fetch) -> bool {
        // Ordering: [LC-1] release: the bytes, before the word that says they are there.
        self.end(fetch, Meta::valid(fetch.version, fetch.slot))
    }

    /// Ends a fetch that failed: its slot is free again and its waiters see why. False: the fetch
    /// was given up before; the slot is free now all the same.
    ///
    /// The controller is done with the slot: it has completed the command, or never got it. If
    /// that is not known, see [`LineTable::lose`].
    #[inline(always)]
    pub fn fail(self, fetch: Fetch, failure: Failure) -> bool {
        // The slot first, so that whoever sees FAILED and claims again finds it: with one slot
        // there is no other. The word names it a little longer, but while BUSY nobody goes there.
        self.give_back(fetch.slot);
        // Ordering: [LC-8] the fetch's end, before the next claim.
        self.end(fetch, Meta::failed(fetch.version, failure))
    }

    /// Gives a fetch up whose command may still reach the controller: the slot stays taken, and
    /// the version moves on, so that a completion that comes after all names a fetch that is no
    /// more. Waiters look again, and find the failure. False: the completion came first.
    #[inline(always)]
    pub fn lose(self, fetch: Fetch, failure: Failure) -> bool {
        // Ordering: [LC-8] as in `fail`.
        self.end(fetch, Meta::failed(fetch.version.wrapping_add(1), failure))
    }

    /// Turns the word of `fetch` into `after`, whatever the hint is, with the pins that it finds
    /// ([RC-2]). The finisher of a late completion and whoever gives the fetch up may both come here:
    /// one wins ([LC-5]).
    #[inline(always)]
    fn end(self, fetch: Fetch, after: Meta) -> bool {
        let cell = self.meta.at(fetch.line);
        let busy = Meta::busy(fetch.version, fetch.slot);
        let mut expected = busy;
        loop {
            let after = after.with_pins_of(expected);
            match cell.compare_exchange(expected.bits(), after.bits(), Order::Release) {
                Ok(_) => return true,
                // Those who pass by are finite: each costs its lane, or the clock, an operation.
                Err(found) if busy.same_but_passing(Meta::from_bits(found)) => {
                    expected = Meta::from_bits(found);
                }
                Err(_) => return false,
            }
        }
    }

    /// Gives up a claim that got no slot: none was found, or the line was written round the cache.
    #[inline(always)]
    pub fn release_claim(self, claim: Claim) {
        // Ordering: [LC-8], [WB-5] what was done to the line on the SSD, before the next claim.
        self.meta.at(claim.line).fetch_and(!BUSY, Order::Release);
    }
}
