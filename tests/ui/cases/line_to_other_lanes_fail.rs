//! A held line that is handed to lanes which do not hold it: by a shuffle, or through memory.

use warpstore_device::Line;
use warpstore_device::prelude::*;

pub fn shuffled(array: Array<u32>) -> Result<(), IoError> {
    array.line(0, |line| {
        warp::shuffle_sync(line.lanes(), line, 0);
    })
}

pub fn stored(
    array: Array<u32>,
    mut others: DisjointSlice<Line<'static, u32>>,
) -> Result<(), IoError> {
    array.line(0, |line| {
        others.set(0, *line);
    })
}

fn main() {}
