//! `fetch_add` on elements that are not added in one step.

use warpstore_device::prelude::*;

pub fn floats(array: ArrayMut<f32>) -> Result<f32, IoError> {
    array.fetch_add(0, 1.0)
}

pub fn bytes(array: ArrayMut<u8>) -> Result<u8, IoError> {
    array.fetch_add(0, 1)
}

fn main() {}
