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
pub use open::{Format, open, read, read_pair};

/// A directed graph in compressed sparse row form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Vertices + 1 indices into `edges`: never decreasing, from 0 to the number of edges.
    offsets: Vec<u64>,
    /// Destinations, grouped by source; each is a vertex of the graph.
    edges: Vec<u32>,
}

impl Graph {
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
