//! Creation and deletion of I/O queues (Base 5.4 to 5.7).

use nvme_wire::admin::{CreateCqCdw11, CreateSqCdw11, QueueCdw10};
use nvme_wire::regs::doorbell_offset;
use nvme_wire::{Cqe, Sqe, Status};

use super::admin::Outcome;
use super::{Controller, State};
use crate::layout::{header, record, record_of};
use crate::memory::DmaRanges;

/// The queues that exist, by identifier minus one.
#[derive(Default)]
pub(super) struct Queues {
    cqs: Vec<Option<Cq>>,
    /// The completion queue of each submission queue.
    sqs: Vec<Option<u16>>,
    /// IOVA of the page with shadow doorbells, if it has been told.
    shadows: Option<u64>,
}

#[derive(Clone, Copy)]
struct Cq {
    address: u64,
    entries: u32,
}

impl Queues {
    /// True if an I/O queue exists: from then on the number of queues is settled.
    pub(super) fn any(&self) -> bool {
        self.cqs.iter().any(Option::is_some)
    }
}

impl Controller {
    pub(super) fn create_cq(&self, state: &mut State, sqe: &Sqe) -> Status {
        let cdw10 = QueueCdw10::from_bits(sqe.cdw10);
        let cdw11 = CreateCqCdw11::from_bits(sqe.cdw11);
        let cqs = &mut state.queues.cqs;
        cqs.resize(self.configuration.queues as usize, None);
        let Some(slot @ None) = slot(cqs, cdw10.qid()) else {
            return Status::INVALID_QUEUE_ID;
        };
        // No interrupts: a completion queue here is polled.
        if cdw11.ien() {
            return Status::INVALID_INTERRUPT_VECTOR;
        }
        match self.check_ring(sqe, cdw10, cdw11.pc(), Cqe::SIZE_LOG2) {
            Ok((address, entries)) => *slot = Some(Cq { address, entries }),
            Err(status) => return status,
        }
        self.doorbells.clear(cdw10.qid(), true);
        Status::SUCCESS
    }

    pub(super) fn create_sq(&self, state: &mut State, sqe: &Sqe) -> Status {
        let cdw10 = QueueCdw10::from_bits(sqe.cdw10);
        let cdw11 = CreateSqCdw11::from_bits(sqe.cdw11);
        let qid = cdw10.qid();
        state
            .queues
            .sqs
            .resize(self.configuration.queues as usize, None);
        state
            .queues
            .cqs
            .resize(self.configuration.queues as usize, None);
        let queues = &mut state.queues;
        let shared = queues.sqs.contains(&Some(cdw11.cqid()));
        let Some(sq @ None) = slot(&mut queues.sqs, qid) else {
            return Status::INVALID_QUEUE_ID;
        };
        // The record of a deleted queue is free once its service has let go of it.
        if !self.is_quiet(qid as u32 - 1) {
            return Status::INVALID_QUEUE_ID;
        }
        let cq = match slot(&mut queues.cqs, cdw11.cqid()) {
            None => return Status::INVALID_QUEUE_ID,
            // One submission queue a completion queue: then one warp writes it, without locks.
            Some(Some(cq)) if !shared => *cq,
            Some(_) => return Status::INVALID_CQ,
        };
        let ring = self.check_ring(sqe, cdw10, cdw11.pc(), Sqe::SIZE_LOG2);
        let (address, entries) = match ring {
            Ok(ring) => ring,
            Err(status) => return status,
        };
        let doorbells = (
            self.doorbell(queues.shadows, qid, false),
            self.doorbell(queues.shadows, cdw11.cqid(), true),
        );
        let (Some(sq_doorbell), Some(cq_doorbell)) = doorbells else {
            return Status::DATA_TRANSFER_ERROR;
        };
        *sq = Some(cdw11.cqid());
        self.doorbells.clear(qid, false);
        let image = self.image_here();
        let record = record_of(qid as u32 - 1);
        image.write(record + record::SQ, address);
        image.write(record + record::CQ, cq.address);
        image.write(record + record::SQ_DOORBELL, sq_doorbell);
        image.write(record + record::CQ_DOORBELL, cq_doorbell);
        image.write(
            record + record::ENTRIES,
            entries as u64 | (cq.entries as u64) << 32,
        );
        image.write(record + record::SQID, qid as u64);
        self.bump(qid);
        Status::SUCCESS
    }

    /// Doorbell Buffer Config (Base 5.8), for the I/O queues that will be created: this controller refuses
    /// it with Command Sequence Error where there is one already. It polls the queues' doorbells in memory
    /// from then on, so it tells no event index: registers need not be rung.
    pub(super) fn doorbell_buffer_config(&self, state: &mut State, sqe: &Sqe) -> Status {
        if !self.configuration.shadow_doorbells {
            return Status::INVALID_OPCODE;
        }
        if state.queues.any() {
            return Status::COMMAND_SEQUENCE_ERROR;
        }
        let image = self.image_here();
        let page = image.read(header::PAGE);
        let pages = [sqe.prp1(), sqe.prp2()];
        if !(pages[0] | pages[1]).is_multiple_of(page) {
            return Status::INVALID_FIELD;
        }
        let mut ranges = DmaRanges::of(image);
        if pages.iter().any(|&at| ranges.span(at, page).is_none()) {
            return Status::DATA_TRANSFER_ERROR;
        }
        state.queues.shadows = Some(pages[0]);
        Status::SUCCESS
    }

    /// Address of the doorbell of an I/O queue that counts: in memory, as far as the page has room for
    /// it; none if that is out of reach by now.
    fn doorbell(&self, shadows: Option<u64>, qid: u16, is_cq: bool) -> Option<u64> {
        let image = self.image_here();
        let dstrd = self.configuration.dstrd;
        let at = doorbell_offset(qid, is_cq, dstrd) - doorbell_offset(0, false, dstrd);
        match shadows {
            Some(page) if at < image.read(header::PAGE) => {
                let word = DmaRanges::of(image).span(page + at, 4)?;
                Some(word.address())
            }
            _ => self.doorbells.of(qid, is_cq),
        }
    }

    pub(super) fn delete_cq(&self, state: &mut State, sqe: &Sqe) -> Status {
        let qid = QueueCdw10::from_bits(sqe.cdw10).qid();
        if !matches!(slot(&mut state.queues.cqs, qid), Some(Some(_))) {
            return Status::INVALID_QUEUE_ID;
        }
        if state.queues.sqs.contains(&Some(qid)) {
            return Status::INVALID_QUEUE_DELETION;
        }
        state.queues.cqs[qid as usize - 1] = None;
        Status::SUCCESS
    }

    /// Commands of the queue that are still pending are never completed: the specification lets
    /// the deletion stand for their completions.
    pub(super) fn delete_sq(&self, state: &mut State, sqe: &Sqe) -> Outcome {
        let qid = QueueCdw10::from_bits(sqe.cdw10).qid();
        let Some(sq @ Some(_)) = slot(&mut state.queues.sqs, qid) else {
            return Outcome::Done(Status::INVALID_QUEUE_ID.with_dnr(), 0);
        };
        *sq = None;
        self.bump(qid);
        Outcome::Deleting {
            cid: sqe.cid(),
            qid,
        }
    }

    /// Deletes every queue, as a reset does.
    pub(super) fn delete_all(&self, state: &mut State) {
        for (index, sq) in state.queues.sqs.iter().enumerate() {
            if sq.is_some() {
                self.bump(index as u16 + 1);
            }
        }
        state.queues = Queues::default();
    }

    /// True if no service acts on the deleted queue any more.
    pub(super) fn is_deleted(&self, qid: u16) -> bool {
        self.is_quiet(qid as u32 - 1)
    }

    /// Begins the next generation of a queue's record: odd ones exist.
    fn bump(&self, qid: u16) {
        let requested = record_of(qid as u32 - 1) + record::REQUESTED;
        // Ordering: release, so that a service which sees the generation sees the record.
        self.words
            .word(requested)
            .fetch_add(1, std::sync::atomic::Ordering::Release);
    }

    /// Checks size, alignment and memory of a ring; its address and number of entries.
    fn check_ring(
        &self,
        sqe: &Sqe,
        cdw10: QueueCdw10,
        contiguous: bool,
        entry_log2: u8,
    ) -> Result<(u64, u32), Status> {
        let entries = cdw10.qsize_z() as u32 + 1;
        if !(2..=self.configuration.queue_entries).contains(&entries) {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // CAP.CQR is set.
        if !contiguous {
            return Err(Status::INVALID_FIELD);
        }
        let image = self.image_here();
        if !sqe.prp1().is_multiple_of(image.read(header::PAGE)) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        let bytes = (entries as u64) << entry_log2;
        match DmaRanges::of(image).span(sqe.prp1(), bytes) {
            Some(ring) => Ok((ring.address(), entries)),
            None => Err(Status::DATA_TRANSFER_ERROR),
        }
    }
}

/// The place of an identifier; `None` for the admin queue's and for those beyond the number of
/// queues.
fn slot<T>(queues: &mut [Option<T>], qid: u16) -> Option<&mut Option<T>> {
    queues.get_mut((qid as usize).checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Configuration, Faults, Media, Namespace, Profile, step};

    fn controller() -> Controller {
        let configuration = Configuration {
            serial: "1".into(),
            model: "m".into(),
            namespaces: vec![Namespace {
                lbas: 8,
                lba_bytes: 512,
            }],
            mdts: 0,
            queue_entries: 4,
            dstrd: 0,
            to: 1,
            queues: 1,
            profile: Profile::IDEAL,
            volatile_write_cache: false,
            shadow_doorbells: false,
            faults: Faults::none(),
        };
        Controller::new(configuration, Media::none(), None, None).unwrap()
    }

    #[test]
    fn a_deletion_waits_until_the_service_has_let_go() {
        let controller = controller();
        let state = &mut State::default();
        let rings = crate::memory::SharedWords::zeroed(3 * 512);
        let page = rings.address().next_multiple_of(4096);
        // The rings are never touched: no doorbell is rung.
        let range = crate::layout::range(0);
        controller
            .image_here()
            .write_pair(range, [page, page + 4096]);
        controller.image_here().write(header::RANGES, 1);
        let create = |state: &mut State| {
            let sqe = Sqe::create_io_sq(1, 3, 1, page);
            controller.create_sq(state, &sqe)
        };
        let cq = Sqe::create_io_cq(1, 3, page);
        assert_eq!(controller.create_cq(state, &cq), Status::SUCCESS);
        assert_eq!(create(state), Status::SUCCESS);
        let serving = controller.words.word(header::SERVING);
        serving.store(1, std::sync::atomic::Ordering::Relaxed);
        step::<1>(controller.image_here(), 0, 0);
        let outcome = controller.delete_sq(state, &Sqe::delete_io_sq(1));
        assert!(matches!(outcome, Outcome::Deleting { qid: 1, .. }));
        assert!(!controller.is_deleted(1), "the service may still post");
        assert_eq!(create(state), Status::INVALID_QUEUE_ID);
        step::<1>(controller.image_here(), 0, 0);
        assert!(controller.is_deleted(1));
        assert_eq!(create(state), Status::SUCCESS);
    }
}
