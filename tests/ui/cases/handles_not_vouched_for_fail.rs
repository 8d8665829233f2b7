//! Handles stretched beyond their memory, or made from an address, by safe code.

use warpstore_device::prelude::*;

pub fn stretched(mut array: Array<u32>) -> Array<u32> {
    array.len = u64::MAX;
    array
}

pub fn from_an_address() -> (Global<u32>, DisjointSlice<u32>, Atomics<u64>) {
    (
        Global::from_raw(0, 1),
        DisjointSlice::from_raw(0, 1),
        Atomics::new(core::ptr::null_mut(), 1),
    )
}

fn main() {}
