//! Submission: one ticket for a group, ordered publication without a lock.

use nvme_wire::Sqe;
use warpstore_simt::{Cell, Cells, Device, Order, Platform, System, Team};

use crate::{EMPTY, Finish, Patience, Queue, QueueError, Reason, Ticket};

/// Lanes that are published together: `lanes` tickets from `start` on.
#[derive(Clone, Copy)]
struct Group {
    start: u64,
    lanes: u32,
}

impl<P: Platform, W: Ticket> Queue<P, W> {
    /// Submits one command for every lane of `team`. Collective; the result is the same for all.
    ///
    /// The CID of `sqe` is chosen here. `tag` comes back with the completion, which is handed to
    /// whoever drains it, here or elsewhere; while it waits, this call drains too and so calls
    /// `finish`, which must not submit. More lanes than [`cap`](crate::Shape::cap) go in several
    /// rounds.
    ///
    /// # Errors
    /// If the queue is dead, or if patience ends, which makes it dead. Lanes of earlier rounds
    /// have then been submitted, and the others may reach the controller still: see
    /// [`QueueError`].
    #[inline(always)]
    pub fn submit<T: Team, F: Finish>(
        self,
        team: T,
        sqe: Sqe,
        tag: u64,
        finish: &F,
        patience: &Patience<P>,
    ) -> Result<(), QueueError> {
        let lanes = team.size();
        let rank = team.rank();
        let mut first = 0;
        while first < lanes {
            let left = lanes - first;
            let group = self.take_tickets(
                team,
                if left < self.shape.cap {
                    left
                } else {
                    self.shape.cap
                },
            );
            let place = rank.wrapping_sub(first);
            let index = W::wrap(group.start.wrapping_add(u64::from(place)));
            let mine = place < group.lanes;
            self.wait_for_slots(team, index, mine, finish, patience)?;
            if mine {
                self.write_entry(index, sqe, tag);
            }
            // The leader publishes for all, so their entries come before what it does next.
            team.sync();
            self.publish(team, group, finish, patience)?;
            first += group.lanes;
        }
        Ok(())
    }

    #[inline(always)]
    fn take_tickets<T: Team>(self, team: T, lanes: u32) -> Group {
        let mut start = 0;
        if team.leads() {
            let ticket = self.words.ticket;
            // Ordering: [SQ-7] a ticket is only a number that nobody else has.
            start = W::wrap(ticket.fetch_add(u64::from(lanes), Order::Relaxed));
        }
        Group {
            start: team.broadcast(start),
            lanes,
        }
    }

    /// Waits until the slot of every lane in `mine` is free for its ticket, and until the cap
    /// allows the ticket.
    #[inline(always)]
    fn wait_for_slots<T: Team, F: Finish>(
        self,
        team: T,
        index: u64,
        mine: bool,
        finish: &F,
        patience: &Patience<P>,
    ) -> Result<(), QueueError> {
        let before = W::wrap(index.wrapping_sub(u64::from(self.shape.cap)));
        let mut attempt = 0;
        loop {
            // Ordering: [SQ-6] both are polled without order; the fence below acquires them.
            let ready = !mine
                || (self.state(index) == self.ring.free(index)
                    && self.ring.is_done(before, self.state(before)));
            let all_ready = team.all(ready);
            self.check(team, attempt, patience)?;
            if all_ready {
                break;
            }
            self.drain(team, finish);
            P::pause(attempt);
            attempt += 1;
        }
        // Ordering: [SQ-1] pairs with the completion's compare-exchange: whoever completed the
        // command before us in this slot has read its tag, and the controller its SQE.
        P::fence::<Device>(Order::Acquire);
        Ok(())
    }

    /// Records the command and writes its entry. Nobody reads either before publication.
    #[inline(always)]
    pub(crate) fn write_entry(self, index: u64, sqe: Sqe, tag: u64) {
        let slot = self.ring.slot(index);
        // Ordering: [SQ-3] published with the entry; its drainer gets here through the CQE.
        self.words.tag.at(slot).store(tag, Order::Relaxed);
        self.words
            .state
            .at(slot)
            .store(self.ring.in_flight(index), Order::Relaxed);
        let [w0, w1, w2, w3, w4, w5, w6, w7] = sqe.with_cid(self.ring.cid(index)).to_words();
        let at = slot * 8;
        P::store_pair(self.words.sq, at, [w0, w1]);
        P::store_pair(self.words.sq, at + 2, [w2, w3]);
        P::store_pair(self.words.sq, at + 4, [w4, w5]);
        P::store_pair(self.words.sq, at + 6, [w6, w7]);
    }

    /// Waits until the group's entries have been published, by its leader or by a predecessor.
    #[inline(always)]
    fn publish<T: Team, F: Finish>(
        self,
        team: T,
        group: Group,
        finish: &F,
        patience: &Patience<P>,
    ) -> Result<(), QueueError> {
        let mut attempt = 0;
        loop {
            let mut published = false;
            if team.leads() {
                published = self.hop(group, attempt > 0);
            }
            if team.any(published) {
                return Ok(());
            }
            self.check(team, attempt + 1, patience)?;
            self.drain(team, finish);
            P::pause(attempt);
            attempt += 1;
        }
    }

    /// One look at `tail`. Publishes this group and its marked successors if it is their turn;
    /// marks this group, once, if it is not. True if the group has been published.
    #[inline(always)]
    fn hop(self, group: Group, marked: bool) -> bool {
        // Ordering: [SQ-4] pairs with the store of the publisher before us: its doorbell and the
        // marks that it cleared come before ours.
        let tail = self.words.tail.load(Order::Acquire);
        let until_turn = W::wrap(group.start.wrapping_sub(tail));
        let end = W::wrap(group.start.wrapping_add(u64::from(group.lanes)));
        if until_turn == 0 {
            if marked {
                // Ordering: [SQ-5] seen by later publishers through `tail`.
                self.mark(group.start).store(EMPTY, Order::Relaxed);
            }
            self.publish_until(self.take_marks(end));
            return true;
        }
        // [SQ-9] Waiting unless `tail` has passed it, however far `tail` is behind: the publisher
        // before may have rung, its commands be done and their slots ours, and `tail` still wait
        // for its store.
        let waiting = W::is_forward(until_turn);
        if waiting && !marked {
            // Ordering: [SQ-2] pairs with the publisher's fence: our entries come before it.
            self.mark(group.start).store(end, Order::Release);
        }
        !waiting
    }

    /// Takes and clears the marks of all groups that follow each other from `end` on; the end of
    /// the last one.
    #[inline(always)]
    fn take_marks(self, mut end: u64) -> u64 {
        loop {
            let mark = self.mark(end);
            // Ordering: [SQ-2] the fence before the doorbell makes it an acquire.
            let next = mark.load(Order::Relaxed);
            if next == EMPTY {
                return end;
            }
            // Ordering: [SQ-5] seen by later publishers through `tail`, and by the next group
            // that marks here through the completion of this one.
            mark.store(EMPTY, Order::Relaxed);
            end = next;
        }
    }

    #[inline(always)]
    fn publish_until(self, end: u64) {
        // Ordering: [SQ-3] pairs with the controller's read of the doorbell: all entries up to
        // `end` are written before it.
        P::fence::<System>(Order::AcqRel);
        P::ring(self.words.sq_doorbell, self.ring.slot(end) as u32);
        // Ordering: [SQ-4] pairs with the next publisher's load, so doorbells never go back.
        self.words.tail.store(end, Order::Release);
    }

    #[inline(always)]
    fn mark(self, index: u64) -> P::Cell<u64, Device> {
        self.words.mark.at(self.ring.slot(index))
    }

    /// Ends the wait of all lanes if the queue is dead or patience is exhausted. In the first
    /// turn only the queue is asked: the clock and the host's word are slower than a free slot.
    #[inline(always)]
    pub(crate) fn check<T: Team>(
        self,
        team: T,
        attempt: u32,
        patience: &Patience<P>,
    ) -> Result<(), QueueError> {
        let mut code = 0;
        if team.leads() {
            if self.is_dead() {
                code = Reason::Dead as u32;
            } else if attempt > 0
                && let Some(reason) = patience.exhausted()
            {
                // Our tickets will never be published, so nobody after us will be either.
                self.kill();
                code = reason as u32;
            }
        }
        match Reason::from_code(team.broadcast(code)) {
            None => Ok(()),
            Some(reason) => Err(QueueError {
                queue: self.id,
                reason,
            }),
        }
    }
}
