//! Random writes and additions: what becomes of data that kernels change.

use warpstore_device::counted::Reader;
use warpstore_device::prelude::*;

use crate::iops::mix;

/// What a lane does at one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read one of the lane's own values, and look whether it is one that the lane wrote.
    Get {
        /// Which value.
        index: u64,
    },
    /// Write one of the lane's own values.
    Set {
        /// Which value.
        index: u64,
        /// See [`value`].
        value: u64,
    },
    /// Add to any of the sums.
    Add {
        /// Which sum.
        index: u64,
        /// What is added, 1 to 256.
        addend: u64,
    },
}

/// The value that step `step` writes to `index`, counted from 1; 0 is what was there at first. The
/// index stands in it, so that a value in the wrong place shows.
#[inline(always)]
pub const fn value(index: u64, step: u32) -> u64 {
    index << 32 | step as u64
}

/// The run that all lanes do together, each its part.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Number of lanes; lane `n` alone writes the values `n`, `n + lanes`, ….
    pub lanes: u64,
    /// Values of each lane.
    pub values_each: u64,
    /// Number of sums.
    pub sums: u64,
    /// Where random choices begin.
    pub seed: u64,
}

impl Run {
    /// What `lane` does at step `step` (from 1): half of the steps add, three eighths write, one
    /// eighth reads.
    #[inline(always)]
    pub const fn step(&self, lane: u64, step: u32) -> Step {
        let random = mix(self.seed ^ mix(lane << 32 | step as u64));
        // The low three bits choose what; the high half of a product maps the rest to a range.
        let draw = random >> 3 << 3;
        if random & 7 < 4 {
            return Step::Add {
                index: scale(draw, self.sums),
                addend: 1 + (mix(random) & 0xFF),
            };
        }
        let index = lane + self.lanes * scale(draw, self.values_each);
        if random & 7 == 4 {
            Step::Get { index }
        } else {
            Step::Set {
                index,
                value: value(index, step),
            }
        }
    }
}

/// Maps a random number to 0..`range`.
#[inline(always)]
const fn scale(random: u64, range: u64) -> u64 {
    ((random as u128 * range as u128) >> 64) as u64
}

/// Does `steps` random steps a lane, see [`Run`]. `wrong[0]` counts values read that the lane
/// cannot have written.
#[kernel]
#[launch_bounds(256, 4)]
pub fn rw(
    values: ArrayMut<u64>,
    sums: ArrayMut<u64>,
    values_each: u64,
    steps: u32,
    seed: u64,
    wrong: Atomics<u64>,
) -> Result<(), IoError> {
    change(*values, values, sums, values_each, steps, seed, wrong)
}

/// The body of [`rw`], and of its baselines in `counted.rs`; `reader` reads the values.
#[inline(always)]
pub(crate) fn change(
    mut reader: impl Reader<u64>,
    values: ArrayMut<u64>,
    sums: ArrayMut<u64>,
    values_each: u64,
    steps: u32,
    seed: u64,
    wrong: Atomics<u64>,
) -> Result<(), IoError> {
    let lane = thread::index_1d();
    let run = Run {
        lanes: thread::grid_size(),
        values_each,
        sums: sums.len(),
        seed,
    };
    let mut step = 1;
    while step <= steps {
        match run.step(lane, step) {
            Step::Get { index } => {
                let found = reader.get(index)?;
                if found >> 32 != index || found as u32 >= step {
                    wrong.at(0).fetch_add(1, Order::Relaxed);
                }
            }
            Step::Set { index, value } => values.set(index, value)?,
            Step::Add { index, addend } => {
                sums.fetch_add(index, addend)?;
            }
        }
        step += 1;
    }
    Ok(())
}
