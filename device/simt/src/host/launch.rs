//! Launching a kernel body on host threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::fault::LaunchFault;
use super::worker::Worker;

/// Size of a launch, as on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks, at least 1.
    pub grid_dim: u32,
    /// Threads in a block, 1 to 1024.
    pub block_dim: u32,
}

/// What a launch may use of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// OS threads; 0 counts as 1.
    pub threads: usize,
    /// Blocks that run at the same time, over all threads: each carries its share, rounded up,
    /// at least one. Blocks that wait for one another must all be resident.
    pub resident_blocks: usize,
}

/// When lanes give way, beyond where they must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleaving {
    /// Lanes run until they wait, `active_mask` gives all lanes that came. Fastest.
    None,
    /// Lanes also give way at about one memory access in eight, and `active_mask` gives subsets:
    /// for tests. The same seed on one worker thread gives the same run, as long as nothing
    /// outside the launch takes part.
    Seeded(u64),
}

/// How long a lane waits for lanes that could still come before the launch is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the workers of one launch share.
pub(crate) struct Launch<'a> {
    pub(crate) grid: Grid,
    pub(crate) interleaving: Interleaving,
    pub(crate) patience: Duration,
    pub(crate) body: &'a (dyn Fn() + Sync),
    next_block: AtomicU64,
    stopped: AtomicBool,
    fault: Mutex<Option<LaunchFault>>,
}

impl Launch<'_> {
    /// The next block that nobody has begun.
    pub(crate) fn take_block(&self) -> Option<u32> {
        let idx = self.next_block.fetch_add(1, Ordering::Relaxed);
        u32::try_from(idx)
            .ok()
            .filter(|&idx| idx < self.grid.grid_dim)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the launch. The first fault is the one that is reported: the others may follow from it.
    fn stop(&self, fault: LaunchFault) {
        let mut first = self
            .fault
            .lock()
            .expect("no worker panics while it reports");
        first.get_or_insert(fault);
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` once for each thread of the grid and returns when all have returned.
///
/// `body` finds out who it is by [`crate::thread`] and [`crate::warp`]. Each lane has a stack of
/// 256 KiB. Blocks begin in the order of their indices.
///
/// # Errors
/// A lane that panics, or waits in a collective for a lane that never comes, ends the launch:
/// see [`LaunchFault`]. The lanes of all workers are then unwound where they stand, as if they
/// panicked; their destructors run as outside a launch and must not wait.
pub fn launch(
    grid: Grid,
    workers: Workers,
    interleaving: Interleaving,
    body: &(dyn Fn() + Sync),
) -> Result<(), LaunchFault> {
    launch_with_patience(grid, workers, interleaving, PATIENCE, body)
}

pub(crate) fn launch_with_patience(
    grid: Grid,
    workers: Workers,
    interleaving: Interleaving,
    patience: Duration,
    body: &(dyn Fn() + Sync),
) -> Result<(), LaunchFault> {
    if grid.grid_dim == 0 || !(1..=1024).contains(&grid.block_dim) {
        return Err(LaunchFault::Grid(grid));
    }
    let launch = Launch {
        grid,
        interleaving,
        patience,
        body,
        next_block: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        fault: Mutex::new(None),
    };
    let n_threads = workers.threads.clamp(1, grid.grid_dim as usize);
    let residents = workers.resident_blocks.div_ceil(n_threads).max(1);
    thread::scope(|scope| {
        for idx in 0..n_threads {
            let launch = &launch;
            scope.spawn(move || {
                if let Err(fault) = Worker::new(launch, idx as u32, residents).run() {
                    launch.stop(fault);
                }
            });
        }
    });
    match launch
        .fault
        .into_inner()
        .expect("no worker panics while it reports")
    {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule;
    use super::*;
    use crate::{thread, warp};

    const SOON: Duration = Duration::from_millis(50);

    fn run(block_dim: u32, body: &(dyn Fn() + Sync)) -> LaunchFault {
        let workers = Workers {
            threads: 1,
            resident_blocks: 1,
        };
        let grid = Grid {
            grid_dim: 1,
            block_dim,
        };
        launch_with_patience(grid, workers, Interleaving::None, SOON, body)
            .expect_err("a lane waits for one that pauses for ever")
    }

    fn pause_for_ever() {
        for attempt in 0.. {
            schedule::pause(attempt);
        }
    }

    #[test]
    fn a_collective_gives_up_a_lane_that_keeps_pausing() {
        let fault = run(4, &|| match warp::lane_id() {
            2 => pause_for_ever(),
            _ => warp::sync_mask(0xf),
        });
        let LaunchFault::LaneNeverCame {
            expected,
            arrived,
            gone,
            ..
        } = fault
        else {
            panic!("{fault}");
        };
        assert_eq!((expected, arrived, gone), (0xf, 0xb, !0xf));
    }

    #[test]
    fn a_barrier_gives_up_a_lane_that_keeps_pausing() {
        let fault = run(40, &|| match thread::thread_idx_x() {
            35 => pause_for_ever(),
            _ => thread::sync_threads(),
        });
        let LaunchFault::BarrierNeverOpened {
            expected, arrived, ..
        } = fault
        else {
            panic!("{fault}");
        };
        assert_eq!((expected, arrived), (40, 39));
    }
}
