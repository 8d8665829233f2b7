//! What `Session::flush` runs ([WB-7]): every dirty line to its SSD, and then what the SSDs keep to
//! themselves to their media.

use warpstore_device::prelude::*;
use warpstore_device::{ErrorKind, Flusher};

/// Writes every dirty line of the store back. One error a lane at most, the first.
#[kernel]
#[launch_bounds(256)]
pub fn write_back(flusher: Flusher) -> Result<(), IoError> {
    each(flusher.slots(), |slot, hurry| {
        flusher.write_back(slot, hurry)
    })
}

/// Flushes every SSD of the store. When all writes have ended, that is: in a launch of its own.
#[kernel]
#[launch_bounds(256)]
pub fn flush_ssds(flusher: Flusher) -> Result<(), IoError> {
    each(flusher.ssds(), |ssd, _| flusher.flush(ssd))
}

/// Calls `task` for every index up to `count`, and some beyond, by whole warps; the first error. After
/// a time-out it is in a hurry: what is stuck is not waited for again with every index.
#[inline(always)]
fn each(count: u64, task: impl Fn(u64, bool) -> Result<(), IoError>) -> Result<(), IoError> {
    let (mut result, mut hurry) = (Ok(()), false);
    let mut first = thread::index_1d() / 32 * 32;
    while first < count {
        let ended = task(first + u64::from(warp::lane_id()), hurry);
        if result.is_ok() {
            result = ended;
        }
        let timed_out = ended
            .is_err_and(|error| matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Aborted));
        hurry |= warp::any_sync(u32::MAX, timed_out);
        first += thread::grid_size() / 32 * 32;
    }
    result
}
