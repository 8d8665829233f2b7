//! Where the running thread stands in its grid, block barriers and time.
//!
//! One-dimensional launches only: that is all that the kernels of this project use. Outside a
//! launch (a plain host thread) the grid is one block of one thread.

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::lane as machine;
#[cfg(target_arch = "nvptx64")]
use crate::ptx::intrinsics as machine;

/// Index of the thread in its block.
#[inline(always)]
pub fn thread_idx_x() -> u32 {
    machine::thread_idx_x()
}

/// Index of the block in the grid.
#[inline(always)]
pub fn block_idx_x() -> u32 {
    machine::block_idx_x()
}

/// Threads in a block.
#[inline(always)]
pub fn block_dim_x() -> u32 {
    machine::block_dim_x()
}

/// Blocks in the grid.
#[inline(always)]
pub fn grid_dim_x() -> u32 {
    machine::grid_dim_x()
}

/// Index of the thread in the grid.
#[inline(always)]
pub fn index_1d() -> u64 {
    block_idx_x() as u64 * block_dim_x() as u64 + thread_idx_x() as u64
}

/// Threads in the grid.
#[inline(always)]
pub fn grid_size() -> u64 {
    grid_dim_x() as u64 * block_dim_x() as u64
}

/// The indices below `n` that belong to this thread when the whole grid shares them:
/// [`index_1d`], then every [`grid_size`]-th after it.
#[inline(always)]
pub fn grid_stride(n: u64) -> GridStride {
    GridStride {
        next: index_1d(),
        step: grid_size(),
        end: n,
    }
}

/// Iterator of [`grid_stride`].
#[derive(Clone, Debug)]
pub struct GridStride {
    next: u64,
    step: u64,
    end: u64,
}

impl Iterator for GridStride {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        if self.next >= self.end {
            return None;
        }
        let index = self.next;
        // An index past 2^64 is past every `end`.
        self.next = index.saturating_add(self.step);
        Some(index)
    }
}

/// Waits until every thread of the block that has not returned is here (`bar.sync 0`). Call it
/// in uniform control flow only. Memory written before it by any thread of the block is visible
/// after it to all of them.
#[inline(always)]
pub fn sync_threads() {
    machine::sync_threads();
}

/// Sleeps for roughly `ns` nanoseconds, at most twice that on the GPU, whose limit is 1 ms. A
/// lane on the host gives way once instead.
#[inline(always)]
pub fn nanosleep(ns: u32) {
    machine::nanosleep(ns);
}

/// A clock that all threads of the machine share. Nanoseconds, monotonic, arbitrary origin
/// (`%globaltimer` on the GPU, whose steps may be as long as 1 µs).
#[inline(always)]
pub fn now_ns() -> u64 {
    machine::now_ns()
}

/// The multiprocessor that runs this thread; on the host, the index of the worker thread.
#[inline(always)]
pub fn smid() -> u32 {
    machine::smid()
}

/// Cycle counter of the multiprocessor; on the host, [`now_ns`].
#[inline(always)]
pub fn clock64() -> u64 {
    machine::clock64()
}
