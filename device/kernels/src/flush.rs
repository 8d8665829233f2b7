//! What `Session::flush` runs ([WB-7]): every dirty line to its SSD, and then what the SSDs keep to
//! themselves to their media.

use warpstore_device::prelude::*;
use warpstore_device::{ErrorKind, Flusher};

/// Writes every dirty line of the store back. One error a lane at most, the first.
#[kernel]
#[launch_bounds(256)]
pub fn write_back(flusher: Flusher) -> Result<(), IoError> {
    each(flusher.slots(), |slot| flusher.write_back(slot))
}

/// Flushes every SSD of the store. When all writes have ended, that is: in a launch of its own.
#[kernel]
#[launch_bounds(256)]
pub fn flush_ssds(flusher: Flusher) -> Result<(), IoError> {
    each(flusher.ssds(), |ssd| flusher.flush(ssd))
}

/// Calls `task` for every index up to `count`, and some beyond, by whole warps; the first error.
#[inline(always)]
fn each(count: u64, task: impl Fn(u64) -> Result<(), IoError>) -> Result<(), IoError> {
    let mut result = Ok(());
    let mut first = thread::index_1d() / 32 * 32;
    while first < count {
        let ended = task(first + u64::from(warp::lane_id()));
        if result.is_ok() {
            result = ended;
        }
        // What did not end before the deadline is not waited for again with every slot.
        let timed_out = ended.is_err_and(|error| error.kind() != ErrorKind::Status);
        if warp::any_sync(u32::MAX, timed_out) {
            break;
        }
        first += thread::grid_size() / 32 * 32;
    }
    result
}
