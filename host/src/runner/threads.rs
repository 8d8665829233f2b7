//! The `threads` runner: lanes are coroutines on OS threads.

use std::time::Instant;

use warpstore_device::host::{Grid, Interleaving, Workers, launch};
use warpstore_device::launch::Kernel;

use super::LaunchConfig;
use crate::Error;
use crate::buffer::Buffer;

/// Threads of a block where the caller does not care.
const BLOCK: u32 = 32;

/// Runs kernels on host threads.
pub struct ThreadsRunner {
    lanes: u32,
    threads: usize,
    interleaving: Interleaving,
}

impl ThreadsRunner {
    /// A runner that keeps `lanes` lanes in flight, on a thread for every core but one, which is
    /// left to the emulated SSDs.
    pub fn new(lanes: u32) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            lanes: lanes.max(1).next_multiple_of(BLOCK),
            threads: cores.saturating_sub(1).max(1),
            interleaving: Interleaving::None,
        }
    }

    /// The same runner with random yields and random converged masks, on at least two threads:
    /// for tests.
    pub fn interleaved(mut self, seed: u64) -> Self {
        self.interleaving = Interleaving::Seeded(seed);
        self.threads = self.threads.max(2);
        self
    }

    pub(super) fn fill(&self) -> LaunchConfig {
        LaunchConfig {
            blocks: self.lanes / BLOCK,
            threads: BLOCK,
        }
    }

    pub(super) fn run<K: Kernel>(
        &self,
        config: LaunchConfig,
        status: &Buffer,
        args: K::Args,
    ) -> Result<f64, Error> {
        let grid = Grid {
            grid_dim: config.blocks,
            block_dim: config.threads,
        };
        let resident_blocks = (self.lanes / config.threads).max(1) as usize;
        let workers = Workers {
            threads: self.threads,
            resident_blocks,
        };
        let slot = status.status_slot();
        let begin = Instant::now();
        launch(grid, workers, self.interleaving, &|| K::run(slot, args)).map_err(|fault| {
            Error::Lane {
                kernel: K::NAME,
                fault,
            }
        })?;
        Ok(begin.elapsed().as_secs_f64())
    }
}
