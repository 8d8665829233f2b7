//! Points where a lane gives way to others.

use super::lane::{self, Suspension};

/// Called before each access to a shared word: under `Interleaving::Seeded` the lane gives way at
/// about one access in eight. Costs one thread-local read outside a launch.
#[inline]
pub fn interleave() {
    lane::current(|lane| {
        if let Some(lane) = lane
            && lane.draws_to_yield()
        {
            lane.suspend(Suspension::Interleaved);
        }
    });
}

/// Called once in every turn of a waiting loop. A lane lets every other lane of its worker run; a
/// plain thread spins for the first turns, then yields to the operating system.
#[inline]
pub fn pause(attempt: u32) {
    const SPINS: u32 = 16;
    lane::current(|lane| match lane {
        Some(lane) => lane.suspend(Suspension::Paused),
        None if attempt < SPINS => std::hint::spin_loop(),
        None => std::thread::yield_now(),
    });
}
