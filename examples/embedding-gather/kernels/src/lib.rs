//! Gathers rows of an embedding table, and counts which rows are used.
#![cfg_attr(target_arch = "nvptx64", no_std)]

use warpstore_device::prelude::*;

/// For every bag of rows, adds its rows up: `sums[bag * width + column]` becomes the sum of
/// `table[row * width + column]` over `rows[bags[bag]..bags[bag + 1]]`, in that order.
///
/// The table lies on the SSDs, row after row, `width` elements each. A warp takes a bag at a time
/// and its lanes take the columns, so that neighbouring lanes read neighbouring elements.
#[kernel]
#[launch_bounds(256)]
pub fn gather(
    table: Array<f32>,
    width: u64,
    rows: Global<u32>,
    bags: Global<u64>,
    mut sums: DisjointSlice<f32>,
) -> Result<(), IoError> {
    let n_bags = bags.len().saturating_sub(1);
    let warps = thread::grid_size() / 32;
    let mut bag = thread::index_1d() / 32;
    while bag < n_bags {
        let (first, end) = bounds(bags, bag);
        let mut column = u64::from(warp::lane_id());
        while column < width {
            let mut sum = 0.0;
            let mut at = first;
            while at < end {
                let row = u64::from(rows.get(at).unwrap_or(0));
                sum += table.get(row * width + column)?;
                at += 1;
            }
            sums.set(bag * width + column, sum);
            column += 32;
        }
        bag += warps;
    }
    Ok(())
}

/// Counts how often each row is used, in a histogram that lies on the SSDs as the table does. A
/// lane takes an entry of `rows` at a time.
#[kernel]
#[launch_bounds(256)]
pub fn count_uses(rows: Global<u32>, uses: ArrayMut<u64>) -> Result<(), IoError> {
    for at in thread::grid_stride(rows.len()) {
        let row = u64::from(rows.get(at).unwrap_or(0));
        uses.fetch_add(row, 1)?;
    }
    Ok(())
}

/// Where a bag's rows begin and end.
#[inline(always)]
fn bounds(bags: Global<u64>, bag: u64) -> (u64, u64) {
    let first = bags.get(bag).unwrap_or(0);
    (first, bags.get(bag + 1).unwrap_or(first))
}
