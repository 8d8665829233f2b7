//! The doorbell proxy: a thread that passes doorbells on from memory to the BAR.
//!
//! ```text
//!  submitters ─ tail, head ─► page in memory ─ [DB-1] proxy: is it ahead? ─► doorbell in the BAR
//! ```
//!
//! A GPU reaches host memory always, the BAR of an SSD seldom. So kernels ring in a page of pinned
//! host memory, and one CPU copies what changed there. On the way it looks at each value: a tail that
//! is no entry, or further ahead than the ring has room, is not passed on, and neither is anything
//! after it from this queue pair. What a tail is ahead of is the head that the CQ doorbell tells, so a
//! tail that goes back shows, unless it goes back over commands that have completed.
//!
//! Not here: the commands' content. Whoever can write rings can have an SSD do whatever its queues
//! allow.
#![allow(unsafe_code, reason = "doorbells are addresses")]
// UNSAFETY: addresses of doorbells, which the caller of `Proxy::start` vouches for, become cells.

use std::io;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nvme_queue::RingAddresses;
use warpstore_simt::{Cell, Cells, Native, NativeCell, NativeCells, Order, Platform, System};

use crate::queue_pair::QueuePair;
use crate::shadow::{Doorbell, Shadow, distance};

/// Words between two doorbells of the page: each has a cache line of its own.
const STRIDE: u64 = 32;
/// Turns without a doorbell after which the thread sleeps between turns.
const PATIENCE: u32 = 5000;
const NAP: Duration = Duration::from_micros(50);

/// A doorbell that was not passed on, and what the queue pair was at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the doorbell proxy refused {} {value} of queue pair {pair} with {entries} entries: the SQ tail was \
     {tail} and the CQ head {head}; it passes nothing on for this pair any more",
    if *is_cq { "CQ head" } else { "SQ tail" }
)]
pub struct Refusal {
    /// Index of the queue pair, as the proxy was given them.
    pub pair: usize,
    /// Whether it is a CQ head.
    pub is_cq: bool,
    /// The value.
    pub value: u32,
    /// SQ tail that was passed on last.
    pub tail: u32,
    /// CQ head that was passed on last.
    pub head: u32,
    /// Entries of either ring.
    pub entries: u32,
}

/// A running proxy. Dropping it ends the thread; what is rung then stays in the page.
pub struct Proxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    refusals: Mutex<Vec<Refusal>>,
}

impl Proxy {
    /// Words of the page for so many queue pairs.
    pub const fn words(pairs: u64) -> u64 {
        2 * pairs * STRIDE
    }

    /// The queue pairs as submitters use them that ring in `page`: `pairs` with other doorbells.
    ///
    /// # Panics
    /// If the page has fewer than [`Proxy::words`].
    pub fn stand_in(pairs: &[QueuePair], page: NativeCells<u32, System>) -> Vec<QueuePair> {
        assert!(
            page.len() >= Self::words(pairs.len() as u64),
            "the page has room for all doorbells"
        );
        let address = |doorbell| page.at(doorbell * STRIDE).address() as u64;
        let stand_in = |(index, pair): (u64, &QueuePair)| {
            let mut pair = *pair;
            pair.rings.sq_doorbell = address(2 * index);
            pair.rings.cq_doorbell = address(2 * index + 1);
            pair.shadows = None;
            pair
        };
        (0..).zip(pairs).map(stand_in).collect()
    }

    /// Starts to pass doorbells on from `page`, which is zeroed, to `pairs`, which nobody has used.
    ///
    /// # Errors
    /// There is no thread.
    ///
    /// # Panics
    /// As [`Proxy::stand_in`].
    ///
    /// # Safety
    /// The page and the doorbells of the pairs, in memory and registers, stay until this is dropped.
    pub unsafe fn start(pairs: &[QueuePair], page: NativeCells<u32, System>) -> io::Result<Self> {
        let near = Self::stand_in(pairs, page);
        // SAFETY: words of the page, and of the pairs; the caller vouches for both.
        let line = |(near, pair)| unsafe { Line::between(near, pair) };
        let lines: Vec<Line> = near.iter().zip(pairs).map(line).collect();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("doorbell-proxy".into())
            .spawn(move || run(lines, &of_thread))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// What was refused so far: at most one doorbell of each queue pair.
    pub fn refusals(&self) -> Vec<Refusal> {
        let refusals = self.shared.refusals.lock();
        refusals.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nothing in it panics; and if it did, accesses ended at their deadlines.
            let _ = thread.join();
        }
    }
}

/// The life of the thread.
fn run(mut lines: Vec<Line>, shared: &Shared) {
    let mut idle = 0u32;
    while !shared.stop.load(Ordering::Relaxed) {
        let mut worked = false;
        for (index, line) in lines.iter_mut().enumerate() {
            match line.pass_on() {
                Ok(passed) => worked |= passed,
                Err((is_cq, value)) => {
                    line.is_cut = true;
                    let refusal = line.refusal(index, is_cq, value);
                    let refusals = shared.refusals.lock();
                    refusals
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(refusal);
                }
            }
        }
        if worked {
            idle = 0;
        } else if idle < PATIENCE {
            idle += 1;
            // Where there are fewer cores than threads, those who ring and answer need this one.
            thread::yield_now();
        } else {
            thread::sleep(NAP);
        }
    }
}

/// The way of one queue pair's doorbells.
pub(crate) struct Line {
    from: [NativeCell<u32, System>; 2],
    to: [Doorbell<Native>; 2],
    entries: u32,
    /// SQ tail and CQ head that were passed on last.
    tail: u32,
    head: u32,
    /// Entries from the head up to the tail: commands that have not been given back.
    ahead: u32,
    /// Something was refused: nothing is passed on any more.
    is_cut: bool,
}

impl Line {
    /// From the doorbells of `near` to those of `pair`.
    ///
    /// # Safety
    /// Those of both, in memory and registers, stay as long as this.
    pub(crate) unsafe fn between(near: &QueuePair, pair: &QueuePair) -> Self {
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
            let Shadow { value, event } = pair.shadows?[index];
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

    /// From the first doorbells to the second, SQ tail and CQ head each, of rings that nobody has used.
    pub(crate) fn new(
        from: [NativeCell<u32, System>; 2],
        to: [Doorbell<Native>; 2],
        entries: u32,
    ) -> Self {
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
    pub(crate) fn pass_on(&mut self) -> Result<bool, (bool, u32)> {
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

    fn refusal(&self, pair: usize, is_cq: bool, value: u32) -> Refusal {
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
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A line of a ring with `entries`, and the words on both sides of it: tail and head each.
    fn line(entries: u32) -> (Line, [&'static AtomicU32; 4]) {
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

    #[test]
    fn after_a_refusal_nothing_of_the_pair_is_passed_on() {
        let (line, [tail, head, sq, _]) = line(8);
        let shared = Arc::new(Shared::default());
        thread::scope(|scope| {
            let running = scope.spawn(|| run(vec![line], &shared));
            tail.store(5, Ordering::Relaxed);
            while sq.load(Ordering::Relaxed) != 5 {
                thread::yield_now();
            }
            head.store(6, Ordering::Relaxed);
            let refusals = || shared.refusals.lock().unwrap().clone();
            while refusals().is_empty() {
                thread::yield_now();
            }
            head.store(0, Ordering::Relaxed);
            tail.store(6, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
            shared.stop.store(true, Ordering::Relaxed);
            running.join().unwrap();
            assert_eq!(sq.load(Ordering::Relaxed), 5);
            let [refusal] = &refusals()[..] else {
                panic!("one refusal");
            };
            let text = refusal.to_string();
            assert!(text.contains("CQ head 6 of queue pair 0"), "{text}");
        });
    }
}
