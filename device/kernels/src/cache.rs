//! Reads and nothing else: what a hit or a miss costs in each cache mode, beside plain loads.

use warpstore_device::prelude::*;

/// The reads of a launch, numbered through: of lane `n` at step `s` it is read `s × lanes + n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Elements of the array: a power of two.
    pub elements: u64,
    /// How far the elements of one read and the next one lie apart, modulo their number; odd, so that
    /// `elements` reads in a row are one of each. 1: a warp reads neighbours. Large: each lane reads from
    /// a line of its own.
    pub stride: u64,
}

impl Reads {
    /// Index of the element of read `number`.
    #[inline(always)]
    pub const fn index(self, number: u64) -> u64 {
        number.wrapping_mul(self.stride) & self.elements.wrapping_sub(1)
    }
}

/// Adds up `steps` elements a lane, see [`Reads`], whose length is a power of two; `sums[0]` gets the
/// sum of all lanes.
#[kernel]
#[launch_bounds(256, 4)]
pub fn cache_reads(
    numbers: Array<u32>,
    stride: u64,
    steps: u32,
    sums: Atomics<u64>,
) -> Result<(), IoError> {
    let elements = numbers.len();
    add_up(|index| numbers.get(index), elements, stride, steps, sums)
}

/// As [`cache_reads`], of GPU memory: the most that any mode could reach.
#[kernel]
#[launch_bounds(256, 4)]
pub fn cache_plain(
    numbers: Global<u32>,
    stride: u64,
    steps: u32,
    sums: Atomics<u64>,
) -> Result<(), IoError> {
    let elements = numbers.len();
    let get = |index| Ok(numbers.get(index).unwrap_or(0));
    add_up(get, elements, stride, steps, sums)
}

/// The body of these kernels, and of the baselines in `counted.rs`.
#[inline(always)]
pub(crate) fn add_up(
    mut get: impl FnMut(u64) -> Result<u32, IoError>,
    elements: u64,
    stride: u64,
    steps: u32,
    sums: Atomics<u64>,
) -> Result<(), IoError> {
    let (reads, lanes) = (Reads { elements, stride }, thread::grid_size());
    let (mut number, mut step, mut sum) = (thread::index_1d(), 0, 0);
    while step < steps {
        sum += u64::from(get(reads.index(number))?);
        number += lanes;
        step += 1;
    }
    sums.at(0).fetch_add(sum, Order::Relaxed);
    Ok(())
}
