//! Breadth-first search, one level a launch: the edges are on the SSDs, the rest in GPU memory.

use warpstore_device::prelude::*;

/// Distance of a vertex that no path has reached.
pub const UNREACHED: u32 = u32::MAX;

/// Index of the counter in `progress`: vertices in the next frontier.
pub const NEXT_COUNT: u64 = 0;

/// Visits the neighbours of every vertex in the frontier.
///
/// A warp takes a vertex at a time and its lanes stride over the neighbours, so that a line is
/// read by consecutive lanes and fetched once.
///
/// `edges`: neighbours of all vertices, one after the other. `offsets`: vertices + 1 words; those
/// of `v` are `edges[offsets[v]..offsets[v + 1]]`. `frontier`: its first `count` words are the
/// vertices at distance `level`. `distances`: a word a vertex, [`UNREACHED`] at first.
/// `next`: room for a word a vertex; receives the vertices at distance `level + 1`, whose number
/// is added to `progress[NEXT_COUNT]`.
#[kernel]
#[launch_bounds(256)]
pub fn bfs_level(
    edges: Array<u32>,
    offsets: Global<u64>,
    frontier: Atomics<u32>,
    count: u64,
    distances: Atomics<u32>,
    next: Atomics<u32>,
    progress: Atomics<u32>,
    level: u32,
) -> Result<(), IoError> {
    let warps = thread::grid_size() / 32;
    let lane = u64::from(warp::lane_id());
    let mut position = thread::index_1d() / 32;
    while position < count {
        let vertex = u64::from(frontier.at(position).load(Order::Relaxed));
        let first = offsets.get(vertex).unwrap_or(0);
        let end = offsets.get(vertex + 1).unwrap_or(first);
        let mut edge = first + lane;
        while edge < end {
            let neighbour = edges.get(edge)?;
            reach(neighbour, level + 1, distances, next, progress);
            edge += 32;
        }
        position += warps;
    }
    Ok(())
}

/// Gives `vertex` its distance and a place in the next frontier, if this lane is the first.
#[inline(always)]
fn reach(
    vertex: u32,
    distance: u32,
    distances: Atomics<u32>,
    next: Atomics<u32>,
    progress: Atomics<u32>,
) {
    let vertex_index = u64::from(vertex);
    if vertex_index >= distances.len() {
        return;
    }
    let cell = distances.at(vertex_index);
    // Relaxed: the launch's end publishes distances and frontier to the next launch.
    if cell.load(Order::Relaxed) == UNREACHED
        && cell
            .compare_exchange(UNREACHED, distance, Order::Relaxed)
            .is_ok()
    {
        let place = progress.at(NEXT_COUNT).fetch_add(1, Order::Relaxed);
        next.at(u64::from(place)).store(vertex, Order::Relaxed);
    }
}
