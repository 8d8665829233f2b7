//! The kernels of the other files with reads by reference counts, an entry for each manner: baselines,
//! see [`warpstore_device::counted`]. Parameters and results are those of the originals.

use warpstore_device::counted::{Bam, BamReuse, Counted, Naive, Reader};
use warpstore_device::prelude::*;

use crate::{bfs, cache, cc, rw};

macro_rules! kernels {
    ($manner:ident, $bfs_level:ident, $cc_hook:ident, $rw:ident, $cache_reads:ident) => {
        /// [`bfs_level`](crate::bfs::bfs_level), with counted reads.
        #[kernel]
        #[launch_bounds(256, 4)]
        pub fn $bfs_level(
            edges: Array<u32>,
            offsets: Global<u64>,
            frontier: Atomics<u32>,
            count: u64,
            per_warp: u32,
            distances: Atomics<u32>,
            next: Atomics<u32>,
            progress: Atomics<u32>,
            level: u32,
        ) -> Result<(), IoError> {
            let edges = Counted::<u32, $manner>::of(edges);
            bfs::visit(
                edges, offsets, frontier, count, per_warp, distances, next, progress, level,
            )
        }

        /// [`cc_hook`](crate::cc::cc_hook), with counted reads.
        #[kernel]
        #[launch_bounds(256, 4)]
        pub fn $cc_hook(
            edges: Array<u32>,
            offsets: Global<u64>,
            parents: Atomics<u32>,
        ) -> Result<(), IoError> {
            cc::hook(Counted::<u32, $manner>::of(edges), offsets, parents)
        }

        /// [`rw`](crate::rw::rw), with counted reads.
        #[kernel]
        #[launch_bounds(256, 4)]
        pub fn $rw(
            values: ArrayMut<u64>,
            sums: ArrayMut<u64>,
            values_each: u64,
            steps: u32,
            seed: u64,
            wrong: Atomics<u64>,
        ) -> Result<(), IoError> {
            let reader = Counted::<u64, $manner>::of(*values);
            rw::change(reader, values, sums, values_each, steps, seed, wrong)
        }

        /// [`cache_reads`](crate::cache::cache_reads), with counted reads.
        #[kernel]
        #[launch_bounds(256, 4)]
        pub fn $cache_reads(
            numbers: Array<u32>,
            stride: u64,
            steps: u32,
            sums: Atomics<u64>,
        ) -> Result<(), IoError> {
            let mut reader = Counted::<u32, $manner>::of(numbers);
            let elements = numbers.len();
            cache::add_up(|index| reader.get(index), elements, stride, steps, sums)
        }
    };
}

kernels!(
    Naive,
    bfs_level_naive,
    cc_hook_naive,
    rw_naive,
    cache_reads_naive
);
kernels!(Bam, bfs_level_bam, cc_hook_bam, rw_bam, cache_reads_bam);
kernels!(
    BamReuse,
    bfs_level_reuse,
    cc_hook_reuse,
    rw_reuse,
    cache_reads_reuse
);
