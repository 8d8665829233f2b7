//! The way in: ticket, turn, entry, mark, and the tail for all that are marked.

use nvme_wire::Sqe;
use warpstore_simt::{Cell, Order, Platform, System};

use super::{Bam, SET, Turns, clear, set};
use crate::{Patience, Reason, Ticket};

impl<P: Platform, W: Ticket> Bam<P, W> {
    /// Writes an entry and waits until it has been published, by this thread or another.
    #[inline(always)]
    pub(super) fn enqueue(self, sqe: Sqe, patience: &Patience<P>) -> Result<(), Reason> {
        // Ordering: [SQ-7] a ticket is only a number that nobody else has.
        let index = W::wrap(self.words.ticket.fetch_add(1, Order::Relaxed));
        let turn = self.at(self.words.turn, index);
        let mut turns = Turns(0);
        // Ordering: [BQ-1] polled without order; the load below acquires.
        while self.ring.half_laps(turn.load(Order::Relaxed)) != self.ring.free(index) {
            self.wait(&mut turns, patience)?;
        }
        // Ordering: [BQ-1] pairs with the fence of whoever saw that the entry was fetched, and with
        // the last owner's own step.
        turn.load(Order::Acquire);
        self.write_entry(index, sqe);
        // Ordering: [BQ-2] pairs with the tail mover's fence: the entry comes before the mark.
        self.at(self.words.tail_mark, index)
            .store(SET, Order::Release);
        self.publish(index, patience)?;
        // Ordering: [BQ-1] the next owner of the slot marks after we have seen our mark taken.
        turn.fetch_add(1, Order::AcqRel);
        Ok(())
    }

    #[inline(always)]
    fn write_entry(self, index: u64, sqe: Sqe) {
        let at = self.ring.slot(index) * 8;
        let [w0, w1, w2, w3, w4, w5, w6, w7] = sqe.to_words();
        P::store_pair(self.words.sq, at, [w0, w1]);
        P::store_pair(self.words.sq, at + 2, [w2, w3]);
        P::store_pair(self.words.sq, at + 4, [w4, w5]);
        P::store_pair(self.words.sq, at + 6, [w6, w7]);
    }

    /// Until the mark of `index` is taken: whoever gets the lock moves the tail.
    #[inline(always)]
    fn publish(self, index: u64, patience: &Patience<P>) -> Result<(), Reason> {
        let mark = self.at(self.words.tail_mark, index);
        let lock = self.words.tail_lock;
        let mut turns = Turns(0);
        // Ordering: [BQ-2] only whether it is gone: what we do next needs nothing of who took it.
        while mark.load(Order::Relaxed) != 0 {
            // Ordering: [BQ-3] pairs with the unlock before: its tail and its doorbell come before
            // ours.
            if lock.load(Order::Relaxed) == 0 && set(lock) {
                self.move_tail();
                lock.store(0, Order::Release);
            }
            self.wait(&mut turns, patience)?;
        }
        Ok(())
    }

    /// Takes all consecutive marks from the tail on and rings for them. Under the tail's lock.
    #[inline(always)]
    fn move_tail(self) {
        // Ordering: [BQ-3] the lock protects it.
        let tail = self.words.tail.load(Order::Relaxed);
        let mut end = tail;
        loop {
            let next = W::wrap(end.wrapping_add(1));
            // Ordering: [BQ-3] an old head only makes the ring look fuller.
            let head = self.words.sq_head.load(Order::Relaxed);
            if self.ring.slot(next) == self.ring.slot(head) {
                break;
            }
            if !clear(self.at(self.words.tail_mark, end)) {
                break;
            }
            end = next;
        }
        if end == tail {
            return;
        }
        // Ordering: [BQ-2] pairs with the controller's read of the doorbell: all entries whose marks
        // were taken are written before it.
        P::fence::<System>(Order::AcqRel);
        P::ring(self.words.sq_doorbell, self.ring.slot(end) as u32);
        // Ordering: [BQ-3] seen by the next mover through the lock.
        self.words.tail.store(end, Order::Release);
    }
}
