//! A held line that is handed to lanes which do not hold it, by a shuffle or another thread.

use warpstore_device::prelude::*;

pub fn shuffled(array: ArrayMut<u32>) -> Result<(), IoError> {
    array.line_mut(0, |line| {
        warp::shuffle_sync(line.lanes(), line, 0);
    })
}

pub fn shared(array: ArrayMut<u32>) -> Result<(), IoError> {
    array.line_mut(0, |line| {
        std::thread::scope(|scope| {
            scope.spawn(|| line.set(0, 1));
        });
    })
}

fn main() {}
