//! Two lanes of different workers pass a value in memory that is not atomic: in order, and not.
//!
//! For ThreadSanitizer (`cargo xtask test tsan`): the first test shows that the tool understands
//! our fences, the second, a bug on purpose, that it looks at what lanes do. The hardware here
//! would forgive both.
#![allow(unsafe_code, reason = "plain accesses of shared memory are the point")]
// UNSAFETY: the words are locals that outlive the launch; the race is what the test is for.

use std::cell::UnsafeCell;

use warpstore_simt::host::{Grid, Interleaving, Workers, launch};
use warpstore_simt::{Cell, Device, Native, NativeCell, Order, Platform, thread};

/// A plain word that one lane writes and another reads.
struct Plain(UnsafeCell<u64>);

// SAFETY: the lanes that share it synchronise, or a sanitizer is to find that they do not.
unsafe impl Sync for Plain {}

/// One lane writes a value and says so, another waits for that and reads the value. The first waits
/// until the second is there, so that they are on different workers.
fn pass_a_value(fence: fn(Order)) {
    let (value, mut here, mut ready) = (Plain(UnsafeCell::new(0)), 0, 0);
    // SAFETY: the word lives longer than the launch and is accessed by cells only.
    let here = unsafe { NativeCell::<u32, Device>::new(&raw mut here) };
    // SAFETY: as above.
    let ready = unsafe { NativeCell::<u32, Device>::new(&raw mut ready) };
    let wait_for = |word: NativeCell<u32, Device>| {
        let mut turn = 0;
        while word.load(Order::Relaxed) == 0 {
            Native::pause(turn);
            turn += 1;
        }
    };
    let grid = Grid {
        grid_dim: 2,
        block_dim: 1,
    };
    let workers = Workers {
        threads: 2,
        resident_blocks: 2,
    };
    let value = &value;
    let body = move || {
        if thread::block_idx_x() == 0 {
            wait_for(here);
            // SAFETY: nobody else writes the value.
            unsafe { value.0.get().write(7) };
            fence(Order::Release);
            ready.store(1, Order::Relaxed);
        } else {
            here.store(1, Order::Relaxed);
            wait_for(ready);
            fence(Order::Acquire);
            // SAFETY: it has been written, and is not written again.
            assert_eq!(unsafe { value.0.get().read() }, 7);
        }
    };
    launch(grid, workers, Interleaving::None, &body).unwrap();
}

#[test]
fn fences_order_a_value_that_is_passed() {
    pass_a_value(Native::fence::<Device>);
}

#[test]
#[ignore = "a race on purpose, which only ThreadSanitizer can see"]
fn a_value_that_is_passed_without_fences_is_a_race() {
    pass_a_value(|_| {});
}
