//! When a command completes: the timing model.
//!
//! A drive is [`INSTANCES`] units that work side by side; a hash of the LBA picks one. A command
//! occupies its unit for a time that depends on direction and size, then takes a fixed minimum
//! latency. All drives of one link share its clock for each direction:
//!
//! ```text
//! unit_end = max(now, clock[unit]) + occupation(direction, bytes);   clock[unit] = unit_end
//! link_end = max(now, clock[link]) + bytes × 1.28 / raw link rate;   clock[link] = link_end
//! due      = max(unit_end, link_end) + minimum latency(direction)
//! ```
//!
//! Occupation is given at 512 bytes and 4 KiB: constant below, linear between, proportional to
//! the size above. 1.28 is what packet headers and acknowledgements add to small payloads.
//!
//! One batch makes one atomic update per unit and link, not one per command, because at tens of
//! millions of commands per second the clocks would otherwise be the limit.

use warpstore_simt::{Cell, Device, NativeCell, Order, warp};

use crate::layout::{INSTANCES, clock, header};
use crate::memory::Image;

/// Unit that the command at `slba` belongs to. Neighbouring LBAs spread over the units.
#[inline(always)]
pub(crate) const fn instance(slba: u64) -> u64 {
    // Fibonacci hashing: the top bits of a product with 2^64 / golden ratio.
    slba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - INSTANCES.ilog2())
}

/// Time in ns that a unit is occupied by `bytes`, from the times at 512 bytes and 4 KiB.
#[inline(always)]
pub(crate) const fn occupation(bytes: u64, [at_512, at_4096]: [u64; 2]) -> u64 {
    if bytes <= 512 {
        at_512
    } else if bytes < 4096 {
        (at_512 * (4096 - bytes) + at_4096 * (bytes - 512)) / (4096 - 512)
    } else {
        (at_4096 * bytes) >> 12
    }
}

/// Reserves time for each lane's command of `bytes`; lanes with 0 bytes reserve none.
/// Collective. Returns the time at which the lane's command is due.
#[inline(always)]
pub(crate) fn due<const LANES: u32>(
    mask: u32,
    lane: u32,
    image: Image,
    now: u64,
    writing: bool,
    bytes: u32,
    slba: u64,
) -> u64 {
    let active = bytes != 0;
    let points = image.read_pair(header::OCCUPATION + if writing { 2 } else { 0 });
    let unit = if active {
        instance(slba) as u32
    } else {
        u32::MAX
    };
    let unit_time = if active {
        occupation(bytes as u64, points) << FRACTION
    } else {
        0
    };
    let peers = warp::match_any_sync(mask, unit);
    let unit_clock = image.word(clock(unit as u64 % INSTANCES));
    let unit_end = reserve::<LANES>(mask, lane, peers, unit_clock, now, unit_time);

    let direction = if active { writing as u32 } else { u32::MAX };
    let peers = warp::match_any_sync(mask, direction);
    let link_end = match image.link_clock(writing) {
        Some(link_clock) => {
            let link_time = (bytes as u64 * image.read(header::LINK_PER_BYTE)) >> (20 - FRACTION);
            reserve::<LANES>(mask, lane, peers, link_clock, now, link_time)
        }
        None => now,
    };
    let end = if link_end > unit_end {
        link_end
    } else {
        unit_end
    };
    if active {
        end + image.read(header::MIN_LATENCY + writing as u64)
    } else {
        now
    }
}

/// Bits below the nanosecond in which a batch's times are summed: a block takes 14.6 ns of a
/// link, and rounding each would be an error of 4 %.
const FRACTION: u32 = 10;

/// Advances `clock` by the times of the lanes in `peers` and returns the end of the lane's own
/// share, shares in the order of the lanes. Collective over `mask`; the sets `peers` are disjoint
/// and every set has its own clock, and lanes without a command bring time 0.
#[inline(always)]
fn reserve<const LANES: u32>(
    mask: u32,
    lane: u32,
    peers: u32,
    clock: NativeCell<u64, Device>,
    now: u64,
    time: u64,
) -> u64 {
    let mut until = 0;
    let mut total = 0;
    let mut source = 0;
    while source < LANES {
        let theirs = warp::shuffle_sync(mask, time, source);
        if peers >> source & 1 != 0 {
            total += theirs;
            if source <= lane {
                until += theirs;
            }
        }
        source += 1;
    }
    let leader = warp::leader(peers);
    let mut start = now;
    if lane == leader && total != 0 {
        start = advance(clock, now, total.div_ceil(1 << FRACTION));
    }
    warp::sync_mask(mask);
    warp::shuffle_sync(mask, start, leader) + (until >> FRACTION)
}

/// Moves `clock` on by `time` from where it stands or from `now`, whichever is later; returns
/// that start.
#[inline(always)]
fn advance(clock: NativeCell<u64, Device>, now: u64, time: u64) -> u64 {
    let mut seen = clock.load(Order::Relaxed);
    loop {
        let start = if seen > now { seen } else { now };
        match clock.compare_exchange(seen, start + time, Order::Relaxed) {
            Ok(_) => return start,
            // Somebody else advanced it: progress for them, a new start for us.
            Err(found) => seen = found,
        }
    }
}
