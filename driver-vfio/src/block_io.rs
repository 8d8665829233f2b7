//! Block I/O by the CPU: reads, writes and flushes of one namespace, several commands at a time.
//!
//! ```text
//!  bytes of the caller ─ copy ─► data of slot 0 … 7 ─ PRP1, PRP2 ─► controller
//!                                 lists, one a slot, written once
//! ```
//!
//! For arrays that are put on an SSD, and for headers and the like: it is simple, not fast.
//!
//! Not here: retries, since the caller knows what a failed command means; several threads.

mod commands;

use std::borrow::BorrowMut;
use std::ops::Range;
use std::sync::Arc;

use nvme_wire::sqe::IoOpcode;
use warpstore_simt::{Cell, Cells, NativeCells, Order, System};

use crate::backing::DmaRegion;
use crate::controller::{Controller, Enabled};
use crate::cpu_queue::{CpuQueue, MAX_ENTRIES, QUEUE_PRIVATE_WORDS, RING_PAGES};
use crate::error::Error;
use crate::memory::{Mapped, QueueMemory};
use crate::namespace::Namespace;
use crate::queue_pair::{QueuePairRequest, Ring};
use crate::shadow::Near;

/// Commands in flight, each with data and a PRP list of its own: a slot.
const SLOTS: u64 = 8;
/// Most bytes of a command. A power of two, and at least the largest LBA and page.
const CHUNK: u64 = 128 << 10;
/// Bytes of a slot's PRP list, and its alignment: some SSDs misread lists that lie otherwise.
const LIST: u64 = 512;

const _: () = {
    assert!(CHUNK / 4096 <= LIST / 8, "a list describes a whole chunk");
    assert!(SLOTS * LIST <= 4096, "the lists fit in the smallest page");
};

/// What may be done with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    ReadOnly,
    /// Reading, and writing over what is there.
    ReadWrite,
}

/// Block I/O on one namespace of `controller`, a `Controller<Enabled>` or a reference to one.
///
/// It has an I/O queue pair, the free one with the highest identifier, until it is closed or
/// dropped. After an error with a status it goes on; after any other its queue is dead.
///
/// A command is aborted if it does not complete within [`Deadlines::command`](crate::Deadlines) of
/// the time from which it is waited for. If its completion comes after all, at most that long after
/// an Abort that succeeded, its status counts, Command Abort Requested as a rule; else the queue is
/// dead. So each command takes three of these times at most, and after the first that fails seven
/// are left. A controller that answers nothing ends an access after two.
pub struct BlockIo<C: BorrowMut<Controller<Enabled>>> {
    /// None only at the end.
    open: Option<Open<C>>,
    namespace: Namespace,
    access: Access,
    qid: u16,
    page_bytes: u64,
}

struct Open<C> {
    queue: CpuQueue,
    controller: C,
}

impl<State> Controller<State> {
    /// Bytes of [`QueueCells::shared`](crate::QueueCells::shared) that [`BlockIo::open`] needs.
    pub fn block_io_bytes(&self) -> u64 {
        data_start(self.page_bytes()) + SLOTS * CHUNK
    }
}

/// Where the data begins in shared memory: behind the rings, and the lists in a page of theirs.
fn data_start(page_bytes: u64) -> u64 {
    (RING_PAGES + 1) * page_bytes
}

impl<C: BorrowMut<Controller<Enabled>>> BlockIo<C> {
    /// Creates a queue pair in `memory` for namespace `nsid`, to use it as `access` says.
    ///
    /// # Errors
    /// `NoQueue` if the controller has no queue pair left; `Memory` if `memory` is too small or
    /// not aligned; else as [`Controller::namespace`] and [`Controller::create_queue_pair`].
    pub fn open(
        mut controller: C,
        nsid: u32,
        access: Access,
        memory: Arc<dyn QueueMemory>,
    ) -> Result<Self, Error> {
        let enabled = controller.borrow_mut();
        let namespace = enabled.namespace(nsid)?;
        let page_bytes = enabled.page_bytes();
        let qid = enabled.free_queue_id()?;
        let memory = Mapped::zeroed(
            &enabled.watch.backing,
            memory,
            enabled.block_io_bytes(),
            QUEUE_PRIVATE_WORDS,
            page_bytes,
        )?;
        let entries = MAX_ENTRIES.min(1 << enabled.max_entries().ilog2());
        let address = DmaRegion::from(memory.cells().shared).address();
        let ring = |page| Ring {
            address: address + page * page_bytes,
            iova: memory.iova().plus(page * page_bytes),
        };
        enabled.create_queue_pair(QueuePairRequest {
            qid,
            entries: entries.into(),
            sq: ring(0),
            cq: ring(1),
        })?;
        let watch = enabled.watch.clone();
        let doorbells = enabled.doorbells(qid)?;
        let queue = if doorbells.iter().all(|doorbell| doorbell.shadow.is_none()) {
            let registers = doorbells.map(|doorbell| doorbell.register);
            CpuQueue::new(watch, memory, page_bytes, qid, entries, registers)
        } else {
            let near = Near::new(&memory, page_bytes, doorbells, entries);
            let words = near.words();
            CpuQueue::new(watch, memory, page_bytes, qid, entries, words).passed_on_by(near)
        };
        write_lists(&queue, page_bytes);
        Ok(Self {
            open: Some(Open { queue, controller }),
            namespace,
            access,
            qid,
            page_bytes,
        })
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Reads whole blocks from `lba` on into `bytes`.
    ///
    /// # Errors
    /// `Range` if these are no blocks of the namespace; `Io` with the status if a command fails;
    /// `IoLate`, `Removed` or `Fatal`. `bytes` may have changed in part.
    pub fn read(&mut self, lba: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let blocks = self.blocks(lba, bytes.len())?;
        let take = |data: NativeCells<u64, System>, part: Range<usize>| {
            for (index, word) in (0..).zip(bytes[part].chunks_exact_mut(8)) {
                // Ordering: [CQ-1] the completion was seen, and with it the data.
                word.copy_from_slice(&data.at(index).load(Order::Relaxed).to_le_bytes());
            }
        };
        self.transfer(IoOpcode::READ, lba, blocks, |_, _| {}, take)
    }

    /// Writes `bytes`, whole blocks, from `lba` on. They are durable after a [`BlockIo::flush`].
    ///
    /// # Errors
    /// `ReadOnly` if this was opened so; else as [`BlockIo::read`]. Blocks may have been written in
    /// part.
    pub fn write(&mut self, lba: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let blocks = self.blocks(lba, bytes.len())?;
        let fill = |data: NativeCells<u64, System>, part: Range<usize>| {
            for (index, word) in (0..).zip(bytes[part].as_chunks().0) {
                // Ordering: [SQ-3] the fence before the doorbell publishes it.
                data.at(index)
                    .store(u64::from_le_bytes(*word), Order::Relaxed);
            }
        };
        self.transfer(IoOpcode::WRITE, lba, blocks, fill, |_, _| {})
    }

    /// Makes everything durable that was written before.
    ///
    /// # Errors
    /// As [`BlockIo::write`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.check_writable()?;
        self.flush_all()
    }

    /// Deletes the queue pair and gives the controller back.
    ///
    /// # Errors
    /// As [`Controller::delete_queue_pair`]; a controller that was given whole is dropped, which
    /// disables it.
    pub fn close(mut self) -> Result<C, Error> {
        self.end().expect("nobody has ended it before")
    }

    /// Deletes the queue pair. Its memory goes back then, else when the controller has stopped.
    fn end(&mut self) -> Option<Result<C, Error>> {
        let Open {
            queue,
            mut controller,
        } = self.open.take()?;
        let enabled = controller.borrow_mut();
        let deleted = enabled.delete_queue_pair(self.qid);
        if deleted.is_err() {
            enabled.state.live.retain(queue.into_memory());
        }
        Some(deleted.map(|()| controller))
    }

    fn queue(&self) -> &CpuQueue {
        &self.open.as_ref().expect("only `end` takes it").queue
    }

    fn name(&self) -> String {
        self.queue().watch().name()
    }

    /// [VF-3] Nothing is written that was opened for reading.
    fn check_writable(&self) -> Result<(), Error> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Error::ReadOnly {
                controller: self.name(),
                nsid: self.namespace.nsid,
            }),
        }
    }

    /// Number of blocks in `bytes` bytes, which must lie in the namespace from `lba` on.
    fn blocks(&self, lba: u64, bytes: usize) -> Result<u64, Error> {
        let &Namespace {
            nsid,
            blocks: all,
            block_shift,
            ..
        } = &self.namespace;
        let (bytes, block_bytes) = (bytes as u64, 1 << block_shift);
        let blocks = bytes >> block_shift;
        let inside = lba <= all && blocks <= all - lba;
        if inside && bytes.is_multiple_of(block_bytes) {
            return Ok(blocks);
        }
        Err(Error::Range {
            controller: self.name(),
            nsid,
            lba,
            bytes,
            block_bytes,
            blocks: all,
        })
    }

    /// The data of a slot: `bytes` bytes of it.
    fn data(&self, slot: u64, bytes: u64) -> NativeCells<u64, System> {
        let start = data_start(self.page_bytes) + slot * CHUNK;
        let shared = self.queue().memory().cells().shared;
        shared.part(start / 8, bytes / 8)
    }

    /// PRP1 and PRP2 of the first `bytes` bytes of a slot (NVM 4.3). Slots begin at a page.
    fn prps(&self, slot: u64, bytes: u64) -> (u64, u64) {
        let iova = self.queue().memory().iova();
        let data = iova.plus(data_start(self.page_bytes) + slot * CHUNK);
        let prp2 = match bytes.div_ceil(self.page_bytes) {
            0 | 1 => 0,
            2 => data.plus(self.page_bytes).0,
            _ => iova.plus(RING_PAGES * self.page_bytes + slot * LIST).0,
        };
        (data.0, prp2)
    }
}

impl<C: BorrowMut<Controller<Enabled>>> Drop for BlockIo<C> {
    fn drop(&mut self) {
        // Nobody is left to tell; `end` has kept the memory out of use.
        let _ = self.end();
    }
}

/// Writes every slot's PRP list: its pages but the first.
fn write_lists(queue: &CpuQueue, page_bytes: u64) {
    let memory = queue.memory();
    for slot in 0..SLOTS {
        let data = memory.iova().plus(data_start(page_bytes) + slot * CHUNK);
        let start = RING_PAGES * page_bytes + slot * LIST;
        for page in 1..CHUNK / page_bytes {
            let entry = memory.cells().shared.at(start / 8 + page - 1);
            entry.store(data.plus(page * page_bytes).0, Order::Relaxed);
        }
    }
}
