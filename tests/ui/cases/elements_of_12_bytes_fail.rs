//! Elements whose size is no power of two: one access could not read them whole.

use warpstore_device::launch::Kernel;
use warpstore_device::prelude::*;

#[kernel]
pub fn first(triples: Array<[u32; 3]>, mut sums: DisjointSlice<u32>) -> Result<(), IoError> {
    let [x, y, z] = triples.get(0)?;
    sums.set(0, x.wrapping_add(y).wrapping_add(z));
    Ok(())
}

fn main() {
    let run: fn(_, _) = first::run;
    std::hint::black_box(run);
}
