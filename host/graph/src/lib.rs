//! Graphs from files, in compressed sparse row form.
//!
//! | name | format | module |
//! |---|---|---|
//! | `.el`, `.el.gz` | text, one `source destination [weight]` a line | `el` |
//! | `.mtx` | Matrix Market coordinate | `mtx` |
//! | `.col` with `.dst` | BaM's binary pair; either file or their common stem may be named | `pair` |
//!
//! A graph is directed and keeps what the file says: edges stay in file order within their
//! source, and neither multi-edges nor self loops are dropped. Vertices are numbered from 0 to
//! the largest id, so an id without edges is a vertex too. A file is either read whole or
//! refused with a [`GraphError`] that names the file, the line or byte, the reason and the cure.

mod budget;
mod edge_list;
mod el;
mod error;
mod mtx;
mod open;
mod pair;
mod text;

pub use budget::Budget;
pub use error::{Fault, GraphError, Place, Reason};
pub use open::{Format, is_graph, open, read, read_pair};

/// A directed graph in compressed sparse row form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Vertices + 1 indices into `edges`: never decreasing, from 0 to the number of edges.
    offsets: Vec<u64>,
    /// Destinations, grouped by source; each is a vertex of the graph.
    edges: Vec<u32>,
}

impl Graph {
    /// A graph of its parts, as [`Graph::offsets`] and [`Graph::edges`] give them.
    ///
    /// # Errors
    /// They are of no graph: [`Reason::Offset`], [`Reason::Neighbour`], or no vertex. The place of the
    /// fault is the byte of the array.
    pub fn new(offsets: Vec<u64>, edges: Vec<u32>) -> Result<Self, Fault> {
        let (vertices, count) = (offsets.len().saturating_sub(1) as u64, edges.len() as u64);
        if vertices == 0 {
            return Err(Place::Whole.fault(Reason::Empty("vertex")));
        }
        let mut last = 0;
        for (index, &offset) in offsets.iter().enumerate() {
            let expected = match index as u64 {
                0 => 0..=0,
                index if index == vertices => count..=count,
                _ => last..=count,
            };
            if !expected.contains(&offset) {
                let (low, high) = expected.into_inner();
                let expected = match low == high {
                    true => low.to_string(),
                    false => format!("from {low} to {high}"),
                };
                return Err(Place::Byte(index as u64 * 8).fault(Reason::Offset {
                    found: offset,
                    expected,
                }));
            }
            last = offset;
        }
        let beyond = edges.iter().position(|&edge| u64::from(edge) >= vertices);
        match beyond {
            None => Ok(Self { offsets, edges }),
            Some(index) => Err(Place::Byte(index as u64 * 4).fault(Reason::Neighbour {
                found: edges[index].into(),
                vertices,
            })),
        }
    }

    /// Row offsets: vertices + 1 indices into [`edges`](Self::edges); vertex `v` owns
    /// `edges[offsets[v]..offsets[v + 1]]`.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Destinations of all edges, grouped by source.
    pub fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// Number of vertices: the largest id + 1, or what the file declares.
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Destinations of the edges that leave `vertex`.
    ///
    /// # Panics
    /// If `vertex` is not a vertex of the graph.
    pub fn neighbours(&self, vertex: u32) -> &[u32] {
        let row = vertex as usize;
        &self.edges[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// `wanted` as a vertex of this graph, which was read from `file`.
    ///
    /// # Errors
    /// [`Reason::NoSuchVertex`] if the graph has no such vertex.
    pub fn vertex(&self, wanted: u64, file: &std::path::Path) -> Result<u32, GraphError> {
        let vertices = self.vertices() as u64;
        u32::try_from(wanted)
            .ok()
            .filter(|_| wanted < vertices)
            .ok_or_else(|| {
                Place::Whole
                    .fault(Reason::NoSuchVertex { wanted, vertices })
                    .in_file(file)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_no_graph_are_refused() {
        let graph = Graph::new(vec![0, 1, 3], vec![1, 0, 1]).unwrap();
        assert_eq!((graph.vertices(), graph.neighbours(1)), (2, &[0, 1][..]));
        let told = |offsets: &[u64], edges: &[u32]| {
            let fault = Graph::new(offsets.to_vec(), edges.to_vec()).unwrap_err();
            fault.in_file("v".as_ref()).to_string()
        };
        assert!(told(&[], &[]).contains("holds no vertex"));
        assert!(told(&[1, 1], &[0]).contains("byte 0: offset 1 should be 0"));
        assert!(
            told(&[0, 2, 1, 3], &[0, 0, 0]).contains("byte 16: offset 1 should be from 2 to 3")
        );
        assert!(told(&[0, 2], &[0]).contains("byte 8: offset 2 should be 1"));
        assert!(told(&[0, 2], &[0, 1]).contains("byte 4: neighbour 1 is not a vertex"));
    }
}
