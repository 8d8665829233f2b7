//! The admin queue (Base 5).

use nvme_wire::admin::{
    ABORT_NOT_DONE, AbortCdw10, AdminOpcode, Feature, FeatureCdw10, NumberOfQueues,
};
use nvme_wire::{Cqe, Sqe, Status};
use warpstore_simt::{Native, Order, Platform, System};

use super::{Controller, State};
use crate::layout::header;
use crate::memory::{DmaRanges, Span};

/// Asynchronous Event Requests that may be outstanding (AERL + 1).
pub(super) const EVENT_REQUESTS: usize = 4;

/// The admin rings and the commands that are not complete.
#[derive(Default)]
pub(super) struct AdminQueue {
    rings: Option<Rings>,
    /// CIDs of Asynchronous Event Requests; completed only by Abort, as no event ever happens.
    events: Vec<u16>,
    /// Delete I/O Submission Queue: CID and queue.
    deleting: Vec<(u16, u16)>,
    /// Completions that wait for room in the CQ.
    completed: Vec<Cqe>,
    volatile_write_cache: bool,
    event_configuration: u32,
}

struct Rings {
    sq: Span,
    cq: Span,
    sq_entries: u32,
    cq_entries: u32,
    sq_head: u32,
    cq_tail: u32,
    phase: bool,
}

/// What became of an admin command.
pub(super) enum Outcome {
    /// Complete, with Dword 0.
    Done(Status, u32),
    /// An Asynchronous Event Request: held.
    Held,
    /// Complete once no service acts on queue `qid`.
    Deleting { cid: u16, qid: u16 },
}

impl Controller {
    /// Opens the admin queue as AQA, ASQ and ACQ say; false if they are not valid.
    pub(super) fn open_admin(&self, state: &mut State) -> bool {
        let registers = &state.registers;
        let image = self.image_here();
        let page = image.read(header::PAGE);
        let sq_entries = registers.aqa.asqs_z() as u32 + 1;
        let cq_entries = registers.aqa.acqs_z() as u32 + 1;
        if sq_entries < 2 || cq_entries < 2 || (registers.asq | registers.acq) & (page - 1) != 0 {
            return false;
        }
        let mut ranges = DmaRanges::of(image);
        let sq = ranges.span(registers.asq, (sq_entries as u64) << Sqe::SIZE_LOG2);
        let cq = ranges.span(registers.acq, (cq_entries as u64) << Cqe::SIZE_LOG2);
        let (Some(sq), Some(cq)) = (sq, cq) else {
            return false;
        };
        self.doorbells.clear(0, false);
        self.doorbells.clear(0, true);
        self.enable_cache(true);
        let rings = Rings {
            sq,
            cq,
            sq_entries,
            cq_entries,
            sq_head: 0,
            cq_tail: 0,
            phase: true,
        };
        state.admin = AdminQueue {
            rings: Some(rings),
            volatile_write_cache: true,
            ..AdminQueue::default()
        };
        true
    }

    /// Serves the admin queue once: takes every command that has been rung. True if anything was
    /// done. Callable by any thread at any time.
    pub fn step_admin(&self) -> bool {
        let mut state = self.lock();
        let stopped = self.is_gone() || self.has_failed();
        if !state.registers.csts.rdy() || !state.registers.cc.en() || stopped {
            return false;
        }
        let mut worked = self.finish_deletions(&mut state.admin);
        while let Some(sqe) = self.next_command(&mut state.admin) {
            worked = true;
            match self.execute(&mut state, &sqe) {
                Outcome::Done(status, dw0) => {
                    state
                        .admin
                        .completed
                        .push(Cqe::new(sqe.cid(), status, false).with_result(dw0));
                }
                Outcome::Held => state.admin.events.push(sqe.cid()),
                Outcome::Deleting { cid, qid } => state.admin.deleting.push((cid, qid)),
            }
        }
        worked |= self.finish_deletions(&mut state.admin);
        worked | self.post_admin(&mut state.admin)
    }

    /// Completes the deletions whose queues no service acts on any more.
    fn finish_deletions(&self, admin: &mut AdminQueue) -> bool {
        let before = admin.deleting.len();
        admin.deleting.retain(|&(cid, qid)| {
            let done = self.is_deleted(qid);
            if done {
                admin.completed.push(Cqe::new(cid, Status::SUCCESS, false));
            }
            !done
        });
        admin.deleting.len() != before
    }

    /// Takes the next command, unless completions wait for room: the queue then pushes back.
    fn next_command(&self, admin: &mut AdminQueue) -> Option<Sqe> {
        let tail = self.doorbells.admin(false);
        let waiting = admin.completed.len();
        let rings = admin.rings.as_mut()?;
        let stalled = waiting >= rings.cq_entries as usize;
        if tail == rings.sq_head || tail >= rings.sq_entries || stalled {
            return None;
        }
        // Ordering: pairs with the submitter's fence before its doorbell.
        Native::fence::<System>(Order::AcqRel);
        let at = (rings.sq_head as u64) << Sqe::SIZE_LOG2;
        let words = std::array::from_fn(|word| rings.sq.load8(at + 8 * word as u64));
        rings.sq_head = (rings.sq_head + 1) % rings.sq_entries;
        Some(Sqe::from_words(words))
    }

    /// Posts completions while the CQ has room.
    fn post_admin(&self, admin: &mut AdminQueue) -> bool {
        let head = self.doorbells.admin(true);
        let Some(rings) = admin.rings.as_mut() else {
            return false;
        };
        let mut posted = 0;
        for cqe in &admin.completed {
            let next = (rings.cq_tail + 1) % rings.cq_entries;
            if next == head || head >= rings.cq_entries {
                break;
            }
            // Ordering: what the command wrote comes before its CQE.
            Native::fence::<System>(Order::AcqRel);
            let cqe = Cqe::new(cqe.cid, cqe.status(), rings.phase)
                .with_result(cqe.dw0)
                .with_sq(0, rings.sq_head as u16);
            rings
                .cq
                .publish16((rings.cq_tail as u64) << Cqe::SIZE_LOG2, cqe.to_words());
            rings.phase ^= next == 0;
            rings.cq_tail = next;
            posted += 1;
        }
        admin.completed.drain(..posted);
        posted != 0
    }

    fn execute(&self, state: &mut State, sqe: &Sqe) -> Outcome {
        // Neither fused commands nor SGLs.
        if sqe.flags() != 0 {
            return Outcome::Done(Status::INVALID_FIELD.with_dnr(), 0);
        }
        let (status, dw0) = match AdminOpcode(sqe.opcode()) {
            AdminOpcode::DELETE_IO_SQ => return self.delete_sq(state, sqe),
            AdminOpcode::ASYNC_EVENT_REQUEST if state.admin.events.len() < EVENT_REQUESTS => {
                return Outcome::Held;
            }
            AdminOpcode::ASYNC_EVENT_REQUEST => (Status::AER_LIMIT_EXCEEDED, 0),
            AdminOpcode::CREATE_IO_SQ => (self.create_sq(state, sqe), 0),
            AdminOpcode::DELETE_IO_CQ => (self.delete_cq(state, sqe), 0),
            AdminOpcode::CREATE_IO_CQ => (self.create_cq(state, sqe), 0),
            AdminOpcode::IDENTIFY => (self.identify(sqe), 0),
            AdminOpcode::GET_LOG_PAGE => (self.get_log_page(sqe), 0),
            AdminOpcode::ABORT => abort(&mut state.admin, sqe),
            AdminOpcode::SET_FEATURES => self.set_features(state, sqe),
            AdminOpcode::DOORBELL_BUFFER_CONFIG => (self.doorbell_buffer_config(state, sqe), 0),
            AdminOpcode::GET_FEATURES => self.get_features(&state.admin, sqe),
            _ => (Status::INVALID_OPCODE, 0),
        };
        let status = if status.is_success() {
            status
        } else {
            status.with_dnr()
        };
        Outcome::Done(status, dw0)
    }

    fn set_features(&self, state: &mut State, sqe: &Sqe) -> (Status, u32) {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        if cdw10.sv() {
            return (Status::FEATURE_NOT_SAVEABLE, 0);
        }
        match Feature(cdw10.fid()) {
            Feature::NUMBER_OF_QUEUES => {
                let asked = NumberOfQueues::from_bits(sqe.cdw11);
                if asked.nsq_z() == 0xffff || asked.ncq_z() == 0xffff {
                    (Status::INVALID_FIELD, 0)
                } else if state.queues.any() {
                    (Status::COMMAND_SEQUENCE_ERROR, 0)
                } else {
                    (Status::SUCCESS, self.number_of_queues())
                }
            }
            // Base 5.27.1.4: a feature of controllers that have one.
            Feature::VOLATILE_WRITE_CACHE if self.configuration.volatile_write_cache => {
                state.admin.volatile_write_cache = sqe.cdw11 & 1 != 0;
                self.enable_cache(state.admin.volatile_write_cache);
                (Status::SUCCESS, 0)
            }
            Feature::ASYNC_EVENT_CONFIGURATION => {
                state.admin.event_configuration = sqe.cdw11;
                (Status::SUCCESS, 0)
            }
            _ => (Status::INVALID_FIELD, 0),
        }
    }

    fn get_features(&self, admin: &AdminQueue, sqe: &Sqe) -> (Status, u32) {
        let cdw10 = FeatureCdw10::from_bits(sqe.cdw10);
        // Only current values: ONCS does not offer Save and Select.
        if cdw10.sel() != 0 {
            return (Status::INVALID_FIELD, 0);
        }
        match Feature(cdw10.fid()) {
            Feature::NUMBER_OF_QUEUES => (Status::SUCCESS, self.number_of_queues()),
            Feature::VOLATILE_WRITE_CACHE if self.configuration.volatile_write_cache => {
                (Status::SUCCESS, admin.volatile_write_cache as u32)
            }
            Feature::ASYNC_EVENT_CONFIGURATION => (Status::SUCCESS, admin.event_configuration),
            _ => (Status::INVALID_FIELD, 0),
        }
    }

    /// All queue pairs are always granted, whatever was asked for.
    fn number_of_queues(&self) -> u32 {
        let queues_z = self.configuration.queues - 1;
        NumberOfQueues::new()
            .with_nsq_z(queues_z)
            .with_ncq_z(queues_z)
            .into_bits()
    }

    /// Writes `bytes` (a multiple of 4, at most one page) to the buffer that PRP1 and PRP2 of an
    /// admin command describe.
    pub(super) fn deliver(&self, sqe: &Sqe, bytes: &[u8]) -> Status {
        let image = self.image_here();
        let page = image.read(header::PAGE);
        let offset = sqe.prp1() & (page - 1);
        let first = (page - offset).min(bytes.len() as u64);
        let rest = bytes.len() as u64 - first;
        if offset & 3 != 0 || rest != 0 && sqe.prp2() & (page - 1) != 0 {
            return Status::INVALID_PRP_OFFSET;
        }
        let mut ranges = DmaRanges::of(image);
        let head = ranges.span(sqe.prp1(), first);
        let tail = if rest == 0 {
            Some(Span::EMPTY)
        } else {
            ranges.span(sqe.prp2(), rest)
        };
        let (Some(head), Some(tail)) = (head, tail) else {
            return Status::DATA_TRANSFER_ERROR;
        };
        for (index, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
            let at = 4 * index as u64;
            let word = u32::from_le_bytes(*word);
            if at < first {
                head.store4(at, word);
            } else {
                tail.store4(at - first, word);
            }
        }
        Status::SUCCESS
    }
}

/// Only Asynchronous Event Requests can be aborted: everything else completes by itself.
fn abort(admin: &mut AdminQueue, sqe: &Sqe) -> (Status, u32) {
    let cdw10 = AbortCdw10::from_bits(sqe.cdw10);
    let held = admin
        .events
        .iter()
        .position(|&cid| cdw10.sqid() == 0 && cid == cdw10.cid());
    let Some(held) = held else {
        return (Status::SUCCESS, ABORT_NOT_DONE);
    };
    let cid = admin.events.remove(held);
    admin
        .completed
        .push(Cqe::new(cid, Status::ABORT_REQUESTED, false));
    (Status::SUCCESS, 0)
}
