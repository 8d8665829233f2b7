//! The naive protocol, as a baseline: a lock, one entry, one doorbell; a lock, one CQE, one
//! doorbell.
//!
//! Each lane acts for itself. The lock of either ring is bit 0 of the word that holds its index, as
//! in the CQ head of [`Queue`], whose words, states and tags this protocol uses; it has no marks,
//! and nobody waits for a place in line. What is argued for [`Queue`] about slots, the cap and
//! completions holds here too: whoever drains finishes, so it needs no limit on its users.

use nvme_wire::{Cqe, Sqe};
use warpstore_simt::{Cell, Cells, Device, Order, Platform, Solo, System, Team};

use crate::{Finish, Patience, Queue, QueueError, Reason, Ticket, Wide};

/// Bit 0 of the ticket and of the CQ head: somebody has this ring.
const LOCK: u64 = 1;

/// A queue pair of which one lane at a time has the SQ, and one the CQ. In its words, `ticket`
/// holds the next index in bits 1 to 63, and `tail` and the marks are unused.
#[derive(Clone, Copy)]
pub struct Locked<P: Platform, W: Ticket = Wide>(pub Queue<P, W>);

impl<P: Platform, W: Ticket> Locked<P, W> {
    /// As [`Queue::submit`]: the completion goes to whoever drains it.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    #[inline(always)]
    pub fn submit<T: Team, F: Finish>(
        self,
        team: T,
        sqe: Sqe,
        tag: u64,
        finish: &F,
        patience: &Patience<P>,
    ) -> Result<(), QueueError> {
        let result = self.submit_alone(sqe, tag, finish, patience);
        Reason::of_any(team, result, self.0.id())
    }

    #[inline(always)]
    pub(crate) fn submit_alone<F: Finish>(
        self,
        sqe: Sqe,
        tag: u64,
        finish: &F,
        patience: &Patience<P>,
    ) -> Result<(), Reason> {
        let mut attempt = 0;
        loop {
            self.0
                .check(Solo, attempt, patience)
                .map_err(|error| error.reason)?;
            if self.try_enqueue(sqe, tag) {
                return Ok(());
            }
            self.drain_alone(finish);
            P::pause(attempt);
            attempt += 1;
        }
    }

    /// Writes and publishes one entry, if the lock is free and there is room.
    #[inline(always)]
    fn try_enqueue(self, sqe: Sqe, tag: u64) -> bool {
        let Self(queue) = self;
        let word = queue.words.ticket;
        let Some(index) = lock::<P>(word) else {
            return false;
        };
        let before = W::wrap(index.wrapping_sub(u64::from(queue.shape.cap)));
        let room = queue.state(index) == queue.ring.free(index)
            && queue.ring.is_done(before, queue.state(before));
        let next = W::wrap(index.wrapping_add(1));
        if room {
            // Ordering: [SQ-1] as for a ticket's owner: pairs with the completion.
            P::fence::<Device>(Order::Acquire);
            queue.write_entry(index, sqe, tag);
            // Ordering: [LQ-2] pairs with the controller's read of the doorbell: the entry is
            // written before it.
            P::fence::<System>(Order::AcqRel);
            P::ring(queue.words.sq_doorbell, queue.ring.slot(next) as u32);
        }
        // Ordering: [LQ-1] pairs with the next lock: doorbells never go back.
        word.store((if room { next } else { index }) << 1, Order::Release);
        room
    }

    /// As [`Queue::drain`], each lane for itself: at most one CQE a lane.
    #[inline(always)]
    pub fn drain<T: Team, F: Finish>(self, team: T, finish: &F) -> u32 {
        let took = self.drain_alone(finish);
        team.ballot(took).count_ones()
    }

    /// Takes the CQE at the head, if the lock is free and it has arrived.
    #[inline(always)]
    pub(crate) fn drain_alone<F: Finish>(self, finish: &F) -> bool {
        let Self(queue) = self;
        let word = queue.words.cq_head;
        let Some(head) = lock::<P>(word) else {
            return false;
        };
        let at = queue.ring.slot(head) * 2;
        // Ordering: [CQ-1] the fence below orders it before the rest of the CQE.
        let word1 = queue.words.cq.at(at + 1).load(Order::Relaxed);
        if Cqe::phase_of(word1) != queue.ring.phase(head) {
            // Ordering: [LQ-1].
            word.store(head << 1, Order::Release);
            return false;
        }
        // Ordering: [LQ-3] pairs with the controller's write of the phase.
        P::fence::<System>(Order::Acquire);
        let cqe = Cqe::from_words(P::load_pair(queue.words.cq, at));
        let next = W::wrap(head.wrapping_add(1));
        // Ordering: [LQ-3] pairs with the controller's read of the doorbell: the CQE that it may
        // now overwrite has been read.
        P::fence::<System>(Order::AcqRel);
        P::ring(queue.words.cq_doorbell, queue.ring.slot(next) as u32);
        // Ordering: [LQ-1] pairs with the next lock: doorbells never go back.
        word.store(next << 1, Order::Release);
        finish.finish_all(Solo, queue.take_command(cqe));
        true
    }
}

/// Tries to lock; the index beside the lock if it was free.
#[inline(always)]
fn lock<P: Platform>(word: P::Cell<u64, Device>) -> Option<u64> {
    // Ordering: [LQ-1] only a hint; the exchange acquires.
    let seen = word.load(Order::Relaxed);
    // Ordering: [LQ-1] pairs with the unlock before.
    if seen & LOCK == 0
        && word
            .compare_exchange(seen, seen | LOCK, Order::Acquire)
            .is_ok()
    {
        Some(seen >> 1)
    } else {
        None
    }
}
