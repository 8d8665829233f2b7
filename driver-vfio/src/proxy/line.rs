//! What may pass of the doorbells of one queue pair.
#![allow(unsafe_code, reason = "doorbells are addresses")]
// UNSAFETY: addresses of doorbells, which the caller of `Line::between` vouches for, become cells.

use std::ptr::with_exposed_provenance_mut;

use nvme_queue::RingAddresses;
use warpstore_simt::{Cell, Native, NativeCell, Order, Platform, System};

use super::Refusal;
use crate::queue_pair::QueuePair;
use crate::shadow::{Doorbell, Shadow, distance};

/// The way of one queue pair's doorbells.
pub(super) struct Line {
    from: [NativeCell<u32, System>; 2],
    to: [Doorbell<Native>; 2],
    entries: u32,
    /// SQ tail and CQ head that were passed on last.
    tail: u32,
    head: u32,
    /// Entries from the head up to the tail: commands that have not been given back.
    ahead: u32,
    /// Something was refused: nothing is passed on any more.
    pub(super) is_cut: bool,
}

impl Line {
    /// From the doorbells of `near` to those of `pair`.
    ///
    /// # Safety
    /// Those of both, in memory and registers, stay as long as this.
    pub(super) unsafe fn between(near: &QueuePair, pair: &QueuePair) -> Self {
        let cell = |address: u64| {
            let word = with_exposed_provenance_mut(address as usize);
            // SAFETY: a doorbell of one of them; the caller vouches for both.
            unsafe { NativeCell::new(word) }
        };
        let registers = |pair: &QueuePair| {
            let RingAddresses {
                sq_doorbell,
                cq_doorbell,
                ..
            } = pair.rings;
            [sq_doorbell, cq_doorbell].map(cell)
        };
        let shadow = |index: usize| {
            let Shadow { value, event } = pair.shadows[index]?;
            Some([cell(value), cell(event)])
        };
        let [sq, cq] = registers(pair);
        let doorbell = |register, index| Doorbell {
            register,
            shadow: shadow(index),
        };
        let to = [doorbell(sq, 0), doorbell(cq, 1)];
        Self::new(registers(near), to, pair.entries)
    }

    fn new(from: [NativeCell<u32, System>; 2], to: [Doorbell<Native>; 2], entries: u32) -> Self {
        Self {
            from,
            to,
            entries,
            tail: 0,
            head: 0,
            ahead: 0,
            is_cut: false,
        }
    }

    /// Passes on what has been rung since the last time; whether there was anything. Else which
    /// doorbell was refused (true: the CQ head), and its value.
    pub(super) fn pass_on(&mut self) -> Result<bool, (bool, u32)> {
        if self.is_cut {
            return Ok(false);
        }
        // Ordering: [DB-1] acquire: the entries come before the tail, and the head is no older than
        // the one that the tail's submitter knew.
        let tail = self.from[0].load(Order::Acquire);
        let head = self.from[1].load(Order::Acquire);
        let worked = (tail, head) != (self.tail, self.head);
        if head != self.head {
            let step = distance(self.head, head, self.entries);
            if head >= self.entries || step > self.ahead {
                return Err((true, head));
            }
            self.ahead -= step;
            self.ring(1, self.head, head);
            self.head = head;
        }
        if tail != self.tail {
            let step = distance(self.tail, tail, self.entries);
            // [DB-1] One entry of a ring stays empty.
            if tail >= self.entries || self.ahead + step > self.entries - 1 {
                return Err((false, tail));
            }
            self.ahead += step;
            self.ring(0, self.tail, tail);
            self.tail = tail;
        }
        Ok(worked)
    }

    fn ring(&self, doorbell: usize, from: u32, to: u32) {
        // Ordering: [DB-1] as for a submitter ([SQ-3]).
        Native::fence::<System>(Order::AcqRel);
        self.to[doorbell].ring(from, to, self.entries);
    }

    pub(super) fn refusal(&self, pair: usize, is_cq: bool, value: u32) -> Refusal {
        let &Self {
            tail,
            head,
            entries,
            ..
        } = self;
        Refusal {
            pair,
            is_cq,
            value,
            tail,
            head,
            entries,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A line of a ring with `entries`, and the words on both sides of it: tail and head each.
    pub(in super::super) fn line(entries: u32) -> (Line, [&'static AtomicU32; 4]) {
        let words = [(); 4].map(|()| &*Box::leak(Box::new(AtomicU32::new(0))));
        // SAFETY: a leaked allocation is valid for ever.
        let cells = words.map(|word| unsafe { NativeCell::new(word.as_ptr()) });
        let [a, b, c, d] = cells;
        let to = [c, d].map(|register| Doorbell {
            register,
            shadow: None,
        });
        (Line::new([a, b], to, entries), words)
    }

    /// What is passed on when tail and head are rung one after the other.
    fn rung(entries: u32, doorbells: &[(u32, u32)]) -> Vec<Result<(u32, u32), (bool, u32)>> {
        let (mut line, [tail, head, sq, cq]) = line(entries);
        let ring = |(new_tail, new_head): &(u32, u32)| {
            tail.store(*new_tail, Ordering::Relaxed);
            head.store(*new_head, Ordering::Relaxed);
            line.pass_on()
                .map(|_| (sq.load(Ordering::Relaxed), cq.load(Ordering::Relaxed)))
        };
        doorbells.iter().map(ring).collect()
    }

    #[test]
    fn what_is_rung_in_order_is_passed_on_round_the_ring() {
        let doorbells = [(3, 0), (3, 2), (1, 2), (1, 3), (2, 3), (2, 2), (1, 2)];
        let passed = doorbells.map(Ok);
        // A ring of 4 holds 3 commands: from head 2, tail 1 is as far as it goes.
        assert_eq!(rung(4, &doorbells), passed);
    }

    #[test]
    fn a_tail_that_goes_back_or_too_far_is_not_passed_on() {
        for (before, tail) in [((3, 0), 2), ((3, 0), 8), ((3, 0), u32::MAX), ((7, 0), 0)] {
            let outcome = rung(8, &[before, (tail, before.1)]);
            assert_eq!(outcome, [Ok(before), Err((false, tail))], "{before:?}");
        }
    }

    #[test]
    fn a_head_beyond_what_was_submitted_is_not_passed_on() {
        for head in [4, 7, 8] {
            let outcome = rung(8, &[(3, 0), (3, 1), (3, head)]);
            assert_eq!(outcome, [Ok((3, 0)), Ok((3, 1)), Err((true, head))]);
        }
    }
}
