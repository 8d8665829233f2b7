//! Random block reads: what the queues and the SSDs can do, with nothing above them.

use warpstore_device::prelude::*;

/// The word (8 bytes) that the benchmark's media hold at word `index` of the SSD: a mixture of
/// the index, so that a block from the wrong place is noticed.
#[inline(always)]
pub const fn media_word(index: u64) -> u64 {
    mix(index ^ 0x9E37_79B9_7F4A_7C15)
}

/// A bijective mixture of the bits of `x` (the finalizer of MurmurHash3, by Austin Appleby, public
/// domain).
#[inline(always)]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ (x >> 33)
}

/// Whether a random word of `block` and the last, which comes last, are as they should be. A function of
/// its own, so that the lane that reads has no registers for it.
#[inline(never)]
fn holds(blocks: Blocks, buffer: u64, block: u64, random: u64) -> bool {
    // A power of two, at least 64.
    let words = blocks.block_bytes() / 8;
    let last = words - 1;
    let is_right = |index| blocks.word(buffer, index) == media_word(block * words + index);
    is_right(random & last) && is_right(last)
}

/// Reads `rounds` random blocks a lane, one after the other.
///
/// The launch has exactly as many lanes as `blocks` has buffers, a multiple of 32. Lane `n`'s
/// command of round `r` is number `r × lanes + n`: its latency (ns) goes to that place of
/// `latencies`. Blocks are drawn from the first `span_blocks` of each SSD, SSDs in turn by warp
/// and round. With `verify` (0 or 1) a random word of every block, and the last, which comes last, are
/// compared with [`media_word`]; `wrong[0]` counts the blocks of which one differs.
#[kernel]
#[launch_bounds(256)]
pub fn iops(
    blocks: Blocks,
    span_blocks: u64,
    rounds: u32,
    seed: u64,
    verify: u32,
    mut latencies: DisjointSlice<u32>,
    wrong: Atomics<u64>,
) -> Result<(), IoError> {
    let lane = thread::index_1d();
    let lanes = thread::grid_size();
    let mut round = 0;
    while round < rounds {
        let command = u64::from(round) * lanes + lane;
        let random = mix(seed ^ mix(command));
        // The high half of a product maps a random number to a range without a division.
        let block = ((u128::from(random) * u128::from(span_blocks)) >> 64) as u64;
        let ssd = (lane as u32 / 32).wrapping_add(round) % blocks.ssds();
        let start = thread::now_ns();
        blocks.read(ssd, block, lane)?;
        latencies.set(command, (thread::now_ns() - start) as u32);
        if verify != 0 && !holds(blocks, lane, block, mix(random)) {
            wrong.at(0).fetch_add(1, Order::Relaxed);
        }
        round += 1;
    }
    Ok(())
}
