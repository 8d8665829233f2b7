//! Plain CPU implementations, which every graph result is verified against.

use warpstore_graph::Graph;

/// The distance of a vertex that cannot be reached.
pub const UNREACHED: u32 = u32::MAX;

/// Breadth-first search along the edges' direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bfs {
    /// Vertices reached, the source counted.
    pub reached: u64,
    /// Greatest distance, in edges.
    pub depth: u32,
    /// Sum of all distances, in edges.
    pub distance_sum: u64,
    /// Distance of each vertex in edges, or [`UNREACHED`].
    pub distances: Vec<u32>,
}

impl Bfs {
    /// Searches from `source`.
    ///
    /// # Panics
    /// If `source` is not a vertex of `graph`.
    pub fn run(graph: &Graph, source: u32) -> Self {
        let mut distances = vec![UNREACHED; graph.vertices()];
        distances[source as usize] = 0;
        let mut frontier = vec![source];
        let mut level = 0;
        while !frontier.is_empty() {
            level += 1;
            let mut next = Vec::new();
            for &neighbour in frontier.iter().flat_map(|&vertex| graph.neighbours(vertex)) {
                let distance = &mut distances[neighbour as usize];
                if *distance == UNREACHED {
                    *distance = level;
                    next.push(neighbour);
                }
            }
            frontier = next;
        }
        Self::of_distances(distances)
    }

    /// Sums up distances, of whatever origin.
    pub fn of_distances(distances: Vec<u32>) -> Self {
        let reached = || {
            distances
                .iter()
                .copied()
                .filter(|&distance| distance != UNREACHED)
        };
        Self {
            reached: reached().count() as u64,
            depth: reached().max().unwrap_or(0),
            distance_sum: reached().map(u64::from).sum(),
            distances,
        }
    }
}

/// Weakly connected components: edges count both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Components {
    /// Number of components; a vertex without edges is one.
    pub components: u64,
    /// Vertices of the largest component.
    pub largest: u64,
    /// The smallest vertex of each vertex's component.
    pub labels: Vec<u32>,
}

impl Components {
    /// Finds the components by union-find with path halving.
    pub fn run(graph: &Graph) -> Self {
        let mut parents: Vec<u32> = (0..graph.vertices()).map(|vertex| vertex as u32).collect();
        for vertex in 0..graph.vertices() as u64 {
            let vertex = vertex as u32;
            for &neighbour in graph.neighbours(vertex) {
                let (a, b) = (root(&mut parents, vertex), root(&mut parents, neighbour));
                // The smaller root wins, so that each root is its component's smallest vertex.
                parents[a.max(b) as usize] = a.min(b);
            }
        }
        for vertex in 0..parents.len() {
            parents[vertex] = root(&mut parents, vertex as u32);
        }
        Self::of_labels(parents)
    }

    /// Counts components by their labels, of whatever origin; a label that is no vertex counts
    /// for nothing, since it may be the very error that verification is to report.
    pub fn of_labels(labels: Vec<u32>) -> Self {
        let mut sizes = vec![0u64; labels.len()];
        for &label in &labels {
            if let Some(size) = sizes.get_mut(label as usize) {
                *size += 1;
            }
        }
        Self {
            components: sizes.iter().filter(|&&size| size > 0).count() as u64,
            largest: sizes.iter().copied().max().unwrap_or(0),
            labels,
        }
    }
}

fn root(parents: &mut [u32], mut vertex: u32) -> u32 {
    while parents[vertex as usize] != vertex {
        let grandparent = parents[parents[vertex as usize] as usize];
        parents[vertex as usize] = grandparent;
        vertex = grandparent;
    }
    vertex
}

/// The first vertex whose value is not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vertex {vertex}: expected {expected}, found {found} (and {others} more differ)")]
pub struct Difference {
    /// The vertex.
    pub vertex: usize,
    /// What the plain implementation says.
    pub expected: u32,
    /// What was found.
    pub found: u32,
    /// Further vertices that differ.
    pub others: usize,
}

/// Compares values per vertex, distances or labels.
///
/// # Errors
/// The first [`Difference`].
///
/// # Panics
/// If the two are of different graphs, so that their lengths differ.
pub fn compare(expected: &[u32], found: &[u32]) -> Result<(), Difference> {
    assert_eq!(expected.len(), found.len(), "values of one graph");
    let mut different = (0..expected.len()).filter(|&vertex| expected[vertex] != found[vertex]);
    let Some(vertex) = different.next() else {
        return Ok(());
    };
    Err(Difference {
        vertex,
        expected: expected[vertex],
        found: found[vertex],
        others: different.count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::path::Path;
    use warpstore_graph::Budget;

    fn graph_of(edges: &[(u32, u32)]) -> Graph {
        let mut file = tempfile::Builder::new().suffix(".el").tempfile().unwrap();
        for (source, destination) in edges {
            writeln!(file, "{source} {destination}").unwrap();
        }
        warpstore_graph::open(file.path(), Budget::of_machine()).unwrap()
    }

    fn shipped(name: &str) -> Graph {
        let data = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/data")
            .join(name);
        warpstore_graph::open(&data, Budget::of_machine()).unwrap()
    }

    #[test]
    fn search_follows_directions_and_components_do_not() {
        let graph = graph_of(&[(0, 1), (1, 2), (0, 2), (3, 2), (5, 5)]);
        let bfs = Bfs::run(&graph, 0);
        assert_eq!(bfs.distances, [0, 1, 1, UNREACHED, UNREACHED, UNREACHED]);
        assert_eq!((bfs.reached, bfs.depth, bfs.distance_sum), (3, 1, 2));
        let found = Components::run(&graph);
        assert_eq!(found.labels, [0, 0, 0, 0, 4, 5]);
        assert_eq!((found.components, found.largest), (3, 4));
    }

    #[test]
    fn the_email_graph() {
        let graph = shipped("email-enron.el.gz");
        let bfs = Bfs::run(&graph, 0);
        assert_eq!(
            (bfs.reached, bfs.depth, bfs.distance_sum),
            (33_696, 9, 146_222)
        );
        let found = Components::run(&graph);
        assert_eq!((found.components, found.largest), (1_065, 33_696));
    }

    #[test]
    fn the_debian_graph() {
        let graph = shipped("debian-bookworm-depends.el.gz");
        let bfs = Bfs::run(&graph, 0);
        assert_eq!((bfs.reached, bfs.depth, bfs.distance_sum), (278, 11, 1_042));
        let found = Components::run(&graph);
        assert_eq!((found.components, found.largest), (4_652, 58_112));
    }

    #[test]
    fn differences_are_named() {
        assert_eq!(compare(&[1, 2], &[1, 2]), Ok(()));
        let difference = compare(&[1, 2, 3], &[1, 9, 9]).unwrap_err();
        assert_eq!(
            difference.to_string(),
            "vertex 1: expected 2, found 9 (and 1 more differ)"
        );
    }

    proptest! {
        #[test]
        fn distances_and_labels_agree_with_the_edges(edges in prop::collection::vec((0u32..12, 0u32..12), 1..40)) {
            let graph = graph_of(&edges);
            let bfs = Bfs::run(&graph, edges[0].0);
            let found = Components::run(&graph);
            for (vertex, &label) in found.labels.iter().enumerate() {
                prop_assert!(label as usize <= vertex);
            }
            for &(source, destination) in &edges {
                let (from, to) = (bfs.distances[source as usize], bfs.distances[destination as usize]);
                prop_assert!(from == UNREACHED || to <= from + 1);
                prop_assert_eq!(found.labels[source as usize], found.labels[destination as usize]);
            }
            // Every distance but the source's is witnessed by a predecessor.
            for (vertex, &distance) in bfs.distances.iter().enumerate() {
                let witnessed = edges.iter().any(|e| e.1 as usize == vertex && bfs.distances[e.0 as usize].checked_add(1) == Some(distance));
                prop_assert!(distance == 0 || distance == UNREACHED || witnessed);
            }
        }
    }
}
