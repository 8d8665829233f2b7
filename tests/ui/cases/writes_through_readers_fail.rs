//! Writes through handles that only read.

use warpstore_device::prelude::*;

pub fn global(offsets: Global<u64>) {
    offsets.set(0, 1);
}

pub fn array(edges: Array<u32>) {
    edges.set(0, 1);
}

pub fn line(edges: Array<u32>) -> Result<(), IoError> {
    edges.line(0, |line| {
        line.set(0, 1);
    })
}

pub fn line_of_a_writable_array(edges: ArrayMut<u32>) -> Result<(), IoError> {
    edges.line(0, |line| {
        line.set(0, 1);
    })
}

pub fn slice(sums: DisjointSlice<u64>) {
    sums.set(0, 1);
}

fn main() {}
