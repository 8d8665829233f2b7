//! The admin queue: one command at a time, each with a deadline.

use std::cell::OnceCell;
use std::time::Instant;

use nvme_queue::{Completion, Finish};
use nvme_wire::Sqe;
use nvme_wire::admin::{AdminOpcode, Cns};
use nvme_wire::identify::{PAGE, PAGE_WORDS};
use nvme_wire::regs::{Aqa, doorbell_offset, offset};

use crate::backing::BarOffset;
use crate::cpu_queue::{CpuQueue, MAX_ENTRIES, RING_PAGES, Stopped};
use crate::error::Error;
use crate::memory::Mapped;
use crate::watch::Watch;

/// Entries of either admin ring. Equal, because some controllers confuse the two sizes.
const ENTRIES: u16 = MAX_ENTRIES;

/// Pages of shared memory: the rings, Identify.
const PAGES: u64 = RING_PAGES + 1;

/// The admin queue of an enabled controller.
pub(crate) struct AdminQueue {
    queue: CpuQueue,
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
        let doorbells = [doorbell(false)?, doorbell(true)?];
        Ok(Self {
            queue: CpuQueue::new(watch, memory, page_bytes, 0, ENTRIES, doorbells),
            page_bytes,
        })
    }

    /// Runs one command and returns Dword 0 of its completion.
    ///
    /// # Errors
    /// `Refused` leaves the queue usable. After every other error it is dead, and so it stays.
    pub(crate) fn run(&mut self, command: Sqe) -> Result<u32, Error> {
        let begin = Instant::now();
        let done = Latch(OnceCell::new());
        let limit = self.queue.watch().deadlines.command;
        let submitted = self.queue.submit(command, 0, &done);
        submitted
            .and_then(|()| self.queue.wait(limit, &done, |done| done.0.get().is_some()))
            .map_err(|stopped| self.give_up(command, stopped, begin))?;
        let completion = done.0.into_inner().expect("the wait was for it");
        if completion.status.is_success() {
            return Ok(completion.dw0);
        }
        Err(Error::Refused {
            controller: self.queue.watch().name(),
            command: AdminOpcode(command.opcode()).name(),
            opcode: command.opcode(),
            cid: completion.cid,
            status: completion.status,
        })
    }

    /// Identify: returns the page, in words (Base 5.17).
    pub(crate) fn identify(&mut self, cns: Cns, nsid: u32) -> Result<[u64; PAGE_WORDS], Error> {
        let at = RING_PAGES * self.page_bytes;
        const {
            assert!(
                PAGE <= 4096,
                "an Identify page fits in the smallest memory page"
            )
        };
        let iova = self.queue.memory().iova().plus(at);
        self.run(Sqe::identify(cns, nsid, iova.0))?;
        Ok(self.queue.memory().page(at))
    }

    /// Gives the memory back; the controller has stopped, or the caller quarantines it.
    pub(crate) fn into_memory(self) -> Mapped {
        self.queue.into_memory()
    }

    /// Kills the queue; the error of the command that was waited for since `begin`.
    fn give_up(&self, command: Sqe, stopped: Stopped, begin: Instant) -> Error {
        self.queue.kill();
        match stopped {
            Stopped::Controller(error) => error,
            Stopped::Late { csts, .. } => Error::NoCompletion {
                controller: self.queue.watch().name(),
                command: AdminOpcode(command.opcode()).name(),
                opcode: command.opcode(),
                csts,
                waited: begin.elapsed(),
            },
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
