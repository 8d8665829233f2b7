//! One queue pair in one step: record and doorbells in, SQEs fetched, CQEs posted, record out.

use nvme_wire::{Cqe, Sqe, Status};
use warpstore_simt::{Cell, Device, Native, Order, Platform, System, warp};

use crate::command::Command;
use crate::layout::record;
use crate::memory::{Image, Span};

const SQE_BYTES: u32 = 1 << Sqe::SIZE_LOG2;
const CQE_BYTES: u32 = 1 << Cqe::SIZE_LOG2;

/// A queue pair as the warp holds it during one step.
pub(super) struct Pair {
    sq: Span,
    cq: Span,
    pub(super) sq_entries: u32,
    cq_entries: u32,
    pub(super) sqid: u16,
    sq_head: u32,
    sq_tail: u32,
    cq_tail: u32,
    cq_head: u32,
    phase: u32,
}

impl Pair {
    #[inline(always)]
    pub(super) fn available(&self) -> u32 {
        distance(self.sq_head, self.sq_tail, self.sq_entries)
    }

    /// CQ slots that may be filled: one stays empty (3.3.1.2).
    #[inline(always)]
    pub(super) fn free(&self) -> u32 {
        self.cq_entries - 1 - distance(self.cq_head, self.cq_tail, self.cq_entries)
    }
}

/// Entries from `head` up to `tail` in a ring.
#[inline(always)]
fn distance(head: u32, tail: u32, entries: u32) -> u32 {
    if tail >= head {
        tail - head
    } else {
        tail + entries - head
    }
}

/// `index` advanced by `by` (not above `entries`) in a ring.
#[inline(always)]
fn advanced(index: u32, by: u32, entries: u32) -> u32 {
    let next = index + by;
    if next >= entries {
        next - entries
    } else {
        next
    }
}

/// What one step works with; the same on all lanes, but `lane`.
pub(super) struct Turn {
    pub(super) mask: u32,
    pub(super) lane: u32,
    pub(super) image: Image,
    pub(super) record: u64,
    pub(super) queue: u32,
}

impl Turn {
    /// Follows the controller when it has created or deleted the queue. True if there is one.
    #[inline(always)]
    pub(super) fn adopt(&self) -> bool {
        let requested = self.image.read(self.record + record::REQUESTED);
        let requested = warp::shuffle_sync(self.mask, requested, 0);
        let adopted = self.image.word(self.record + record::ADOPTED);
        if requested != adopted.load(Order::Relaxed) {
            // Ordering: acquire, so that the record's fields are those of this generation.
            Native::fence::<Device>(Order::AcqRel);
            warp::sync_mask(self.mask);
            if self.lane == 0 {
                // A new queue begins at slot 0 with phase 1.
                self.image
                    .write_pair(self.record + record::POSITION, [1 << 32, 0]);
                self.image.write_pair(self.record + record::PENDING, [0, 0]);
                // Ordering: release, so that a controller which sees the generation knows that
                // nothing of an older one is being posted any more.
                adopted.store(requested, Order::Release);
            }
            warp::sync_mask(self.mask);
        }
        requested & 1 == 1
    }

    /// Loads record and doorbells.
    #[inline(always)]
    pub(super) fn load(&self) -> Pair {
        let [entries, sqid] = self.image.read_pair(self.record + record::ENTRIES);
        let [position, seen] = self.image.read_pair(self.record + record::POSITION);
        let sq_entries = entries as u32;
        let cq_entries = (entries >> 32) as u32;
        let sq_tail = self.image.doorbell(self.record + record::SQ_DOORBELL);
        let cq_head = self.image.doorbell(self.record + record::CQ_DOORBELL);
        let rung = warp::shuffle_sync(self.mask, sq_tail as u64 | (cq_head as u64) << 32, 0);
        let cq_tail = position as u32 >> 16;
        let mut seen = seen;
        if rung != seen {
            seen = self.accept(rung, seen, sq_entries, cq_entries, cq_tail);
        }
        Pair {
            sq: self
                .image
                .ring(self.record + record::SQ, sq_entries, SQE_BYTES),
            cq: self
                .image
                .ring(self.record + record::CQ, cq_entries, CQE_BYTES),
            sq_entries,
            cq_entries,
            sqid: sqid as u16,
            sq_head: position as u32 & 0xffff,
            sq_tail: seen as u32,
            cq_tail,
            cq_head: (seen >> 32) as u32,
            phase: (position >> 32) as u32 & 1,
        }
    }

    /// New doorbell values: valid ones replace those seen before, others are counted once each. A
    /// tail is valid inside its ring, a head if it also releases nothing that was not posted: the
    /// room that waiting completions were promised never shrinks.
    #[inline(always)]
    fn accept(&self, rung: u64, seen: u64, sq_entries: u32, cq_entries: u32, cq_tail: u32) -> u64 {
        const SQ: u64 = u32::MAX as u64;
        let sq_valid = (rung as u32) < sq_entries;
        let (old, head) = ((seen >> 32) as u32, (rung >> 32) as u32);
        let cq_valid = head < cq_entries
            && distance(old, head, cq_entries) <= distance(old, cq_tail, cq_entries);
        let sq = if sq_valid { rung } else { seen } & SQ;
        let cq = if cq_valid { rung } else { seen } & !SQ;
        if !(sq_valid && cq_valid) && self.lane == 0 {
            let refused =
                if sq_valid { 0 } else { rung & SQ } | if cq_valid { 0 } else { rung & !SQ };
            let last = self.record + record::REFUSED;
            if self.image.read(last) != refused {
                self.image.write(last, refused);
                self.add(Counter::BadDoorbells, 1);
            }
        }
        sq | cq
    }

    /// Stores the position; the record is ready for the next step of the same warp.
    #[inline(always)]
    pub(super) fn store(&self, pair: &Pair) {
        warp::sync_mask(self.mask);
        if self.lane == 0 {
            let position =
                pair.sq_head as u64 | (pair.cq_tail as u64) << 16 | (pair.phase as u64) << 32;
            let seen = pair.sq_tail as u64 | (pair.cq_head as u64) << 32;
            self.image
                .write_pair(self.record + record::POSITION, [position, seen]);
        }
        warp::sync_mask(self.mask);
    }

    /// Fetches `count` commands, the lane's own if it is below, and moves the SQ head.
    #[inline(always)]
    pub(super) fn fetch(&self, pair: &mut Pair, count: u32) -> Command {
        // Ordering: pairs with the submitter's fence before its doorbell; the entries (and the
        // buffers of writes) are read after the tail.
        Native::fence::<System>(Order::AcqRel);
        let mut command = Command::NONE;
        if self.lane < count {
            let slot = advanced(pair.sq_head, self.lane, pair.sq_entries);
            let at = slot as u64 * SQE_BYTES as u64;
            let [w0, w1] = pair.sq.load16(at);
            let [w2, w3] = pair.sq.load16(at + 16);
            let [w4, w5] = pair.sq.load16(at + 32);
            let [w6, w7] = pair.sq.load16(at + 48);
            command = Command::decode(
                self.image,
                Sqe::from_words([w0, w1, w2, w3, w4, w5, w6, w7]),
            );
        }
        pair.sq_head = advanced(pair.sq_head, count, pair.sq_entries);
        warp::sync_mask(self.mask);
        command
    }

    /// Posts one CQE for each lane that is `ready`; collective. The caller has made sure that so
    /// many slots are free. `stale` ones get the phase of the lap before.
    #[inline(always)]
    pub(super) fn post(&self, pair: &mut Pair, ready: bool, cid: u16, status: Status, stale: bool) {
        let group = warp::ballot_sync(self.mask, ready);
        if group == 0 {
            return;
        }
        // Ordering: every lane's part of the data comes before every lane's CQE, for all agents.
        warp::sync_mask(self.mask);
        Native::fence::<System>(Order::AcqRel);
        let before = group & ((1 << self.lane) - 1);
        let index = pair.cq_tail + before.count_ones();
        let wrapped = index >= pair.cq_entries;
        if ready {
            let slot = if wrapped {
                index - pair.cq_entries
            } else {
                index
            };
            let phase = pair.phase ^ wrapped as u32 ^ stale as u32;
            let cqe = Cqe::new(cid, status, phase != 0).with_sq(pair.sqid, pair.sq_head as u16);
            pair.cq
                .publish16(slot as u64 * CQE_BYTES as u64, cqe.to_words());
        }
        let tail = pair.cq_tail + group.count_ones();
        if tail >= pair.cq_entries {
            pair.cq_tail = tail - pair.cq_entries;
            pair.phase ^= 1;
        } else {
            pair.cq_tail = tail;
        }
    }

    /// Adds the batch to the queue's counters.
    #[inline(always)]
    pub(super) fn count(&self, fetched: bool, command: &Command) {
        let failed = fetched && !command.status.is_success();
        let moved = fetched && !failed && command.bytes != 0;
        let reads = warp::ballot_sync(self.mask, moved && !command.writing()).count_ones();
        let writes = warp::ballot_sync(self.mask, moved && command.writing()).count_ones();
        let errors = warp::ballot_sync(self.mask, failed).count_ones();
        let all = warp::ballot_sync(self.mask, fetched).count_ones();
        // In 512-byte units, so that 32 transfers without MDTS fit.
        let units = warp::redux_add_sync(self.mask, if moved { command.bytes >> 9 } else { 0 });
        if self.lane == 0 {
            self.add(Counter::Reads, reads as u64);
            self.add(Counter::Writes, writes as u64);
            self.add(Counter::Bytes, (units as u64) << 9);
            self.add(Counter::Errors, errors as u64);
            self.add(Counter::Flushes, (all - reads - writes - errors) as u64);
        }
    }

    /// One writer, so no atomic addition: the host may read a moment-old value.
    #[inline(always)]
    fn add(&self, counter: Counter, by: u64) {
        let word = self.record + record::COUNTERS + counter as u64;
        if by != 0 {
            self.image.write(word, self.image.read(word) + by);
        }
    }
}

/// Order of the counters in a record; read by `Controller::counters`.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Reads,
    Writes,
    Bytes,
    Flushes,
    Errors,
    BadDoorbells,
}
