//! A held line that outlives its hold in a static.

use std::sync::Mutex;

use warpstore_device::Line;
use warpstore_device::prelude::*;

static KEPT: Mutex<Option<&'static Line<'static, u32>>> = Mutex::new(None);

pub fn keep(array: Array<u32>) -> Result<(), IoError> {
    array.line(0, |line| *KEPT.lock().unwrap() = Some(line))
}

fn main() {}
