//! Parameters that promise what no kernel can.

use warpstore_device::prelude::*;

#[kernel]
pub fn shared(numbers: &[u32]) {}

#[kernel]
pub fn exclusive(sums: &mut u64) {}

#[kernel]
pub fn pointer(sums: *mut u64) {}

#[kernel]
pub fn generic<T>(numbers: Array<T>) {}

fn main() {}
