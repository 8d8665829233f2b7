//! BaM's protocol, as a baseline: every thread submits and completes its own command.
//!
//! ```text
//!  a thread                    words in GPU memory                   rings, doorbells
//!  submit ── take ───────────► cid[c]         a CID
//!     ├─ fetch_add 1 ────────► ticket
//!     ├─ wait: my turn ──────► turn[slot]     2·lap
//!     ├─ SQE ───────────────────────────────────────────────────────► SQ[slot]
//!     ├─ mark ───────────────► tail_mark[slot]
//!     ├─ until it is taken: try-lock, take all marks from the tail on, fence ──► SQ tail doorbell
//!     ├─ fetch_add 1 ────────► turn[slot]     2·lap + 1
//!     ├─ scan for my CID ◄────────────────────────────────────────── CQ[head..]
//!     ├─ take the place ─────► place[slot];  mark ──► head_mark[slot]
//!     ├─ until it is taken: try-lock, take all marks from the head on, fence,
//!     │     fetch_add 1 ─────► turn[] of all before the last CQE's SQ head ────► CQ head doorbell
//!     └─ until head is past: place[slot], cid[c] free
//! ```
//!
//! The algorithm is the published one (Qureshi et al., ASPLOS '23, arXiv 2203.04910) as its code
//! has it: the same atomics in the same order, as many for every command, each word on 32 bytes
//! of its own, the tail's lock tested before it is tried and the head's not. It differs where the
//! code is wrong or not defined, at next to no cost:
//!
//! - Indices have 64 bits; with 32 a queue stands still after 2^32 commands.
//! - Three atomics order memory by accident: one on the SQ's `head_lock`, which nobody uses, one on
//!   the CQ's `tail`, which nobody reads, one on `sq.head`, which a lock protects. In their places
//!   stand fences, which also order SQE, CQE and data; whoever moves the head needs one fence more.
//! - Locks are taken and marks cleared by compare-exchange, where BaM has `fetch_or` and `exchange`. It
//!   is one atomic too, and one that fails changes nothing, so that loom can follow it.
//! - There are eight CIDs an entry, not 65536 a queue: as rarely taken, and less memory.
//! - Statuses are reported; waits have a deadline, asked about once in 64 turns.
//!
//! # What holds, and why
//!
//! **Admission** ([BQ-7])**.** At most `depth − 1` threads may use a queue at the same time. Each has one command
//! at a time, so between the SQ head and a thread's ticket lie at most `depth − 2` tickets; its slot is
//! free, or being freed by a thread that waits for nothing. The tail never meets the head, nor the
//! CQ its own. With more threads the lanes of a warp that hold slots may wait, where the GPU's
//! compiler lets lanes meet, for lanes that wait for slots: the queue stands still. So the host
//! refuses such launches; here nothing enforces it but the deadline.
//!
//! **Completions in order.** A thread leaves when the CQ head has passed its CQE, so it waits for the
//! owners of the CQEs before. Each of them has its CQE too, and marks it without waiting for anybody
//! but the owner of the same place a lap before, who was there earlier.
//!
//! # What this protocol does not do
//!
//! It drains nobody else's command: [`Bam::submit`] returns when its own is finished. A CQE that
//! belongs to nobody (a duplicate, an unknown CID) is not taken; the queue stands still behind it
//! until the deadline kills it. There are no generations: should somebody own the CID of a duplicate by
//! then, the CQE is taken for that one's, as in the original.

mod completion;
mod submission;

use warpstore_simt::{Cell, Cells, Device, Order, Platform, Solo, System, Team};

use nvme_wire::{Cqe, Sqe};

use crate::ring::Ring;
use crate::{Completion, Finish, Patience, QueueError, Reason, Shape, Ticket, Wide};

/// Words from one element of an array to the next: 32 bytes, so that neighbours do not contend.
pub const BAM_STRIDE: u64 = 4;

/// Command identifiers for each entry of a ring: with all entries in use, seven of eight are free.
pub const BAM_CIDS: u64 = 8;

/// Turns of a wait between two looks at the clock and the host's word.
const TURNS_BETWEEN_CHECKS: u32 = 64;

/// A word that is set: locked, marked, taken.
const SET: u64 = 1;

/// Every word of a queue pair with this protocol; all are 0 at the start. The arrays have an element
/// for each entry, [`BAM_STRIDE`] words apart.
#[derive(Clone, Copy)]
pub struct BamWords<P: Platform> {
    /// Next virtual index to hand out.
    pub ticket: P::Cell<u64, Device>,
    /// Next CID to try.
    pub cid_ticket: P::Cell<u64, Device>,
    /// Every command before this index has been published.
    pub tail: P::Cell<u64, Device>,
    /// Not 0 while somebody moves the tail.
    pub tail_lock: P::Cell<u64, Device>,
    /// The controller is known to have fetched every entry before this index. Belongs to whoever
    /// moves the CQ head.
    pub sq_head: P::Cell<u64, Device>,
    /// Virtual index of the first CQE that has not been given back.
    pub cq_head: P::Cell<u64, Device>,
    /// Not 0 while somebody moves the CQ head.
    pub cq_lock: P::Cell<u64, Device>,
    /// Not 0 once the queue has been given up. Never goes back.
    pub dead: P::Cell<u32, Device>,
    /// Half laps of each slot: the owner adds one when its command is published, and whoever sees
    /// that it was fetched another one.
    pub turn: P::Cells<u64, Device>,
    /// Not 0: the entry is written and not published.
    pub tail_mark: P::Cells<u64, Device>,
    /// Not 0: the CQE was read and not given back.
    pub head_mark: P::Cells<u64, Device>,
    /// Not 0: somebody gives this CQE back.
    pub place: P::Cells<u64, Device>,
    /// Not 0: the CID is in use. [`BAM_CIDS`] an entry.
    pub cid: P::Cells<u64, Device>,
    /// Submission ring, 8 words an entry.
    pub sq: P::Cells<u64, System>,
    /// Completion ring, 2 words an entry.
    pub cq: P::Cells<u64, System>,
    /// SQ tail doorbell.
    pub sq_doorbell: P::Cell<u32, System>,
    /// CQ head doorbell.
    pub cq_doorbell: P::Cell<u32, System>,
}

/// A queue pair whose threads each submit, await and dequeue their own command.
#[derive(Clone, Copy)]
pub struct Bam<P: Platform, W: Ticket = Wide> {
    words: BamWords<P>,
    ring: Ring<W>,
    id: u16,
}

/// How many turns a wait has taken.
struct Turns(u32);

impl<P: Platform, W: Ticket> Bam<P, W> {
    /// The queue pair `id` on these words, whose arrays are as long as `shape` asks for. Of the
    /// shape only the depth counts: there is no cap but the number of threads.
    #[inline(always)]
    pub fn new(words: BamWords<P>, shape: Shape, id: u16) -> Self {
        Self {
            words,
            ring: Ring::new(shape.log2_depth),
            id,
        }
    }

    /// Most threads that may use a queue pair of this shape at the same time.
    pub const fn most_threads(shape: Shape) -> u32 {
        shape.depth() as u32 - 1
    }

    /// Does one command for every lane of `team`, each lane for itself, and finishes it.
    /// Collective only in its result, which is the same for all.
    ///
    /// The CID of `sqe` is chosen here. At most [`Bam::most_threads`] threads may be in this call
    /// for one queue.
    ///
    /// # Errors
    /// If the queue is dead, or if a lane's patience ends, which makes it dead. Commands of the
    /// other lanes may have been finished, or may reach the controller still: see [`QueueError`].
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
        Reason::of_any(team, result, self.id)
    }

    /// The command of one lane, from its CID to its end.
    #[inline(always)]
    pub(crate) fn submit_alone<F: Finish>(
        self,
        sqe: Sqe,
        tag: u64,
        finish: &F,
        patience: &Patience<P>,
    ) -> Result<(), Reason> {
        let cid = self.enter(sqe, patience)?;
        self.leave(cid, tag, finish, patience)
    }

    /// The first half of [`Bam::submit`] for one lane: takes a CID, which it returns, and publishes
    /// the command.
    ///
    /// # Errors
    /// As [`Bam::submit`].
    #[inline(always)]
    pub fn enter(self, sqe: Sqe, patience: &Patience<P>) -> Result<u16, Reason> {
        // Ordering: [SQ-8] the word carries no data.
        if self.words.dead.load(Order::Relaxed) != 0 {
            return Err(Reason::Dead);
        }
        let cid = self.take_cid(patience)?;
        self.enqueue(sqe.with_cid(cid), patience)?;
        Ok(cid)
    }

    /// The second half: waits for the command that has `cid`, gives its CQE and its CID back, and
    /// finishes it.
    ///
    /// # Errors
    /// As [`Bam::submit`].
    #[inline(always)]
    pub fn leave<F: Finish>(
        self,
        cid: u16,
        tag: u64,
        finish: &F,
        patience: &Patience<P>,
    ) -> Result<(), Reason> {
        let (index, cqe) = self.poll(cid, patience)?;
        self.dequeue(index, patience)?;
        // Ordering: [BQ-5] pairs with the next owner's acquire: it must not find this CQE.
        self.cid(u64::from(cid)).store(0, Order::Release);
        finish.finish_all(Solo, Some(Completion::new(tag, cqe)));
        Ok(())
    }

    /// A CID that nobody has.
    #[inline(always)]
    fn take_cid(self, patience: &Patience<P>) -> Result<u16, Reason> {
        let mut turns = Turns(0);
        loop {
            // Ordering: [SQ-7] only where to look.
            let next = self.words.cid_ticket.fetch_add(1, Order::Relaxed);
            let cid = next & (self.words.cid.len() / BAM_STRIDE - 1);
            // Ordering: [BQ-5] acquire pairs with the release of the last owner.
            if set(self.cid(cid)) {
                return Ok(cid as u16);
            }
            self.wait(&mut turns, patience)?;
        }
    }

    /// One turn of a wait that is not over. Kills the queue if it has lasted too long.
    #[inline(always)]
    fn wait(self, turns: &mut Turns, patience: &Patience<P>) -> Result<(), Reason> {
        if turns.0 % TURNS_BETWEEN_CHECKS == TURNS_BETWEEN_CHECKS - 1 {
            // Ordering: [SQ-8] the word carries no data.
            if self.words.dead.load(Order::Relaxed) != 0 {
                return Err(Reason::Dead);
            }
            if let Some(reason) = patience.exhausted() {
                // Whoever comes after us in either ring waits for us.
                self.words.dead.store(1, Order::Relaxed);
                return Err(reason);
            }
        }
        P::pause(turns.0);
        turns.0 = turns.0.wrapping_add(1);
        Ok(())
    }

    #[inline(always)]
    fn cid(self, cid: u64) -> P::Cell<u64, Device> {
        self.words.cid.at(cid * BAM_STRIDE)
    }

    /// The element of `array` for the slot of `index`.
    #[inline(always)]
    fn at(self, array: P::Cells<u64, Device>, index: u64) -> P::Cell<u64, Device> {
        array.at(self.ring.slot(index) * BAM_STRIDE)
    }
}

/// Sets a word that is clear, with acquire; false if it was set.
#[inline(always)]
fn set<C: Cell<u64>>(word: C) -> bool {
    // Ordering: [BQ-3] and [BQ-6] for locks and places, [BQ-5] for CIDs: pairs with the release of
    // whoever cleared it.
    word.compare_exchange(0, SET, Order::Acquire).is_ok()
}

/// Clears a word that is set, unordered; false if it was clear.
#[inline(always)]
fn clear<C: Cell<u64>>(word: C) -> bool {
    // Ordering: [BQ-2] and [BQ-4] the mover's fence makes it an acquire.
    word.compare_exchange(SET, 0, Order::Relaxed).is_ok()
}

/// The CQE of ring word 1, with nothing in its first word.
#[inline(always)]
fn half_read(word1: u64) -> Cqe {
    Cqe::from_words([0, word1])
}
