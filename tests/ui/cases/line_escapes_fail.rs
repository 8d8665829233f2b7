//! A held line that leaves the closure of `Array::line`.

use warpstore_device::prelude::*;

pub fn returned(array: Array<u32>) -> Result<u32, IoError> {
    let line = array.line(0, |line| line)?;
    Ok(line.get(0).unwrap_or(0))
}

pub fn kept(array: Array<u32>) -> Result<u32, IoError> {
    let mut kept = None;
    array.line(0, |line| kept = Some(line))?;
    Ok(kept.and_then(|line| line.get(0)).unwrap_or(0))
}

fn main() {}
