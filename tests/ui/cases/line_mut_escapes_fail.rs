//! A held line that is written after it was let go.

use warpstore_device::prelude::*;

pub fn returned(array: ArrayMut<u32>) -> Result<(), IoError> {
    let line = array.line_mut(0, |line| line)?;
    line.set(0, 1)
}

pub fn kept(array: ArrayMut<u32>) -> Result<(), IoError> {
    let mut kept = None;
    array.line_mut(0, |line| kept = Some(line))?;
    kept.map_or(Ok(()), |line| line.set(0, 1))
}

fn main() {}
