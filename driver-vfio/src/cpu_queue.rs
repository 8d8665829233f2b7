//! A queue pair that the driver itself submits to: the admin queue, and that of block I/O.

use std::time::{Duration, Instant};

use nvme_queue::{EMPTY, FAULT_WORDS, Finish, Patience, Queue, Reason, Shape, Words};
use nvme_wire::regs::Csts;
use nvme_wire::{Cqe, Sqe};
use warpstore_simt::{Cell, Cells, Native, NativeCell, Order, Platform, Solo, System, thread};

use crate::error::{Error, Step};
use crate::memory::{Mapped, QueueCells};
use crate::shadow::Near;
use crate::watch::Watch;

/// Most entries of either ring: so few that each ring fits in the smallest page.
pub(crate) const MAX_ENTRIES: u16 = 32;

/// Ticket, tail, CQ head, rung: the first words of private memory. Then come the fault counters,
/// then state, mark and tag of every entry.
const HOT_WORDS: u64 = 4;
const ARRAYS: u64 = HOT_WORDS + FAULT_WORDS;
/// 8-byte words of [`QueueCells::private`].
pub const QUEUE_PRIVATE_WORDS: u64 = ARRAYS + 3 * MAX_ENTRIES as u64;

/// Pages of shared memory with the rings: submission, then completion.
pub(crate) const RING_PAGES: u64 = 2;

/// How often a wait for a completion looks at CSTS.
const LOOK_AT_CSTS: Duration = Duration::from_millis(10);

/// A queue pair, the memory that it lies in, and a deadline for every wait.
pub(crate) struct CpuQueue {
    watch: Watch,
    queue: Queue<Native>,
    memory: Mapped,
    /// Passes doorbells on, if the queue rings in memory.
    near: Option<Near>,
}

/// Why a command was not submitted, or did not complete.
pub(crate) enum Stopped {
    /// The controller has an error of its own.
    Controller(Error),
    /// It has none, but time is up, or the queue was given up; CSTS as last read.
    Late { csts: Csts, reason: Reason },
}

impl Stopped {
    /// True if time is up, and nothing else is known to be wrong.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, Self::Late { reason, .. } if *reason == Reason::Expired)
    }
}

impl CpuQueue {
    /// The queue pair `id` of `entries` entries (a power of two, at most [`MAX_ENTRIES`]), whose
    /// rings are the first [`RING_PAGES`] pages of `memory`.
    pub(crate) fn new(
        watch: Watch,
        memory: Mapped,
        page_bytes: u64,
        id: u16,
        entries: u16,
        [sq_doorbell, cq_doorbell]: [NativeCell<u32, System>; 2],
    ) -> Self {
        let words = words(
            memory.cells(),
            page_bytes,
            entries.into(),
            sq_doorbell,
            cq_doorbell,
        );
        let shape = Shape::new(entries.into(), u32::MAX).expect("the depth is a power of two");
        Self {
            queue: Queue::new(words, shape, id),
            watch,
            memory,
            near: None,
        }
    }

    /// The queue, whose doorbells are the words of `near`.
    pub(crate) fn passed_on_by(mut self, near: Near) -> Self {
        self.near = Some(near);
        self
    }

    fn pass_on(&self) {
        if let Some(near) = &self.near {
            near.pass_on();
        }
    }

    /// The controller.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The memory, of which the rings are the beginning.
    pub(crate) fn memory(&self) -> &Mapped {
        &self.memory
    }

    /// Gives the memory back; the controller does not use it any more, or the caller quarantines
    /// it.
    pub(crate) fn into_memory(self) -> Mapped {
        self.memory
    }

    /// Most commands that are in flight without one of them waiting to be submitted.
    pub(crate) fn most_in_flight(&self) -> u64 {
        self.queue.shape().cap().into()
    }

    /// CID of the command in flight that was submitted with `tag`.
    pub(crate) fn cid_in_flight(&self, tag: u64) -> Option<u16> {
        self.queue.cid_in_flight(tag)
    }

    /// Gives the queue up: nothing is submitted any more.
    pub(crate) fn kill(&self) {
        self.queue.kill();
    }

    /// Submits `command`, whose completion comes to `done` with `tag`. After an error the queue is
    /// dead.
    pub(crate) fn submit<F: Finish>(
        &self,
        command: Sqe,
        tag: u64,
        done: &F,
    ) -> Result<(), Stopped> {
        let patience = self.patience(self.watch.deadlines.command);
        let submitted = self.queue.submit(Solo, command, tag, done, &patience);
        self.pass_on();
        submitted.map_err(|error| self.late(error.reason))
    }

    /// Drains until `enough` is true of `done`, for at most `limit`. After an error the queue lives:
    /// who gives a command up kills it.
    pub(crate) fn wait<F: Finish>(
        &self,
        limit: Duration,
        done: &F,
        enough: impl Fn(&F) -> bool,
    ) -> Result<(), Stopped> {
        let patience = self.patience(limit);
        let mut attempt: u32 = 0;
        let mut looked = Instant::now();
        loop {
            // Before the look at the ring, so that what is there when time is up still counts.
            let exhausted = patience.exhausted();
            self.drain_all(done);
            self.pass_on();
            if enough(done) {
                return Ok(());
            }
            if let Some(reason) = exhausted {
                return Err(self.late(reason));
            }
            if looked.elapsed() >= LOOK_AT_CSTS {
                looked = Instant::now();
                self.watch
                    .csts(Step::Command)
                    .map_err(Stopped::Controller)?;
            }
            Native::pause(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Takes what is in the completion ring; no more than fits in it, so that a controller which
    /// never ends to complete keeps nobody here.
    fn drain_all<F: Finish>(&self, done: &F) {
        for _ in 0..MAX_ENTRIES {
            if self.queue.drain(Solo, done) == 0 {
                return;
            }
        }
    }

    fn patience(&self, limit: Duration) -> Patience<Native> {
        Patience {
            deadline_ns: thread::now_ns().saturating_add(limit.as_nanos() as u64),
            abort: self.memory.cells().abort,
        }
    }

    /// The error of a command that did not complete; the controller's own, if it has one.
    fn late(&self, reason: Reason) -> Stopped {
        match self.watch.csts(Step::Command) {
            Ok(csts) => Stopped::Late { csts, reason },
            Err(error) => Stopped::Controller(error),
        }
    }
}

/// Divides the memory among the words of the queue, and puts those in their initial state.
fn words(
    cells: QueueCells,
    page_bytes: u64,
    entries: u64,
    sq_doorbell: NativeCell<u32, System>,
    cq_doorbell: NativeCell<u32, System>,
) -> Words<Native> {
    let array = |index| cells.private.part(ARRAYS + index * entries, entries);
    let marks = array(1);
    let ring = |page, entry_log2: u8| {
        cells
            .shared
            .part(page * page_bytes / 8, entries << (entry_log2 - 3))
    };
    let words = Words {
        ticket: cells.private.at(0),
        tail: cells.private.at(1),
        cq_head: cells.private.at(2),
        rung: cells.private.at(3),
        dead: cells.dead,
        faults: cells.private.part(HOT_WORDS, FAULT_WORDS),
        state: array(0),
        mark: marks,
        tag: array(2),
        sq: ring(0, Sqe::SIZE_LOG2),
        cq: ring(1, Cqe::SIZE_LOG2),
        sq_doorbell,
        cq_doorbell,
    };
    for index in 0..QUEUE_PRIVATE_WORDS {
        cells.private.at(index).store(0, Order::Relaxed);
    }
    for index in 0..entries {
        marks.at(index).store(EMPTY, Order::Relaxed);
    }
    cells.dead.store(0, Order::Relaxed);
    words
}
