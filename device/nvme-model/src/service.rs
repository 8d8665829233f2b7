//! The I/O service: what a controller does between a doorbell and a completion.
//!
//! ```text
//! SQ tail doorbell → fetch ≤ 32 SQEs, one a lane → check → move data by PRP ─┬─ ideal ─→ CQEs
//!                                                                            └─ timed ─→ pending ring ─ due ─→ CQEs
//! ```
//!
//! One warp serves a queue pair; nobody else writes the queue's position, so it needs no lock.
//! Rules kept, all from the base specification:
//! - No CQE goes into a slot that the submitter has not released by the CQ head doorbell, and
//!   nothing is fetched that could not be completed (3.3.1.2).
//! - The data of a command is visible to every agent before its CQE, and a CQE's phase not
//!   before the rest of it (3.3.3.2).
//! - SQHD says how far the submission ring has been fetched (3.3.3.2).
//! - A doorbell value beyond the ring is ignored and counted (3.3.1).
//!
//! This does not do arbitration between queues beyond round robin, interrupts, or fused commands.

use nvme_wire::{Cqe, Sqe, Status};
use warpstore_simt::{Cell, Native, Order, Platform, System, warp};

use crate::command::Command;
use crate::layout::{header, pending, record, record_of};
use crate::memory::{Image, Service, Span};
use crate::timing;
use crate::transfer::transfer;

const SQE_BYTES: u32 = 1 << Sqe::SIZE_LOG2;
const CQE_BYTES: u32 = 1 << Cqe::SIZE_LOG2;
/// Pending commands, from the oldest on, among which a due one may overtake.
const WINDOW: u32 = 32;
/// Turns without a look at the stop word, which may lie behind PCIe.
const TURNS_PER_LOOK: u32 = 64;

/// Serves the queue pairs `worker`, `worker + workers`, … of all models in turn, until the
/// service's stop word or deadline.
///
/// Warp-collective with `LANES` = 32 (all lanes of a full warp call it, `worker` is the warp's
/// index in the grid); `LANES` = 1 on a host thread. Each queue pair must have exactly one
/// worker.
#[inline(always)]
pub fn serve<const LANES: u32>(service: Service, worker: u32, workers: u32) {
    let mask = mask_of::<LANES>();
    let lane = lane_of::<LANES>();
    announce(service, mask, lane, 1);
    let mut turn = 0u32;
    let mut idle = 0u32;
    loop {
        if turn.is_multiple_of(TURNS_PER_LOOK) {
            let over = warp::shuffle_sync(mask, service.is_over() as u32, 0);
            if over != 0 {
                break;
            }
        }
        turn = turn.wrapping_add(1);
        if serve_once::<LANES>(service, worker, workers) {
            idle = 0;
        } else {
            Native::pause(idle);
            idle = idle.saturating_add(1);
        }
    }
    announce(service, mask, lane, u64::MAX);
}

/// One turn of [`serve`]: one [`step`] of each of the worker's queue pairs. True if any worked.
#[inline(always)]
pub fn serve_once<const LANES: u32>(service: Service, worker: u32, workers: u32) -> bool {
    let mut worked = false;
    let mut queue = worker;
    let mut model = 0;
    while model < service.count() {
        let image = service.image(model);
        let queues = image.read(header::QUEUES) as u32;
        while queue < queues {
            let timed = image.read(header::TIMED) != 0;
            let now = if timed { Native::now_ns() } else { 0 };
            worked |= step::<LANES>(image, queue, now);
            queue += workers;
        }
        queue -= queues;
        model += 1;
    }
    worked
}

/// Adds `count` to the number of warps that serve each model: a controller that deletes a queue
/// waits for the service only if there is one.
#[inline(always)]
fn announce(service: Service, mask: u32, lane: u32, count: u64) {
    let mut model = 0;
    while model < service.count() {
        if lane == 0 {
            service
                .image(model)
                .word(header::SERVING)
                .fetch_add(count, Order::AcqRel);
        }
        model += 1;
    }
    warp::sync_mask(mask);
}

#[inline(always)]
fn mask_of<const LANES: u32>() -> u32 {
    if LANES == 32 { u32::MAX } else { 1 }
}

#[inline(always)]
fn lane_of<const LANES: u32>() -> u32 {
    if LANES == 32 { warp::lane_id() } else { 0 }
}

/// Serves queue pair `queue` of `image` once: fetches and executes up to `LANES` commands and
/// posts what is due at `now` (ns; unused by an untimed model). True if anything was done or is
/// still to be posted.
///
/// Warp-collective, see [`serve`].
#[inline(always)]
pub fn step<const LANES: u32>(image: Image, queue: u32, now: u64) -> bool {
    let turn = Turn {
        mask: mask_of::<LANES>(),
        lane: lane_of::<LANES>(),
        image,
        record: record_of(queue),
        queue,
    };
    if !turn.adopt() {
        return false;
    }
    let now = warp::shuffle_sync(turn.mask, now, 0);
    let mut pair = turn.load();
    if image.read(header::TIMED) == 0 {
        turn.step_ideal::<LANES>(&mut pair)
    } else {
        turn.step_timed::<LANES>(&mut pair, now)
    }
}

/// A queue pair as the warp holds it during one step.
struct Pair {
    sq: Span,
    cq: Span,
    sq_entries: u32,
    cq_entries: u32,
    sqid: u16,
    sq_head: u32,
    sq_tail: u32,
    cq_tail: u32,
    cq_head: u32,
    phase: u32,
}

impl Pair {
    #[inline(always)]
    fn available(&self) -> u32 {
        distance(self.sq_head, self.sq_tail, self.sq_entries)
    }

    /// CQ slots that may be filled: one stays empty (3.3.1.2).
    #[inline(always)]
    fn free(&self) -> u32 {
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
struct Turn {
    mask: u32,
    lane: u32,
    image: Image,
    record: u64,
    queue: u32,
}

impl Turn {
    /// Follows the controller when it has created or deleted the queue. True if there is one.
    #[inline(always)]
    fn adopt(&self) -> bool {
        // Ordering: acquire, so that the record's fields are those of this generation.
        let requested = self
            .image
            .word(self.record + record::REQUESTED)
            .load(Order::Acquire);
        let requested = warp::shuffle_sync(self.mask, requested, 0);
        let adopted = self.image.word(self.record + record::ADOPTED);
        if requested != adopted.load(Order::Relaxed) {
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
    fn load(&self) -> Pair {
        let [entries, sqid] = self.image.read_pair(self.record + record::ENTRIES);
        let [position, seen] = self.image.read_pair(self.record + record::POSITION);
        let sq_entries = entries as u32;
        let cq_entries = (entries >> 32) as u32;
        let sq_tail = self.image.doorbell(self.record + record::SQ_DOORBELL);
        let cq_head = self.image.doorbell(self.record + record::CQ_DOORBELL);
        let rung = warp::shuffle_sync(self.mask, sq_tail as u64 | (cq_head as u64) << 32, 0);
        let mut seen = seen;
        if rung != seen {
            seen = self.accept(rung, seen, sq_entries, cq_entries);
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
            cq_tail: position as u32 >> 16,
            cq_head: (seen >> 32) as u32,
            phase: (position >> 32) as u32 & 1,
        }
    }

    /// New doorbell values: those inside their ring replace the ones seen before, others are
    /// counted once each.
    #[inline(always)]
    fn accept(&self, rung: u64, seen: u64, sq_entries: u32, cq_entries: u32) -> u64 {
        const SQ: u64 = u32::MAX as u64;
        let sq_valid = (rung as u32) < sq_entries;
        let cq_valid = ((rung >> 32) as u32) < cq_entries;
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
    fn store(&self, pair: &Pair) {
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
    fn fetch(&self, pair: &mut Pair, count: u32) -> Command {
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
    /// many slots are free.
    #[inline(always)]
    fn post(&self, pair: &mut Pair, ready: bool, cid: u16, status: Status) {
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
            let phase = pair.phase ^ wrapped as u32;
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

    /// No modelled time: what is fetched is posted in the same step.
    #[inline(always)]
    fn step_ideal<const LANES: u32>(&self, pair: &mut Pair) -> bool {
        let count = least(pair.available(), pair.free(), LANES);
        if count == 0 {
            return false;
        }
        let mut command = self.fetch(pair, count);
        let page = self.image.read(header::PAGE);
        command.status = transfer::<LANES>(self.mask, self.lane, self.image, page, &command);
        self.post(pair, self.lane < count, command.cid, command.status);
        self.count(self.lane < count, &command);
        self.store(pair);
        true
    }

    /// Modelled time: data moves at once, completions wait in the pending ring.
    #[inline(always)]
    fn step_timed<const LANES: u32>(&self, pair: &mut Pair, now: u64) -> bool {
        let waiting = self.image.read(self.record + record::PENDING);
        let mut ring = Pending {
            queues: self.image.read(header::QUEUES),
            mask: self.image.read(header::PENDING_MASK) as u32,
            head: waiting as u32,
            tail: (waiting >> 32) as u32,
        };
        let reserved = ring.tail.wrapping_sub(ring.head);
        let room = pair.free().saturating_sub(reserved);
        let count = least(
            pair.available(),
            least(room, ring.mask + 1 - reserved, LANES),
            LANES,
        );
        if count == 0 && reserved == 0 {
            return false;
        }
        if count != 0 {
            let mut command = self.fetch(pair, count);
            let page = self.image.read(header::PAGE);
            command.status = transfer::<LANES>(self.mask, self.lane, self.image, page, &command);
            let due = timing::due::<LANES>(
                self.mask,
                self.lane,
                self.image,
                now,
                command.writing,
                command.bytes,
                command.slba,
            );
            if self.lane < count {
                let entry = self.entry(&ring, ring.tail.wrapping_add(self.lane));
                let completion = command.cid as u64 | (command.status.bits() as u64) << 16;
                self.image.write_pair(entry, [due | WAITING, completion]);
            }
            ring.tail = ring.tail.wrapping_add(count);
            self.count(self.lane < count, &command);
            warp::sync_mask(self.mask);
        }
        self.post_due::<LANES>(pair, &mut ring, now);
        if self.lane == 0 {
            let waiting = ring.head as u64 | (ring.tail as u64) << 32;
            self.image.write(self.record + record::PENDING, waiting);
        }
        self.store(pair);
        true
    }

    /// Posts every due command among the oldest [`WINDOW`], then drops posted ones at the head.
    #[inline(always)]
    fn post_due<const LANES: u32>(&self, pair: &mut Pair, ring: &mut Pending, now: u64) {
        let first = ring.head;
        let mut leading = true;
        let mut base = 0;
        while base < WINDOW && base < ring.tail.wrapping_sub(first) {
            let place = first.wrapping_add(base).wrapping_add(self.lane);
            let inside = (ring.tail.wrapping_sub(place) as i32) > 0;
            let entry = self.entry(ring, place);
            let [due, completion] = if inside {
                self.image.read_pair(entry)
            } else {
                [WAITING - 1, 0]
            };
            let waits = due & WAITING != 0;
            let ready = inside && waits && due & !WAITING <= now;
            self.post(
                pair,
                ready,
                completion as u16,
                Status::from_bits((completion >> 16) as u16),
            );
            if ready {
                self.image.write(entry, 0);
            }
            let done = warp::ballot_sync(self.mask, inside && (ready || !waits));
            if leading {
                let run = (!done).trailing_zeros();
                let run = if run < LANES { run } else { LANES };
                ring.head = ring.head.wrapping_add(run);
                leading = run == LANES;
            }
            base += LANES;
        }
    }

    #[inline(always)]
    fn entry(&self, ring: &Pending, place: u32) -> u64 {
        let entries = ring.mask as u64 + 1;
        pending(
            ring.queues,
            entries,
            self.queue as u64,
            (place & ring.mask) as u64,
        )
    }

    /// Adds the batch to the queue's counters.
    #[inline(always)]
    fn count(&self, fetched: bool, command: &Command) {
        let failed = fetched && !command.status.is_success();
        let moved = fetched && !failed && command.bytes != 0;
        let reads = warp::ballot_sync(self.mask, moved && !command.writing).count_ones();
        let writes = warp::ballot_sync(self.mask, moved && command.writing).count_ones();
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

/// Marks a pending entry that has not been posted; its other bits are the due time.
const WAITING: u64 = 1 << 63;

/// A queue's pending ring: indices are free-running.
struct Pending {
    queues: u64,
    mask: u32,
    head: u32,
    tail: u32,
}

#[inline(always)]
fn least(a: u32, b: u32, c: u32) -> u32 {
    let ab = if a < b { a } else { b };
    if ab < c { ab } else { c }
}
