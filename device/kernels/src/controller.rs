//! The emulated SSDs as a resident kernel: it serves the I/O queues until the host says stop.

use nvme_model::Service;
use warpstore_device::prelude::*;

/// The emulated SSDs of a resident kernel, as a parameter.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Controllers(pub Service);

#[allow(unsafe_code, reason = "marker impl for plain data")]
// UNSAFETY: an `unsafe impl` only; no memory is touched here.
mod parameter {
    use warpstore_device::launch::KernelParam;
    // SAFETY: repr(transparent) over repr(C) plain words, Copy, without references.
    unsafe impl KernelParam for super::Controllers {}
}

/// Serves the queue pairs of `controllers`, each by one warp of the grid, until the stop word or
/// the deadline of the service.
///
/// Launch it with blocks of whole warps, and with enough shared memory a block that it has its
/// multiprocessors to itself; see `host`'s resident runner.
#[kernel]
#[launch_bounds(256)]
pub fn nvme_controllers(controllers: Controllers) {
    let worker = (thread::index_1d() / 32) as u32;
    let workers = (thread::grid_size() / 32) as u32;
    nvme_model::serve::<32>(controllers.0, worker, workers);
}

/// Writes the kernels' clock ([`thread::now_ns`]) to `clock[0]`, so that the host can name a
/// deadline in it.
#[kernel]
#[launch_bounds(32)]
pub fn read_clock(mut clock: DisjointSlice<u64>) {
    if thread::index_1d() == 0 {
        clock.set(0, thread::now_ns());
    }
}
