//! The admin queue: one command at a time, each with a deadline.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use nvme_queue::{Completion, EMPTY, FAULT_WORDS, Finish, Patience, Queue, Shape, Words};
use nvme_wire::admin::{AdminOpcode, Cns};
use nvme_wire::identify::{PAGE, PAGE_WORDS};
use nvme_wire::regs::{Aqa, doorbell_offset, offset};
use nvme_wire::{Cqe, Sqe};
use warpstore_simt::{Cell, Cells, Native, NativeCell, Order, Platform, Solo, System, thread};

use crate::backing::BarOffset;
use crate::error::{Error, Step};
use crate::memory::{AdminCells, Mapped};
use crate::watch::Watch;

/// Entries of either admin ring. Equal, because some controllers confuse the two sizes; and so
/// few that a ring fits in the smallest page, because the driver has one command in flight.
const ENTRIES: u16 = 32;

/// Pages of shared memory: submission ring, completion ring, Identify.
const PAGES: u64 = 3;

/// Ticket, tail, CQ head, rung: the first words of private memory. Then come the fault counters,
/// then state, mark and tag of every entry.
const HOT_WORDS: u64 = 4;
const ARRAYS: u64 = HOT_WORDS + FAULT_WORDS;
/// 8-byte words of [`AdminCells::private`].
pub const ADMIN_PRIVATE_WORDS: u64 = ARRAYS + 3 * ENTRIES as u64;

/// How often a wait for a completion looks at CSTS.
const LOOK_AT_CSTS: Duration = Duration::from_millis(10);

/// The admin queue of an enabled controller.
pub(crate) struct AdminQueue {
    watch: Watch,
    queue: Queue<Native>,
    memory: Mapped,
    page_bytes: u64,
}

impl AdminQueue {
    /// Bytes of shared memory that the queue needs with this page size.
    pub(crate) fn shared_bytes(page_bytes: u64) -> u64 {
        PAGES * page_bytes
    }

    /// Writes AQA, ASQ and ACQ (Base 3.1.3.8 to 3.1.3.10), while the controller is disabled.
    pub(crate) fn configure(
        watch: Watch,
        memory: Mapped,
        page_bytes: u64,
        dstrd: u8,
    ) -> Result<Self, Error> {
        let backing = &watch.backing;
        let aqa = Aqa::new().with_asqs_z(ENTRIES - 1).with_acqs_z(ENTRIES - 1);
        backing.write32(BarOffset(offset::AQA), aqa.into_bits());
        backing.write64(BarOffset(offset::ASQ), memory.iova().0);
        backing.write64(BarOffset(offset::ACQ), memory.iova().plus(page_bytes).0);
        let doorbell = |is_cq| watch.doorbell(BarOffset(doorbell_offset(0, is_cq, dstrd)));
        let words = words(
            memory.cells(),
            page_bytes,
            doorbell(false)?,
            doorbell(true)?,
        );
        let shape = Shape::new(ENTRIES.into(), 1).expect("the depth is a power of two");
        Ok(Self {
            queue: Queue::new(words, shape, 0),
            watch,
            memory,
            page_bytes,
        })
    }

    /// Runs one command and returns Dword 0 of its completion.
    ///
    /// # Errors
    /// `Refused` leaves the queue usable. After every other error it is dead, and so it stays.
    pub(crate) fn run(&mut self, command: Sqe) -> Result<u32, Error> {
        let limit = self.watch.deadlines.command;
        let begin = Instant::now();
        let done = Latch(OnceCell::new());
        let patience = Patience::<Native> {
            deadline_ns: thread::now_ns().saturating_add(limit.as_nanos() as u64),
            abort: self.memory.cells().abort,
        };
        if self
            .queue
            .submit(Solo, command, 0, &done, &patience)
            .is_err()
        {
            return Err(self.no_completion(command, begin));
        }
        let mut attempt: u32 = 0;
        let mut looked = begin;
        let completion = loop {
            self.queue.drain(Solo, &done);
            if let Some(completion) = done.0.get() {
                break completion;
            }
            if patience.exhausted().is_some() {
                self.queue.kill();
                return Err(self.no_completion(command, begin));
            }
            if looked.elapsed() >= LOOK_AT_CSTS {
                looked = Instant::now();
                self.watch
                    .csts(Step::Command)
                    .inspect_err(|_| self.queue.kill())?;
            }
            Native::pause(attempt);
            attempt = attempt.saturating_add(1);
        };
        if completion.status.is_success() {
            return Ok(completion.dw0);
        }
        Err(Error::Refused {
            controller: self.watch.name(),
            command: AdminOpcode(command.opcode()).name(),
            opcode: command.opcode(),
            cid: completion.cid,
            status: completion.status,
        })
    }

    /// Identify: returns the page, in words (Base 5.17).
    pub(crate) fn identify(&mut self, cns: Cns, nsid: u32) -> Result<[u64; PAGE_WORDS], Error> {
        let at = 2 * self.page_bytes;
        const {
            assert!(
                PAGE <= 4096,
                "an Identify page fits in the smallest memory page"
            )
        };
        self.run(Sqe::identify(cns, nsid, self.memory.iova().plus(at).0))?;
        Ok(self.memory.page(at))
    }

    /// Gives the memory back; the controller has stopped, or the caller quarantines it.
    pub(crate) fn into_memory(self) -> Mapped {
        self.memory
    }

    /// The error of a command that did not complete; the controller's own, if it has one.
    fn no_completion(&self, command: Sqe, begin: Instant) -> Error {
        let waited = begin.elapsed();
        match self.watch.csts(Step::Command) {
            Ok(csts) => Error::NoCompletion {
                controller: self.watch.name(),
                command: AdminOpcode(command.opcode()).name(),
                opcode: command.opcode(),
                csts,
                waited,
            },
            Err(error) => error,
        }
    }
}

/// Where the completion of the one command is left.
struct Latch(OnceCell<Completion>);

impl Finish for Latch {
    fn finish(&self, completion: Completion) {
        // The queue finishes a command once, and there is one.
        let _ = self.0.set(completion);
    }
}

/// Divides the memory among the words of the queue, and puts those in their initial state.
fn words(
    cells: AdminCells,
    page_bytes: u64,
    sq_doorbell: NativeCell<u32, System>,
    cq_doorbell: NativeCell<u32, System>,
) -> Words<Native> {
    let entries = u64::from(ENTRIES);
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
    for index in 0..ADMIN_PRIVATE_WORDS {
        cells.private.at(index).store(0, Order::Relaxed);
    }
    for index in 0..entries {
        marks.at(index).store(EMPTY, Order::Relaxed);
    }
    cells.dead.store(0, Order::Relaxed);
    words
}
