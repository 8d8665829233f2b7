//! A crowd: every warp holds a line while its lanes read, write and add all over the arrays.
//!
//! Meant for caches with far fewer lines than there are warps. If an access could wait for
//! something that waits for it, this would end in time-outs ([DL-1]).

use core::num::NonZeroU64;

use warpstore_device::counted::Reader;
use warpstore_device::prelude::*;

/// The lanes of a warp.
const WARP: u64 = 32;

/// The run that all lanes do together.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Elements of each of the two arrays, a multiple of `line`.
    pub elements: NonZeroU64,
    /// Elements of a cache line, 64 or more.
    pub line: u64,
}

impl Crowd {
    /// First element of the line that the warp of `lane` holds in `round`: another one in each
    /// round and for each warp.
    #[inline(always)]
    pub fn held(&self, lane: u64, round: u64) -> u64 {
        (lane / WARP + round * 97) * self.line % self.elements
    }

    /// The element of its held line that `lane` writes in `round`.
    #[inline(always)]
    pub fn own(&self, lane: u64, round: u64) -> u64 {
        self.held(lane, round) + lane % WARP
    }

    /// What it writes there: never 0.
    #[inline(always)]
    pub fn value(&self, lane: u64, round: u64) -> u64 {
        1 + self.own(lane, round) + round
    }

    /// The sum to which `lane` adds 1 in `round`.
    #[inline(always)]
    pub fn sum(&self, lane: u64, round: u64) -> u64 {
        (self.own(lane, round) * 31 + round * 11) % self.elements
    }

    /// An element that `lane` only reads.
    #[inline(always)]
    fn elsewhere(&self, lane: u64, round: u64) -> u64 {
        (self.own(lane, round) * 7 + round) % self.elements
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Crowd {
    /// How arrays that were zero at first differ from what `lanes` lanes leave in them after `rounds`
    /// rounds, if they do. Of several lanes that write one number any may be the last.
    pub fn difference(
        &self,
        lanes: u64,
        rounds: u64,
        numbers: &[u64],
        sums: &[u64],
    ) -> Option<String> {
        let mut added = vec![0u64; self.elements.get() as usize];
        let mut written = vec![false; added.len()];
        let mut is_right = vec![false; added.len()];
        for (round, lane) in (0..rounds).flat_map(|round| (0..lanes).map(move |lane| (round, lane)))
        {
            added[self.sum(lane, round) as usize] += 1;
            let own = self.own(lane, round) as usize;
            written[own] = true;
            is_right[own] |= numbers[own] == self.value(lane, round);
        }
        for index in 0..added.len() {
            if sums[index] != added[index] {
                let (found, expected) = (sums[index], added[index]);
                return Some(format!(
                    "sum {index} is {found}, which should be {expected}"
                ));
            }
            if !is_right[index] && (written[index] || numbers[index] != 0) {
                return Some(format!(
                    "number {index} is {:#x}, which nobody wrote there",
                    numbers[index]
                ));
            }
        }
        None
    }
}

/// Does `rounds` rounds a lane; see [`Crowd`]. Both arrays are of the same length.
#[kernel]
#[launch_bounds(256, 2)]
pub fn crowd(numbers: ArrayMut<u64>, sums: ArrayMut<u64>, rounds: u64) -> Result<(), IoError> {
    join(*numbers, numbers, sums, rounds)
}

/// The body of [`crowd`], for kernels that read the numbers by another `reader`.
///
/// # Errors
/// Those of any access.
#[inline(always)]
pub fn join(
    mut reader: impl Reader<u64>,
    numbers: ArrayMut<u64>,
    sums: ArrayMut<u64>,
    rounds: u64,
) -> Result<(), IoError> {
    let lane = thread::index_1d();
    let Some(elements) = NonZeroU64::new(sums.len()) else {
        return Ok(());
    };
    let run = Crowd {
        elements,
        line: numbers.elements_per_line(),
    };
    let mut round = 0;
    while round < rounds {
        let held = run.held(lane, round);
        numbers.line_mut(held, |line| {
            // Inside: a read, a write and an addition that find the cache full of held lines.
            reader.get(run.elsewhere(lane, round))?;
            line.set(run.own(lane, round), run.value(lane, round))?;
            sums.fetch_add(run.sum(lane, round), 1)?;
            for number in reader.range(held..held + 4) {
                number?;
            }
            Ok::<(), IoError>(())
        })??;
        round += 1;
    }
    Ok(())
}
