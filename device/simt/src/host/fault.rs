//! Why a launch ended early.

use std::error::Error;
use std::fmt;
use std::io;
use std::panic::Location;

use super::collective::Operation;
use super::launch::Grid;

/// Why a launch ended early. Memory that the kernel wrote before stays written.
#[derive(Debug)]
pub enum LaunchFault {
    /// The grid is not one that a GPU would take.
    Grid(Grid),
    /// No memory for the stacks of lanes.
    Stack(io::Error),
    /// A lane panicked.
    Panic {
        /// Index of the block.
        block: u32,
        /// Index of the thread in the block.
        thread: u32,
        /// What it said.
        message: String,
    },
    /// Lanes wait in a collective for lanes that do not come.
    LaneNeverCame {
        /// Index of the block.
        block: u32,
        /// Index of the warp in the block.
        warp: u32,
        /// The collective.
        operation: Operation,
        /// Where a waiting lane called it.
        site: &'static Location<'static>,
        /// The lanes that it is for.
        expected: u32,
        /// Those that are there.
        arrived: u32,
        /// Lanes of the warp that have returned or are beyond the end of the block.
        gone: u32,
    },
    /// Lanes wait in `sync_threads` for lanes that keep pausing elsewhere.
    BarrierNeverOpened {
        /// Index of the block.
        block: u32,
        /// Threads of the block that have not returned.
        expected: u32,
        /// Threads at the barrier.
        arrived: u32,
    },
}

impl fmt::Display for LaunchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grid(Grid {
                grid_dim,
                block_dim,
            }) => write!(
                f,
                "cannot launch {grid_dim} blocks of {block_dim} threads: use at least one block, \
                 of 1 to 1024 threads"
            ),
            Self::Stack(_) => f.write_str(
                "no memory for the stacks of lanes: run fewer blocks at once, or raise \
                 vm.max_map_count (two mappings a lane)",
            ),
            Self::Panic {
                block,
                thread,
                message,
            } => {
                write!(f, "block {block}, thread {thread} panicked: {message}")
            }
            Self::LaneNeverCame {
                block,
                warp,
                operation,
                site,
                expected,
                arrived,
                gone,
            } => {
                let missing = expected & !arrived;
                write!(
                    f,
                    "block {block}, warp {warp}: {operation} at {site} with mask {expected:#x} \
                     waits for lanes {missing:#x}, only {arrived:#x} came"
                )?;
                if missing & gone != 0 {
                    write!(f, " ({:#x} returned or do not exist)", missing & gone)?;
                }
                f.write_str(
                    ": take the mask from active_mask, and let every lane in it reach the call",
                )
            }
            Self::BarrierNeverOpened {
                block,
                expected,
                arrived,
            } => write!(
                f,
                "block {block}: {arrived} of {expected} threads wait in sync_threads, the others \
                 pause elsewhere: call it in control flow that is uniform for the block"
            ),
        }
    }
}

impl Error for LaunchFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Stack(error) => Some(error),
            _ => None,
        }
    }
}
