//! Arguments that are not what the kernel takes: another element type, another order, one missing.

use warpstore_device::launch::{Kernel, StatusSlot};
use warpstore_device::prelude::*;

#[kernel]
pub fn sum(_numbers: Array<u32>, _sums: Atomics<u64>) {}

pub fn launch(status: StatusSlot, narrow: Array<u32>, wide: Array<u64>, sums: Atomics<u64>) {
    sum::run(status, (wide, sums));
    sum::run(status, (sums, narrow));
    sum::run(status, (narrow,));
}

fn main() {}
