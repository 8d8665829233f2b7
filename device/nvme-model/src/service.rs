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
//! - A doorbell value beyond the ring, and a CQ head beyond what was posted, is ignored and
//!   counted (3.3.1).
//!
//! This does not do arbitration between queues beyond round robin, interrupts, or fused commands.

mod faults;
mod pair;
mod pending;

use nvme_wire::Status;
use warpstore_simt::{Cell, Native, Order, Platform, warp};

use crate::command::Command;
use crate::layout::{header, mode, record_of};
use crate::memory::{Image, Service};
use crate::transfer::transfer;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use pair::Counter;
use pair::{Pair, Turn};

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
            let timed = image.read(header::MODE) != 0;
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
    // One shuffle for both: all lanes go the same way, at the same time.
    let agreed = now << mode::BITS | image.read(header::MODE);
    let agreed = warp::shuffle_sync(turn.mask, agreed, 0);
    let (now, mode) = (agreed >> mode::BITS, agreed & ((1 << mode::BITS) - 1));
    if mode & !mode::TIMED != 0 {
        return false;
    }
    let mut pair = turn.load();
    if mode == 0 {
        turn.step_ideal::<LANES>(&mut pair)
    } else {
        turn.step_timed::<LANES>(&mut pair, now)
    }
}

impl Turn {
    /// No modelled time: what is fetched is posted in the same step.
    #[inline(always)]
    fn step_ideal<const LANES: u32>(&self, pair: &mut Pair) -> bool {
        let count = least(pair.available(), pair.free(), LANES);
        if count == 0 {
            return false;
        }
        let mut command = self.fetch(pair, count);
        command.status = self.execute::<LANES>(&command);
        self.post(pair, self.lane < count, command.cid, command.status, false);
        self.count(self.lane < count, &command);
        self.store(pair);
        true
    }

    /// Carries out each lane's command; the status of the lane's own. Collective.
    #[inline(always)]
    fn execute<const LANES: u32>(&self, command: &Command) -> Status {
        let page = self.image.read(header::PAGE);
        let transfer = || transfer::<LANES>(self.mask, self.lane, self.image, page, command);
        #[cfg(not(target_arch = "nvptx64"))]
        return self.image.keep(command, transfer);
        // Memory of a GPU is as durable as it gets.
        #[cfg(target_arch = "nvptx64")]
        transfer()
    }
}

#[inline(always)]
fn least(a: u32, b: u32, c: u32) -> u32 {
    let ab = if a < b { a } else { b };
    if ab < c { ab } else { c }
}
