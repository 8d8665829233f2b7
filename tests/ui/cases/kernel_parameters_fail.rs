//! Parameters that a GPU cannot be handed, and a result that nobody would see.

use warpstore_device::Line;
use warpstore_device::prelude::*;

#[derive(Clone, Copy)]
pub struct Options {
    rounds: u32,
}

#[kernel]
pub fn owned(_numbers: Vec<u32>) {}

#[kernel]
pub fn of_my_own(_options: Options) {}

#[kernel]
pub fn held(_line: Line<'static, u32>) {}

#[kernel]
pub fn flag(_verify: bool) {}

#[kernel]
pub fn returns(n: u64) -> u64 {
    n
}

fn main() {}
