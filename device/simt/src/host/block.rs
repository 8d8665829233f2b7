//! One resident block: its warps and its barrier.

use std::cell::Cell;

use super::launch::{Grid, Interleaving};
use super::warp::Warp;

/// What the lanes of a block and their worker share.
pub(crate) struct Block {
    idx: u32,
    grid: Grid,
    worker: u32,
    interleaving: Interleaving,
    warps: Vec<Warp>,
    /// Lanes that have not returned.
    alive: Cell<u32>,
    /// Lanes that wait at the barrier.
    at_barrier: Cell<u32>,
    /// When the worker first saw lanes at the barrier (`now_ns`), zero if it saw none.
    barrier_seen_ns: Cell<u64>,
}

impl Block {
    pub(crate) fn new(idx: u32, grid: Grid, worker: u32, interleaving: Interleaving) -> Self {
        let mut block = Self {
            idx,
            grid,
            worker,
            interleaving,
            warps: Vec::new(),
            alive: Cell::new(grid.block_dim),
            at_barrier: Cell::new(0),
            barrier_seen_ns: Cell::new(0),
        };
        block.warps = (0..grid.block_dim.div_ceil(32))
            .map(|warp| {
                let n_lanes = (grid.block_dim - warp * 32).min(32);
                // Warps draw from streams that no lane has: lanes are numbered below 1024.
                Warp::new(
                    u32::MAX >> (32 - n_lanes),
                    block.random_for(1024 + u64::from(warp)),
                )
            })
            .collect();
        block
    }

    pub(crate) fn idx(&self) -> u32 {
        self.idx
    }

    pub(crate) fn grid(&self) -> Grid {
        self.grid
    }

    pub(crate) fn worker(&self) -> u32 {
        self.worker
    }

    pub(crate) fn warp(&self, idx: u32) -> &Warp {
        &self.warps[idx as usize]
    }

    pub(crate) fn warps(&self) -> &[Warp] {
        &self.warps
    }

    pub(crate) fn alive(&self) -> u32 {
        self.alive.get()
    }

    pub(crate) fn at_barrier(&self) -> u32 {
        self.at_barrier.get()
    }

    /// Seed of the generator number `stream` of this block; zero if nothing is to be drawn.
    pub(crate) fn random_for(&self, stream: u64) -> u64 {
        match self.interleaving {
            Interleaving::None => 0,
            Interleaving::Seeded(seed) => {
                splitmix(splitmix(seed ^ u64::from(self.idx)).wrapping_add(stream)).max(1)
            }
        }
    }

    /// Brings a lane to the barrier. True if it was the last: the others run again.
    pub(crate) fn arrive_at_barrier(&self, thread_idx: u32) -> bool {
        self.warp(thread_idx / 32).wait_at_barrier(thread_idx % 32);
        self.at_barrier.set(self.at_barrier.get() + 1);
        self.open_barrier_if_complete()
    }

    /// Notes that a lane has returned. The barrier does not wait for it any more.
    pub(crate) fn finish(&self, thread_idx: u32) {
        self.warp(thread_idx / 32).finish(thread_idx % 32);
        self.alive.set(self.alive.get() - 1);
        self.open_barrier_if_complete();
    }

    fn open_barrier_if_complete(&self) -> bool {
        if self.at_barrier.get() == 0 || self.at_barrier.get() < self.alive.get() {
            return false;
        }
        self.at_barrier.set(0);
        self.barrier_seen_ns.set(0);
        self.warps.iter().for_each(Warp::leave_barrier);
        true
    }

    /// How long lanes have been seen at the barrier, at time `now_ns`.
    pub(crate) fn barrier_waited_ns(&self, now_ns: u64) -> u64 {
        if self.barrier_seen_ns.get() == 0 {
            self.barrier_seen_ns.set(now_ns.max(1));
            return 0;
        }
        now_ns.saturating_sub(self.barrier_seen_ns.get())
    }
}

/// One output of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators"): neighbouring seeds give unrelated values.
fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
