//! Breadth-first search, one level a launch: the edges are on the SSDs, the rest in GPU memory.

use warpstore_device::counted::Reader;
use warpstore_device::prelude::*;

/// Distance of a vertex that no path has reached.
pub const UNREACHED: u32 = u32::MAX;

/// Index of the counter in `progress`: vertices in the next frontier.
pub const NEXT_COUNT: u64 = 0;

/// Visits the neighbours of every vertex in the frontier.
///
/// A warp takes up to `per_warp` vertices at a time and deals the edges of all of them to its
/// lanes, in order: each lane has the same amount of work whatever the degrees, consecutive lanes
/// read consecutive edges, and the whole warp misses together.
///
/// `edges`: neighbours of all vertices, one after the other. `offsets`: vertices + 1 words; those
/// of `v` are `edges[offsets[v]..offsets[v + 1]]`. `frontier`: its first `count` words are the
/// vertices at distance `level`. `per_warp`: 1 to 32. `distances`: a word a vertex, [`UNREACHED`]
/// at first. `next`: room for a word a vertex; receives the vertices at distance `level + 1`,
/// whose number is added to `progress[NEXT_COUNT]`.
#[kernel]
#[launch_bounds(256, 4)]
pub fn bfs_level(
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
    visit(
        edges, offsets, frontier, count, per_warp, distances, next, progress, level,
    )
}

/// The body of [`bfs_level`], and of its baselines in `counted.rs`.
#[allow(clippy::too_many_arguments, reason = "they are the kernel's interface")]
#[inline(always)]
pub(crate) fn visit(
    mut edges: impl Reader<u32>,
    offsets: Global<u64>,
    frontier: Atomics<u32>,
    count: u64,
    per_warp: u32,
    distances: Atomics<u32>,
    next: Atomics<u32>,
    progress: Atomics<u32>,
    level: u32,
) -> Result<(), IoError> {
    let warps = thread::grid_size() / 32;
    let mut first = thread::index_1d() / 32 * u64::from(per_warp);
    while first < count {
        let deal = Deal::of(offsets, frontier, first, count, per_warp);
        let mut dealt = 0;
        while dealt < deal.total {
            let neighbour = edges.get(deal.edge(dealt));
            // One lane's error ends the warp: the others would wait for it in the next deal.
            if warp::any_sync(WARP, neighbour.is_err()) {
                return neighbour.map(|_| ());
            }
            reach(neighbour?, level + 1, distances, next, progress);
            dealt += 32;
        }
        first += warps * u64::from(per_warp);
    }
    Ok(())
}

/// All lanes.
const WARP: u32 = u32::MAX;

/// The edges of up to 32 vertices, a vertex a lane, as one sequence. Collective.
#[derive(Clone, Copy)]
struct Deal {
    /// Edges of all vertices. The same in every lane.
    total: u64,
    /// First edge of this lane's vertex.
    first: u64,
    /// Edges of the vertices up to and with this lane's.
    until: u64,
}

impl Deal {
    /// The vertices at `position..position + per_warp` of the frontier.
    #[inline(always)]
    fn of(
        offsets: Global<u64>,
        frontier: Atomics<u32>,
        position: u64,
        count: u64,
        per_warp: u32,
    ) -> Self {
        let lane = warp::lane_id();
        let mine = position + u64::from(lane);
        let (mut first, mut until) = (0, 0);
        if lane < per_warp && mine < count {
            let vertex = u64::from(frontier.at(mine).load(Order::Relaxed));
            first = offsets.get(vertex).unwrap_or(0);
            until = offsets.get(vertex + 1).unwrap_or(first) - first;
        }
        // Inclusive prefix sum in five steps.
        let mut distance = 1;
        while distance < 32 {
            let before = warp::shuffle_sync(WARP, until, lane.saturating_sub(distance));
            if lane >= distance {
                until += before;
            }
            distance *= 2;
        }
        Self {
            total: warp::shuffle_sync(WARP, until, 31),
            first,
            until,
        }
    }

    /// The edge that this lane gets when `dealt` have been dealt; past the end the last one once
    /// more, so that all lanes stay together.
    #[inline(always)]
    fn edge(self, dealt: u64) -> u64 {
        let wanted = dealt + u64::from(warp::lane_id());
        let wanted = if wanted < self.total {
            wanted
        } else {
            self.total - 1
        };
        // The first lane whose vertices reach beyond `wanted`, by bisection.
        let mut owner = 0;
        let mut step = 16;
        while step > 0 {
            if warp::shuffle_sync(WARP, self.until, owner + step - 1) <= wanted {
                owner += step;
            }
            step /= 2;
        }
        let end = warp::shuffle_sync(WARP, self.until, owner);
        let before = warp::shuffle_sync(WARP, self.until, owner.saturating_sub(1));
        let before = if owner == 0 { 0 } else { before };
        let first = warp::shuffle_sync(WARP, self.first, owner);
        debug_assert!(wanted < end, "edge {wanted} belongs to lane {owner}");
        first + (wanted - before)
    }
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
