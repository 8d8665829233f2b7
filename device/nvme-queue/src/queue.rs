//! The words of a queue pair, and the handle that the protocol works on.

use warpstore_simt::{Cell, Cells, Device, Order, Platform, System};

use crate::ring::Ring;
use crate::{Faults, Shape, Ticket, Wide};

/// A mark that no group has left.
pub const EMPTY: u64 = u64::MAX;

/// Words that count faulty CQEs; [`Faults`] names them.
pub const FAULT_WORDS: u64 = 5;

/// Every word of a queue pair. All are 0 at the start but the marks, which are [`EMPTY`].
#[derive(Clone, Copy)]
pub struct Words<P: Platform> {
    /// Next virtual index to hand out.
    pub ticket: P::Cell<u64, Device>,
    /// Every command before this index has been published.
    pub tail: P::Cell<u64, Device>,
    /// Virtual index of the next CQE in bits 1 to 63; bit 0 while somebody takes CQEs.
    pub cq_head: P::Cell<u64, Device>,
    /// Not 0 once the queue has been given up. Never goes back.
    pub dead: P::Cell<u32, Device>,
    /// CQ head that the controller was told last. Belongs to the holder of the CQ lock.
    pub rung: P::Cell<u64, Device>,
    /// [`FAULT_WORDS`] counters of CQEs that were not applied.
    pub faults: P::Cells<u64, Device>,
    /// For each slot its half laps: `2·lap` free, `2·lap + 1` in flight.
    pub state: P::Cells<u64, Device>,
    /// For the first slot of a group that waits for publication, the index after its last.
    pub mark: P::Cells<u64, Device>,
    /// For each slot in flight, what its submitter wants to be told at completion.
    pub tag: P::Cells<u64, Device>,
    /// Submission ring, 8 words an entry.
    pub sq: P::Cells<u64, System>,
    /// Completion ring, 2 words an entry.
    pub cq: P::Cells<u64, System>,
    /// SQ tail doorbell.
    pub sq_doorbell: P::Cell<u32, System>,
    /// CQ head doorbell.
    pub cq_doorbell: P::Cell<u32, System>,
}

/// A queue pair as its submitters see it: a bundle of handles, copied freely. The two entry
/// points are [`submit`](Queue::submit) and [`drain`](Queue::drain).
#[derive(Clone, Copy)]
pub struct Queue<P: Platform, W: Ticket = Wide> {
    pub(crate) words: Words<P>,
    pub(crate) ring: Ring<W>,
    pub(crate) shape: Shape,
    pub(crate) id: u16,
}

impl<P: Platform, W: Ticket> Queue<P, W> {
    /// The queue pair `id` on these words. State, marks and tags have one word for each of the
    /// `shape.depth()` entries.
    #[inline(always)]
    pub fn new(words: Words<P>, shape: Shape, id: u16) -> Self {
        Self {
            words,
            ring: Ring::new(shape.log2_depth),
            shape,
            id,
        }
    }

    /// Identifier of the submission queue.
    #[inline(always)]
    pub fn id(self) -> u16 {
        self.id
    }

    /// Depth and limits.
    #[inline(always)]
    pub fn shape(self) -> Shape {
        self.shape
    }

    /// Gives the queue up: all waits for it end, and no later submission succeeds.
    #[inline(always)]
    pub fn kill(self) {
        // Ordering: [SQ-8] the word carries no data.
        self.words.dead.store(1, Order::Relaxed);
    }

    /// True once the queue has been given up.
    #[inline(always)]
    pub fn is_dead(self) -> bool {
        // Ordering: [SQ-8] the word carries no data.
        self.words.dead.load(Order::Relaxed) != 0
    }

    /// The CQEs that were not applied so far.
    pub fn faults(self) -> Faults {
        Faults::read::<P>(self.words.faults)
    }

    /// CID of the command in flight that was submitted with `tag`. For whoever submits and drains
    /// alone, since nothing is ordered here.
    pub fn cid_in_flight(self, tag: u64) -> Option<u16> {
        (0..self.shape.depth()).find_map(|slot| {
            // Ordering: [SQ-3] none: the caller has written the tag itself.
            let is_it = self.words.tag.at(slot).load(Order::Relaxed) == tag;
            let cid = self.ring.cid_in_flight(slot, self.state(slot))?;
            is_it.then_some(cid)
        })
    }

    /// State of the slot of `index`, unordered.
    #[inline(always)]
    pub(crate) fn state(self, index: u64) -> u64 {
        // Ordering: [SQ-1] the fence after the wait orders it.
        self.words
            .state
            .at(self.ring.slot(index))
            .load(Order::Relaxed)
    }
}
