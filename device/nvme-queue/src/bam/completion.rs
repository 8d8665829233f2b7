//! The way out: each thread scans for its CQE, and CQEs are given back in order.

use nvme_wire::Cqe;
use warpstore_simt::{Cell, Cells, Device, Order, Platform, System};

use super::{Bam, SET, Turns, clear, half_read, set};
use crate::{Patience, Reason, Ticket};

impl<P: Platform, W: Ticket> Bam<P, W> {
    /// Waits for the CQE of `cid`; its virtual index, and itself.
    #[inline(always)]
    pub(super) fn poll(self, cid: u16, patience: &Patience<P>) -> Result<(u64, Cqe), Reason> {
        let mut turns = Turns(0);
        loop {
            // Ordering: [BQ-5] behind the CQE of the CID's last owner, by the acquire of the CID.
            let head = self.words.cq_head.load(Order::Relaxed);
            if let Some(found) = self.scan(head, cid) {
                return Ok(found);
            }
            self.wait(&mut turns, patience)?;
        }
    }

    /// Looks through the CQEs that have arrived from `head` on.
    #[inline(always)]
    fn scan(self, head: u64, cid: u16) -> Option<(u64, Cqe)> {
        let entries = self.words.cq.len() / 2;
        let mut ahead = 0;
        while ahead < entries - 1 {
            let index = W::wrap(head.wrapping_add(ahead));
            let at = self.ring.slot(index) * 2;
            // Ordering: [BQ-4] the fence below orders it before the rest of the CQE.
            let word1 = self.words.cq.at(at + 1).load(Order::Relaxed);
            if Cqe::phase_of(word1) != self.ring.phase(index) {
                return None;
            }
            let seen = half_read(word1);
            if seen.cid == cid && seen.sqid == self.id {
                // Ordering: [BQ-4] pairs with the controller's write of the phase: the rest of the
                // CQE and the data of the command were written before it.
                P::fence::<System>(Order::Acquire);
                let word0 = self.words.cq.at(at).load(Order::Relaxed);
                return Some((index, Cqe::from_words([word0, word1])));
            }
            ahead += 1;
        }
        None
    }

    /// Gives the CQE at `index` back, after all before it.
    #[inline(always)]
    pub(super) fn dequeue(self, index: u64, patience: &Patience<P>) -> Result<(), Reason> {
        let place = self.at(self.words.place, index);
        let mut turns = Turns(0);
        // Ordering: [BQ-6] pairs with the store of who had the place a lap before: it has seen its
        // mark taken.
        while place.load(Order::Relaxed) != 0 || !set(place) {
            self.wait(&mut turns, patience)?;
        }
        let mark = self.at(self.words.head_mark, index);
        // Ordering: [BQ-4] pairs with the head mover's fence: the CQE is read before it is given
        // back.
        mark.store(SET, Order::Release);
        let lock = self.words.cq_lock;
        let mut turns = Turns(0);
        // Ordering: [BQ-6] only whether it is gone.
        while mark.load(Order::Relaxed) != 0 {
            // Ordering: [BQ-6] pairs with the unlock before. Tried untested, as BaM does it.
            if set(lock) {
                self.move_head();
                lock.store(0, Order::Release);
            }
            self.wait(&mut turns, patience)?;
        }
        let mut turns = Turns(0);
        while self.is_ahead(index) {
            self.wait(&mut turns, patience)?;
        }
        place.store(0, Order::Release);
        Ok(())
    }

    /// Whether the CQ head has not passed `index` yet.
    #[inline(always)]
    fn is_ahead(self, index: u64) -> bool {
        // Ordering: [BQ-5] kept for the next owner of the CID.
        let head = self.words.cq_head.load(Order::Relaxed);
        W::is_forward(W::wrap(index.wrapping_sub(head)))
    }

    /// Takes all consecutive marks from the CQ head on, frees what the controller has fetched and
    /// gives the CQEs back. Under the CQ's lock.
    #[inline(always)]
    fn move_head(self) {
        // Ordering: [BQ-6] the lock protects it.
        let head = self.words.cq_head.load(Order::Relaxed);
        let mut end = head;
        while clear(self.at(self.words.head_mark, end)) {
            end = W::wrap(end.wrapping_add(1));
        }
        if end == head {
            return;
        }
        // Ordering: [BQ-4] the CQEs were read, [BQ-1] and what the controller fetched is free for the
        // next owners of the slots.
        P::fence::<Device>(Order::AcqRel);
        let last = self.ring.slot(end.wrapping_sub(1)) * 2;
        let word1 = self.words.cq.at(last + 1).load(Order::Relaxed);
        self.free_until(half_read(word1).sqhd);
        // Ordering: [BQ-4] pairs with the controller's read of the doorbell: the CQEs that it may now
        // overwrite have been read.
        P::fence::<System>(Order::AcqRel);
        P::ring(self.words.cq_doorbell, self.ring.slot(end) as u32);
        // Ordering: [BQ-6] seen by the next mover through the lock.
        self.words.cq_head.store(end, Order::Release);
    }

    /// Passes on the slots of all entries before the controller's SQ head.
    #[inline(always)]
    fn free_until(self, sqhd: u16) {
        // Ordering: [BQ-6] the lock protects it.
        let head = self.words.sq_head.load(Order::Relaxed);
        // Below the depth, whatever the controller sent.
        let freed = self.ring.slot(u64::from(sqhd).wrapping_sub(head));
        let mut done = 0;
        while done < freed {
            let slot = head.wrapping_add(done);
            // Ordering: [BQ-1] released by the mover's fence.
            self.at(self.words.turn, slot).fetch_add(1, Order::Relaxed);
            done += 1;
        }
        self.words
            .sq_head
            .store(W::wrap(head.wrapping_add(freed)), Order::Relaxed);
    }
}
