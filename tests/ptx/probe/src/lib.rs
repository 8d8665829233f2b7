//! Small kernels, right and wrong ones, on which the checks of PTX are proven.
//!
//! The first half shows that the compiler keeps what the protocols rely on; the kernels whose
//! names begin with `wrong_` break a rule each, so that the check for it is seen to fail.
#![no_std]

use core::sync::atomic::{AtomicU32, Ordering};

use warpstore_macros::{kernel, launch_bounds};
use warpstore_simt::{
    Cell, Cells, Device, Native, NativeCell, NativeCells, Order, Platform, System, thread, warp,
};

/// A barrier between two branches on the same condition: one site, not one in each arm.
#[launch_bounds(256, 2)]
#[kernel]
pub fn one_barrier(words: NativeCells<u64, Device>) {
    let lane = u64::from(thread::thread_idx_x());
    let mut value = 0;
    if lane > 3 {
        value = words.at(lane).load(Order::Relaxed);
    }
    thread::sync_threads();
    if lane > 3 {
        words.at(lane).store(value + 1, Order::Relaxed);
    }
}

/// The mask of each arm of a divergent branch is read in that arm: two sites.
#[kernel]
pub fn mask_in_each_arm(words: NativeCells<u64, Device>) {
    let lane = u64::from(warp::lane_id());
    if lane.is_multiple_of(3) {
        words
            .at(lane)
            .store(u64::from(warp::active_mask()), Order::Relaxed);
    } else {
        words
            .at(lane)
            .fetch_or(u64::from(warp::active_mask()), Order::Relaxed);
    }
}

/// A vote whose result only some lanes use stays in front of the branch, with all lanes.
#[kernel]
pub fn vote_before_branch(words: NativeCells<u64, Device>) {
    let lane = u64::from(warp::lane_id());
    let votes = warp::ballot_sync(u32::MAX, words.at(lane).load(Order::Relaxed) > 0);
    if lane < 8 {
        words.at(lane).store(u64::from(votes), Order::Relaxed);
    }
}

/// One collective of each kind.
#[kernel]
pub fn collectives(words: NativeCells<u64, Device>) {
    let mask = warp::active_mask();
    let lane = u64::from(warp::lane_id());
    let word = words.at(lane).load(Order::Relaxed);
    let same = warp::match_any_u64_sync(mask, word);
    let first = warp::shuffle_sync(mask, word as u32, warp::leader(mask));
    let sum = warp::redux_add_sync(mask, same ^ first);
    let some = warp::any_sync(mask, sum > 7);
    warp::sync_mask(mask);
    words
        .at(lane)
        .store(u64::from(sum) + u64::from(some), Order::Relaxed);
}

/// How a submitter publishes: a fence at the scope of the controller, then the doorbell.
#[kernel]
pub fn fence_then_doorbell(ring: NativeCells<u64, System>, doorbell: NativeCell<u32, System>) {
    Native::store_pair(ring, 0, [1, 2]);
    Native::fence::<System>(Order::AcqRel);
    Native::ring(doorbell, 1);
}

/// How a store comes before a load, seen by everybody.
#[kernel]
pub fn store_then_load(words: NativeCells<u64, System>, out: NativeCell<u64, System>) {
    words.at(0).store(1, Order::Relaxed);
    Native::full_fence::<System>();
    out.store(words.at(1).load(Order::Relaxed), Order::Relaxed);
}

/// How lanes of one GPU order their words.
#[kernel]
pub fn device_fence(words: NativeCells<u64, Device>) {
    words.at(0).store(1, Order::Relaxed);
    Native::fence::<Device>(Order::AcqRel);
    words.at(1).fetch_add(1, Order::Release);
}

/// A hit returns without a call and without the stack; what is rare is a call.
#[kernel]
#[max_registers(32)]
pub fn hit_or_call(words: NativeCells<u64, Device>, out: NativeCell<u64, Device>) {
    let lane = thread::index_1d();
    let mut word = words.at(lane).load(Order::Acquire);
    if word == 0 {
        word = wait(words, lane);
    }
    out.fetch_add(word, Order::Relaxed);
}

#[cold]
#[inline(never)]
fn wait(words: NativeCells<u64, Device>, lane: u64) -> u64 {
    let mut attempt = 0;
    while words.at(lane).load(Order::Acquire) == 0 && attempt < 100 {
        Native::pause(attempt);
        attempt += 1;
    }
    words.at(lane).load(Order::Relaxed)
}

/// An optimistic hit: a word, the data that it names, and the word again at an address that
/// depends on the data; `zero` is 0. What is rare is behind a branch.
#[kernel]
pub fn hit_in_order(
    table: NativeCells<u64, Device>,
    slots: NativeCells<u64, Device>,
    zero: u64,
    out: NativeCell<u64, Device>,
) {
    let line = thread::index_1d();
    let word = table.at(line).load(Order::Relaxed);
    let data = slots.at(word >> 1).load(Order::Relaxed);
    if table.at(line + (data & zero)).load(Order::Relaxed) == word {
        if word & 1 == 0 {
            table.at(line).fetch_or(1, Order::Relaxed);
        }
        out.store(data, Order::Relaxed);
    }
}

/// Breaks "the second load of the table depends on the data".
#[kernel]
pub fn wrong_order(
    table: NativeCells<u64, Device>,
    slots: NativeCells<u64, Device>,
    out: NativeCell<u64, Device>,
) {
    let line = thread::index_1d();
    let word = table.at(line).load(Order::Relaxed);
    let data = slots.at(word >> 1).load(Order::Relaxed);
    if table.at(line).load(Order::Relaxed) == word {
        out.store(data, Order::Relaxed);
    }
}

/// Breaks "a hit has no fence".
#[kernel]
pub fn wrong_fence(
    table: NativeCells<u64, Device>,
    slots: NativeCells<u64, Device>,
    zero: u64,
    out: NativeCell<u64, Device>,
) {
    let line = thread::index_1d();
    let word = table.at(line).load(Order::Relaxed);
    let data = slots.at(word >> 1).load(Order::Relaxed);
    Native::fence::<Device>(Order::Acquire);
    if table.at(line + (data & zero)).load(Order::Relaxed) == word {
        out.store(data, Order::Relaxed);
    }
}

/// Breaks "a hit has no atomic": every hit leaves its mark.
#[kernel]
pub fn wrong_mark(
    table: NativeCells<u64, Device>,
    slots: NativeCells<u64, Device>,
    zero: u64,
    out: NativeCell<u64, Device>,
) {
    let line = thread::index_1d();
    let word = table.at(line).fetch_or(1, Order::Relaxed);
    let data = slots.at(word >> 1).load(Order::Relaxed);
    if table.at(line + (data & zero)).load(Order::Relaxed) == word {
        out.store(data, Order::Relaxed);
    }
}

/// Breaks "every atomic names its order and scope": core's do not on this target.
#[kernel]
pub fn wrong_atomic(value: u32) {
    static WORD: AtomicU32 = AtomicU32::new(0);
    WORD.fetch_add(value, Ordering::AcqRel);
}

/// Breaks "a hit calls nothing": every lane calls.
#[kernel]
pub fn wrong_call(words: NativeCells<u64, Device>, out: NativeCell<u64, Device>) {
    let word = wait(words, thread::index_1d());
    out.fetch_add(word, Order::Relaxed);
}

/// Breaks "a hit keeps off the stack": an array with a computed index lives there.
#[kernel]
pub fn wrong_stack(words: NativeCells<u64, Device>, index: u64) {
    let mut local = [0_u64; 8];
    for (at, slot) in (0_u64..).zip(&mut local) {
        *slot = words.at(at).load(Order::Relaxed);
    }
    let picked = local[(index & 7) as usize];
    words.at(0).store(picked, Order::Relaxed);
}

/// Breaks "no kernel panics": an index that is not checked before.
#[kernel]
pub fn wrong_panic(out: NativeCell<u32, Device>, index: u64) {
    static TABLE: [u32; 3] = [7, 1, 4];
    out.store(TABLE[index as usize], Order::Relaxed);
}
