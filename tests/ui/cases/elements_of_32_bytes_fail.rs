//! Elements of more than 16 bytes: one access could not read them whole.

use warpstore_device::launch::Kernel;
use warpstore_device::prelude::*;

#[kernel]
pub fn first(rows: Array<[u64; 4]>, mut sums: DisjointSlice<u64>) -> Result<(), IoError> {
    let [w, x, y, z] = rows.get(0)?;
    sums.set(0, w.wrapping_add(x).wrapping_add(y).wrapping_add(z));
    Ok(())
}

fn main() {
    let run: fn(_, _) = first::run;
    std::hint::black_box(run);
}
