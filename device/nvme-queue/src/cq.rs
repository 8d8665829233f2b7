//! Completion: whoever waits drains, and whoever drains finishes.

use nvme_wire::{Cqe, Status};
use warpstore_simt::{Cell, Cells, Device, Order, Platform, System, Team};

use crate::{Queue, Ticket};

/// Bit 0 of the CQ head word: somebody takes CQEs.
const LOCK: u64 = 1;

/// The end of a command, as its drainer reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the submitter brought with the command.
    pub tag: u64,
    /// Status field of the CQE.
    pub status: Status,
    /// Command specific result.
    pub dw0: u32,
    /// Identifier that the command had.
    pub cid: u16,
    /// SQ head that the controller reported.
    pub sqhd: u16,
}

impl Completion {
    /// What `cqe` says of the command that was submitted with `tag`.
    #[inline(always)]
    pub(crate) fn new(tag: u64, cqe: Cqe) -> Self {
        Self {
            tag,
            status: cqe.status(),
            dw0: cqe.dw0,
            cid: cqe.cid,
            sqhd: cqe.sqhd,
        }
    }
}

/// What to do with a completion.
pub trait Finish {
    /// Called by all lanes of the team that drains, each with the completion that it holds, if it
    /// holds one: for those who finish commands together. Collective; it must not submit or drain.
    /// Data that the controller wrote for any of these commands is visible to all lanes. Otherwise each
    /// lane [finishes](Finish::finish) its own.
    #[inline(always)]
    fn finish_all<T: Team>(&self, team: T, completion: Option<Completion>) {
        let _ = team;
        if let Some(completion) = completion {
            self.finish(completion);
        }
    }

    /// Called once for every command, by the lane that holds its CQE, in divergent control flow:
    /// it may use no collective and must not submit or drain. The command's slot is free
    /// already; data that the controller wrote is visible.
    fn finish(&self, completion: Completion);
}

/// CQEs that were counted instead of applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The CID is not one of this queue.
    pub unknown: u64,
    /// The CID is of another lap than the slot.
    pub stale: u64,
    /// The command was already complete.
    pub duplicate: u64,
    /// The CQE names another submission queue.
    pub foreign: u64,
    /// CID of the last of them.
    pub last_cid: u16,
}

/// Index of each counter among the fault words.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Fault {
    Unknown = 0,
    Stale = 1,
    Duplicate = 2,
    Foreign = 3,
}

/// Index of the word with the last offender's CID.
const LAST_CID: u64 = 4;

impl Faults {
    pub(crate) fn read<P: Platform>(words: P::Cells<u64, Device>) -> Self {
        // Ordering: [CQ-6] counters order nothing.
        let word = |fault: Fault| words.at(fault as u64).load(Order::Relaxed);
        Self {
            unknown: word(Fault::Unknown),
            stale: word(Fault::Stale),
            duplicate: word(Fault::Duplicate),
            foreign: word(Fault::Foreign),
            last_cid: words.at(LAST_CID).load(Order::Relaxed) as u16,
        }
    }

    /// All of them together.
    pub fn total(self) -> u64 {
        self.unknown + self.stale + self.duplicate + self.foreign
    }
}

impl<P: Platform, W: Ticket> Queue<P, W> {
    /// Takes the CQEs that have arrived, at most one for each lane of `team`, and finishes their
    /// commands. One step, never waits. Collective; every lane gets the number of CQEs taken, 0
    /// also if somebody else is taking them, or looks for them in a far ring.
    #[inline(always)]
    pub fn drain<T: Team, F: Finish>(self, team: T, finish: &F) -> u32 {
        let leads = team.leads();
        let rank = team.rank();
        // Ordering: [CQ-2] only a hint: the lock is taken by compare-exchange from this value.
        let seen = if leads {
            self.words.cq_head.load(Order::Relaxed)
        } else {
            0
        };
        let seen = team.broadcast(seen);
        if seen & LOCK != 0 {
            return 0;
        }
        // [CQ-7] Whoever looks at a far ring has the lock already.
        let far = self.shape.far;
        if far && !self.lock(team, seen) {
            return 0;
        }
        let head = seen >> 1;
        let index = W::wrap(head.wrapping_add(u64::from(rank)));
        let at = self.ring.slot(index) * 2;
        // Ordering: [CQ-1] the fence below orders it before the rest of the CQE.
        let word1 = self.words.cq.at(at + 1).load(Order::Relaxed);
        let arrived = team.ballot(Cqe::phase_of(word1) == self.ring.phase(index));
        let taken = leading(team.mask(), arrived);
        if taken == 0 {
            if far && leads {
                // Ordering: [CQ-2] as after a drain; [CQ-7] the next one may look.
                self.words.cq_head.store(seen, Order::Release);
            }
            return 0;
        }
        if !far && !self.lock(team, seen) {
            return 0;
        }
        // Ordering: [CQ-1] pairs with the controller's write of the phase: the rest of the CQE
        // and the data of the command were written before it.
        P::fence::<System>(Order::Acquire);
        let mut cqe = Cqe::default();
        if rank < taken {
            cqe = Cqe::from_words(P::load_pair(self.words.cq, at));
        }
        // All have read before the leader gives the entries back.
        team.sync();
        if leads {
            self.give_back(W::wrap(head.wrapping_add(u64::from(taken))));
        }
        let completion = if rank < taken {
            self.take_command(cqe)
        } else {
            None
        };
        finish.finish_all(team, completion);
        taken
    }

    /// Takes the CQ lock, whose word the leader has seen as `seen`, without the lock; whether it did.
    #[inline(always)]
    fn lock<T: Team>(self, team: T, seen: u64) -> bool {
        // Ordering: [CQ-2] pairs with the unlock before: its CQ doorbell comes before ours.
        let locked = team.leads()
            && self
                .words
                .cq_head
                .compare_exchange(seen, seen | LOCK, Order::Acquire)
                .is_ok();
        team.any(locked)
    }

    /// Moves the CQ head to `head` and unlocks; tells the controller if it is due.
    #[inline(always)]
    fn give_back(self, head: u64) {
        // Ordering: [CQ-2] the lock protects it.
        let untold = W::wrap(head.wrapping_sub(self.words.rung.load(Order::Relaxed)));
        if untold >= u64::from(self.shape.cadence) {
            // Ordering: [CQ-4] pairs with the controller's read of the doorbell: the CQEs that it
            // may now overwrite have been read.
            P::fence::<System>(Order::AcqRel);
            P::ring(self.words.cq_doorbell, self.ring.slot(head) as u32);
            self.words.rung.store(head, Order::Relaxed);
        }
        // Ordering: [CQ-2] pairs with the next lock.
        self.words.cq_head.store(head << 1, Order::Release);
    }

    /// The completion of the command that `cqe` completes; none, and the CQE is counted, if it
    /// completes none.
    #[inline(always)]
    pub(crate) fn take_command(self, cqe: Cqe) -> Option<Completion> {
        match self.settle(cqe) {
            Ok(tag) => Some(Completion::new(tag, cqe)),
            Err(fault) => {
                self.count(fault, cqe.cid);
                None
            }
        }
    }

    /// Takes the command of `cqe` from in flight to done and returns its tag. Nothing that the
    /// controller sent is trusted.
    #[inline(always)]
    fn settle(self, cqe: Cqe) -> Result<u64, Fault> {
        if cqe.sqid != self.id {
            return Err(Fault::Foreign);
        }
        let Some(slot) = self.ring.slot_of_cid(cqe.cid) else {
            return Err(Fault::Unknown);
        };
        let word = self.words.state.at(slot);
        // Ordering: [CQ-3] only a hint: the compare-exchange starts from this value.
        let state = word.load(Order::Relaxed);
        if !self.ring.is_in_flight(state) {
            let repeated = self.ring.is_generation(cqe.cid, self.ring.previous(state));
            return Err(if repeated {
                Fault::Duplicate
            } else {
                Fault::Stale
            });
        }
        // [CQ-5] A CQE of an earlier lap must not complete the command that has the slot now.
        if !self.ring.is_generation(cqe.cid, state) {
            return Err(Fault::Stale);
        }
        // Ordering: [CQ-3] before the compare-exchange: after it the slot has another owner.
        let tag = self.words.tag.at(slot).load(Order::Relaxed);
        // Ordering: [CQ-3] pairs with the fence of the next owner of the slot.
        match word.compare_exchange(state, self.ring.next(state), Order::Release) {
            Ok(_) => Ok(tag),
            Err(_) => Err(Fault::Duplicate),
        }
    }

    #[inline(always)]
    fn count(self, fault: Fault, cid: u16) {
        // Ordering: [CQ-6] counters order nothing.
        self.words
            .faults
            .at(fault as u64)
            .fetch_add(1, Order::Relaxed);
        self.words
            .faults
            .at(LAST_CID)
            .store(u64::from(cid), Order::Relaxed);
    }
}

/// Number of lanes of `mask`, from the lowest on, that are in `set` before the first that is not.
#[inline(always)]
fn leading(mask: u32, set: u32) -> u32 {
    let missing = mask & !set;
    // The bits below the lowest missing one; all bits if none is missing.
    let below = missing.wrapping_sub(1) & !missing;
    (mask & below).count_ones()
}

#[cfg(test)]
mod tests {
    use super::leading;

    #[test]
    fn leading_lanes_are_counted_in_rank_order() {
        assert_eq!(leading(1, 0), 0);
        assert_eq!(leading(1, 1), 1);
        assert_eq!(leading(u32::MAX, u32::MAX), 32);
        assert_eq!(leading(0b1011_0100, 0b1001_0100), 2);
        assert_eq!(leading(0b1011_0100, 0b1011_0000), 0);
        assert_eq!(leading(0x8000_0001, 0x8000_0001), 2);
    }
}
