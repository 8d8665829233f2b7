//! The other side of the rings, for tests: its own arithmetic, straight from the specification
//! (Base 3.3.1, 4.2.4), and no code of the crate under test.

use std::collections::HashSet;

use nvme_wire::{Cqe, Sqe, Status};
use warpstore_simt::{Cell, Cells, Order, Platform, System};

/// Queue identifier of all tests.
pub const SQID: u16 = 3;

/// What both sides share.
#[derive(Clone, Copy)]
pub struct Rings<P: Platform> {
    pub sq: P::Cells<u64, System>,
    pub cq: P::Cells<u64, System>,
    pub sq_doorbell: P::Cell<u32, System>,
    pub cq_doorbell: P::Cell<u32, System>,
}

/// The command with this serial number; every word of it that a test can choose depends on it.
pub fn command(serial: u64) -> Sqe {
    Sqe::read(1, serial, serial as u16, serial << 12, !serial)
}

/// A controller that checks what it is told: entries written before their doorbell, each command
/// fetched once, no more in flight than `cap`.
pub struct Controller<P: Platform> {
    rings: Rings<P>,
    depth: u32,
    cap: u32,
    sq_head: u32,
    cq_tail: u32,
    phase: bool,
    seen: HashSet<u64>,
    /// Commands fetched and not yet completed, oldest first.
    pub in_flight: Vec<Sqe>,
}

impl<P: Platform> Controller<P> {
    /// A controller for rings of which `start` entries have gone by.
    pub fn new(rings: Rings<P>, depth: u32, cap: u32, start: u32) -> Self {
        Self {
            rings,
            depth,
            cap,
            sq_head: start % depth,
            cq_tail: start % depth,
            phase: (start / depth).is_multiple_of(2),
            seen: HashSet::new(),
            in_flight: Vec::new(),
        }
    }

    /// Fetches everything up to the SQ doorbell.
    pub fn fetch(&mut self) {
        let tail = self.rings.sq_doorbell.load(Order::Acquire);
        assert!(
            tail < self.depth,
            "SQ doorbell {tail} of a ring of {}",
            self.depth
        );
        while self.sq_head != tail {
            let at = u64::from(self.sq_head) * 8;
            let mut words = [0; 8];
            for pair in 0..4 {
                let [low, high] = P::load_pair(self.rings.sq, at + 2 * pair);
                words[2 * pair as usize] = low;
                words[2 * pair as usize + 1] = high;
            }
            let sqe = Sqe::from_words(words);
            let serial = sqe.slba();
            assert_eq!(
                sqe,
                command(serial).with_cid(sqe.cid()),
                "entry published unwritten"
            );
            assert!(self.seen.insert(serial), "command {serial} fetched twice");
            assert!(
                self.in_flight.iter().all(|other| other.cid() != sqe.cid()),
                "CID in use"
            );
            self.in_flight.push(sqe);
            assert!(
                self.in_flight.len() <= self.cap as usize,
                "more than {} in flight",
                self.cap
            );
            self.sq_head = (self.sq_head + 1) % self.depth;
        }
    }

    /// True if the CQ has a free entry.
    pub fn has_room(&self) -> bool {
        let head = self.rings.cq_doorbell.load(Order::Acquire);
        assert!(
            head < self.depth,
            "CQ doorbell {head} of a ring of {}",
            self.depth
        );
        (self.cq_tail + 1) % self.depth != head
    }

    /// Posts a CQE, phase last. The CQ has room.
    pub fn post(&mut self, sqid: u16, cid: u16, dw0: u32) {
        let cqe = Cqe::new(cid, Status::SUCCESS, self.phase)
            .with_result(dw0)
            .with_sq(sqid, self.sq_head as u16);
        let [low, high] = cqe.to_words();
        let at = u64::from(self.cq_tail) * 2;
        self.rings.cq.at(at).store(low, Order::Relaxed);
        self.rings.cq.at(at + 1).store(high, Order::Release);
        self.cq_tail = (self.cq_tail + 1) % self.depth;
        self.phase ^= self.cq_tail == 0;
    }

    /// Completes the `nth` command in flight with its serial number as result.
    pub fn complete(&mut self, nth: usize) -> Sqe {
        let sqe = self.in_flight.remove(nth);
        self.post(SQID, sqe.cid(), sqe.slba() as u32);
        sqe
    }
}
