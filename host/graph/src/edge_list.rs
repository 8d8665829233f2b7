//! From edges in any order to rows.

use super::Graph;
use super::budget::Budget;
use super::error::Reason;

/// Edges as they are read, never more than the budget admits.
pub(super) struct EdgeList {
    budget: Budget,
    vertices: u64,
    edges: Vec<(u32, u32)>,
}

impl EdgeList {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            vertices: 0,
            edges: Vec::new(),
        }
    }

    /// Makes the graph at least `vertices` large.
    pub(super) fn declare(&mut self, vertices: u64) -> Result<(), Reason> {
        self.budget.admit(vertices, 0)?;
        self.vertices = self.vertices.max(vertices);
        Ok(())
    }

    pub(super) fn push(&mut self, source: u32, destination: u32) -> Result<(), Reason> {
        let vertices = self.vertices.max(u64::from(source.max(destination)) + 1);
        self.budget.admit(vertices, self.edges.len() as u64 + 1)?;
        self.vertices = vertices;
        self.edges.push((source, destination));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vertices == 0
    }

    /// A stable counting sort by source.
    pub(super) fn into_graph(self) -> Graph {
        let rows = self.vertices as usize;
        let mut offsets = vec![0u64; rows + 1];
        for &(source, _) in &self.edges {
            offsets[source as usize + 1] += 1;
        }
        for row in 0..rows {
            offsets[row + 1] += offsets[row];
        }
        // Each row's offset serves as its cursor and so ends where the next row begins: the
        // shift by one row below makes them offsets again, without a second array.
        let mut edges = vec![0u32; self.edges.len()];
        for &(source, destination) in &self.edges {
            let cursor = &mut offsets[source as usize];
            edges[*cursor as usize] = destination;
            *cursor += 1;
        }
        offsets.copy_within(0..rows, 1);
        offsets[0] = 0;
        Graph { offsets, edges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_hold_their_edges_in_order(edges in prop::collection::vec((0u32..20, 0u32..30), 1..200)) {
            let mut list = EdgeList::new(Budget::new(u64::MAX));
            for &(source, destination) in &edges {
                list.push(source, destination).unwrap();
            }
            let graph = list.into_graph();
            let largest = edges.iter().map(|&(s, d)| s.max(d)).max().unwrap();
            prop_assert_eq!(graph.vertices(), largest as usize + 1);
            prop_assert_eq!(graph.edges().len(), edges.len());
            for vertex in 0..=largest {
                let row: Vec<u32> = edges.iter().filter(|e| e.0 == vertex).map(|e| e.1).collect();
                prop_assert_eq!(graph.neighbours(vertex), &row[..]);
            }
        }
    }

    #[test]
    fn an_id_that_would_exhaust_memory_is_refused_before_it_is_stored() {
        let mut list = EdgeList::new(Budget::new(1 << 20));
        list.push(0, 1).unwrap();
        assert!(matches!(
            list.push(0, 4_000_000_000),
            Err(Reason::Memory { .. })
        ));
        assert_eq!(list.into_graph().vertices(), 2);
    }
}
