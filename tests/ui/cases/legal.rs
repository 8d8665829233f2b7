//! What the other cases misuse, used as it is meant.

use warpstore_device::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct Point {
    x: f32,
    y: f32,
}

#[kernel]
pub fn legal(
    points: Array<Point>,
    rows: Global<u64>,
    mut sums: DisjointSlice<f32>,
    counts: Atomics<u64>,
    scale: f32,
) -> Result<(), IoError> {
    for row in thread::grid_stride(sums.len()) {
        let index = rows.get(row).unwrap_or(0);
        let sum = points.line(index, |line| {
            line.get(index).map_or(0.0, |point| point.x + point.y)
        })?;
        sums.set(row, sum * scale);
        counts.at(0).fetch_add(1, Order::Relaxed);
    }
    Ok(())
}

#[kernel]
pub fn legal_writes(array: ArrayMut<u32>) -> Result<(), IoError> {
    array.set(0, array.get(1)?)?;
    array.fetch_add(0, 1)?;
    array.write_line(0, |index| Ok(index as u32))?;
    array.line_mut(0, |line| line.set(0, line.get(1).unwrap_or(0)))?
}

fn main() {
    use warpstore_device::launch::Kernel;
    let run: fn(_, _) = legal::run;
    std::hint::black_box(run);
    let run: fn(_, _) = legal_writes::run;
    std::hint::black_box(run);
}
