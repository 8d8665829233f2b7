//! Bring-up, admin queue, block I/O and shutdown: against a controller made of registers alone, and against
//! the emulated controller, with and without faults.

mod aborts;
mod answering;
mod block_io;
mod completions;
mod disk;
mod emulated;
mod failing;
mod faulty;
mod lives;
mod memory;
mod odd;
mod registers;
mod rig;
mod stubborn;

use std::time::Duration;

use driver_vfio::Deadlines;

/// Deadlines for controllers that are meant to miss them.
const SHORT: Deadlines = Deadlines {
    ready_unit: Duration::from_millis(20),
    command: Duration::from_millis(50),
    shutdown: Duration::from_millis(50),
    removed: Duration::from_millis(30),
};

/// Deadlines that nobody is meant to miss.
const PATIENT: Deadlines = Deadlines {
    removed: Duration::from_secs(5),
    ..Deadlines::SSD
};
