//! Weakly connected components by hooking: each edge is read from the SSD exactly once.
//!
//! Label propagation, as in BaM's benchmark, reads all edges once a round until nothing changes.
//! A union-find forest in GPU memory needs one pass: every edge joins the trees of its ends, the
//! larger root under the smaller, so that in the end each root is its component's smallest
//! vertex. (Jaiganesh and Burtscher, "A High-Performance Connected Components Implementation for
//! GPUs", HPDC 2018.)

use warpstore_device::counted::Reader;
use warpstore_device::prelude::*;

/// Joins the two ends of every edge.
///
/// A lane takes a vertex at a time and walks its neighbours. `edges` and `offsets` as in
/// [`bfs_level`](crate::bfs::bfs_level). `parents`: a word a vertex, each its own parent at first.
#[kernel]
#[launch_bounds(256, 4)]
pub fn cc_hook(
    edges: Array<u32>,
    offsets: Global<u64>,
    parents: Atomics<u32>,
) -> Result<(), IoError> {
    hook(edges, offsets, parents)
}

/// The body of [`cc_hook`], and of its baselines in `counted.rs`.
#[inline(always)]
pub(crate) fn hook(
    mut edges: impl Reader<u32>,
    offsets: Global<u64>,
    parents: Atomics<u32>,
) -> Result<(), IoError> {
    for vertex in thread::grid_stride(parents.len()) {
        let first = offsets.get(vertex).unwrap_or(0);
        let end = offsets.get(vertex + 1).unwrap_or(first);
        for neighbour in edges.range(first..end) {
            let neighbour = neighbour?;
            if u64::from(neighbour) < parents.len() {
                join(parents, vertex as u32, neighbour);
            }
        }
    }
    Ok(())
}

/// Makes every vertex point to its root.
#[kernel]
#[launch_bounds(256)]
pub fn cc_flatten(parents: Atomics<u32>) {
    for vertex in thread::grid_stride(parents.len()) {
        let root = root_of(parents, vertex as u32);
        parents.at(vertex).store(root, Order::Relaxed);
    }
}

/// Joins the trees of `a` and `b`.
#[inline(always)]
fn join(parents: Atomics<u32>, a: u32, b: u32) {
    let mut a = root_of(parents, a);
    let mut b = root_of(parents, b);
    while a != b {
        let (small, large) = if a < b { (a, b) } else { (b, a) };
        // Relaxed: parents only ever decrease, and the launch's end publishes them.
        match parents
            .at(u64::from(large))
            .compare_exchange(large, small, Order::Relaxed)
        {
            Ok(_) => return,
            Err(parent) => {
                a = small;
                b = root_of(parents, parent);
            }
        }
    }
}

/// Root of the tree of `vertex`; halves the path on the way, so that the next walk is shorter.
#[inline(always)]
fn root_of(parents: Atomics<u32>, vertex: u32) -> u32 {
    let mut vertex = vertex;
    let mut parent = parents.at(u64::from(vertex)).load(Order::Relaxed);
    while parent != vertex {
        let grandparent = parents.at(u64::from(parent)).load(Order::Relaxed);
        if grandparent != parent {
            // A lost race only leaves a longer path: any ancestor is a right parent.
            let _ =
                parents
                    .at(u64::from(vertex))
                    .compare_exchange(parent, grandparent, Order::Relaxed);
        }
        vertex = parent;
        parent = grandparent;
    }
    vertex
}
