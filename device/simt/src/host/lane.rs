//! The lane that runs on this OS thread: its place in the grid and how it gives way.
#![allow(unsafe_code, reason = "a thread-local pointer to the running lane")]
// UNSAFETY: `CURRENT` is set only by `Lane::enter` and `Lane::suspend` to a lane on the running
// coroutine's own stack, and is null whenever the scheduler runs.

use std::cell::Cell;
use std::ptr;
use std::sync::LazyLock;
use std::time::Instant;

use corosensei::Yielder;

use super::block::Block;
use super::warp::Warp;

/// Why a lane handed control back to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspension {
    /// It waits for something outside its warp: run it again after everybody else.
    Paused,
    /// It was in the middle of its work: run it again in the next pass.
    Interleaved,
    /// It waits for lanes of its block, who will make it runnable.
    Waiting,
}

/// A running lane. Lives on the stack of its coroutine.
pub(crate) struct Lane<'a> {
    yielder: &'a Yielder<(), Suspension>,
    block: &'a Block,
    thread_idx: u32,
    /// State of the lane's xorshift generator; zero: never yields at an access.
    random: Cell<u64>,
}

thread_local! {
    static CURRENT: Cell<*const Lane<'static>> = const { Cell::new(ptr::null()) };
}

/// Hands `read` the lane that runs on this OS thread, or `None` outside a launch.
#[inline]
pub(crate) fn current<R>(read: impl FnOnce(Option<&Lane<'_>>) -> R) -> R {
    // SAFETY: a pointer in CURRENT is to a lane that lives on the stack this call runs on, below
    // this frame; `read` cannot keep the reference.
    read(unsafe { CURRENT.get().as_ref() })
}

impl<'a> Lane<'a> {
    /// Runs `body` as thread `thread_idx` of `block`.
    pub(crate) fn enter(
        yielder: &'a Yielder<(), Suspension>,
        block: &'a Block,
        thread_idx: u32,
        body: impl FnOnce(),
    ) {
        /// Leaves also when `body` unwinds.
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(ptr::null());
            }
        }
        let random = Cell::new(block.random_for(u64::from(thread_idx)));
        let lane = Lane {
            yielder,
            block,
            thread_idx,
            random,
        };
        let _leave = Leave;
        CURRENT.set(ptr::from_ref(&lane).cast());
        body();
    }

    /// Gives way. Returns when the worker resumes the lane; unwinds if the launch was given up,
    /// and then CURRENT stays null, so destructors run as outside a launch and never suspend.
    pub(crate) fn suspend(&self, reason: Suspension) {
        // A destructor of a lane that panics must not run half: other lanes would run while this
        // OS thread counts as panicking.
        if std::thread::panicking() {
            return;
        }
        CURRENT.set(ptr::null());
        self.yielder.suspend(reason);
        CURRENT.set(ptr::from_ref(self).cast());
    }

    /// Draws whether to give way at a memory access.
    #[inline]
    pub(crate) fn draws_to_yield(&self) -> bool {
        self.random.get() != 0 && next_random(&self.random).is_multiple_of(8)
    }

    pub(crate) fn warp(&self) -> &'a Warp {
        self.block.warp(self.thread_idx / 32)
    }

    /// Index in the warp.
    pub(crate) fn idx(&self) -> u32 {
        self.thread_idx % 32
    }
}

/// One step of xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled"), high half of the product. The state is not zero.
#[inline]
pub(crate) fn next_random(state: &Cell<u64>) -> u32 {
    let mut x = state.get();
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state.set(x);
    (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
}

pub(crate) fn thread_idx_x() -> u32 {
    current(|lane| lane.map_or(0, |lane| lane.thread_idx))
}

pub(crate) fn block_idx_x() -> u32 {
    current(|lane| lane.map_or(0, |lane| lane.block.idx()))
}

pub(crate) fn block_dim_x() -> u32 {
    current(|lane| lane.map_or(1, |lane| lane.block.grid().block_dim))
}

pub(crate) fn grid_dim_x() -> u32 {
    current(|lane| lane.map_or(1, |lane| lane.block.grid().grid_dim))
}

pub(crate) fn smid() -> u32 {
    current(|lane| lane.map_or(0, |lane| lane.block.worker()))
}

pub(crate) fn sync_threads() {
    current(|lane| {
        if let Some(lane) = lane
            && !std::thread::panicking()
            && !lane.block.arrive_at_barrier(lane.thread_idx)
        {
            lane.suspend(Suspension::Waiting);
        }
    });
}

pub(crate) fn nanosleep(ns: u32) {
    current(|lane| match lane {
        Some(lane) => lane.suspend(Suspension::Paused),
        None => std::thread::sleep(std::time::Duration::from_nanos(u64::from(ns))),
    });
}

pub(crate) fn now_ns() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    // 2^64 ns are 584 years.
    ORIGIN.elapsed().as_nanos() as u64
}

pub(crate) fn clock64() -> u64 {
    now_ns()
}
