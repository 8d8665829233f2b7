//! The doorbell proxy: a thread that passes doorbells on from memory to the BAR.
//!
//! ```text
//!  submitters ─ tail, head ─► page in memory ─ [DB-1] proxy: is it ahead? ─► doorbell in the BAR
//! ```
//!
//! A virtual controller may have its doorbells in memory as well (`shadow`): those come first then, and the
//! BAR only when it asks.
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
// UNSAFETY: the caller of `Proxy::start` vouches for the doorbells that a `Line` takes.

mod line;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use warpstore_simt::{Cells, NativeCells, System};

use crate::queue_pair::QueuePair;
use line::Line;

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
            pair.shadows = [None; 2];
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

#[cfg(test)]
mod tests {
    use super::line::tests::line;
    use super::*;

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
