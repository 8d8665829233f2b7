//! BaM's pair of binary files: row offsets in `.col`, destinations in `.dst`.
//!
//! Both are little-endian and without magic or checksum: a u64 count, a u64 that is ignored,
//! then that many u64. `.col` counts vertices + 1 offsets, `.dst` counts edges. Everything that
//! can be checked is: lengths, that offsets never decrease and end at the number of edges, and
//! that every destination is a vertex.

use std::io::{self, Read};

use super::Graph;
use super::budget::Budget;
use super::error::{Fault, Place, Reason};

const HEADER_BYTES: u64 = 16;
const VALUE_BYTES: u64 = 8;
/// Values read at a time.
const CHUNK: usize = 8192;

/// One of the two files: its bytes, and their number as the file system tells it.
pub(super) struct Half<R> {
    pub(super) reader: R,
    pub(super) length: u64,
}

/// Which file a fault is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Offsets,
    Destinations,
}

pub(super) fn read<R: Read>(
    mut col: Half<R>,
    mut dst: Half<R>,
    budget: Budget,
) -> Result<Graph, (Side, Fault)> {
    let in_col = |fault| (Side::Offsets, fault);
    let in_dst = |fault| (Side::Destinations, fault);
    let offset_count = col.count("row offset").map_err(in_col)?;
    let edge_count = dst.count("edge").map_err(in_dst)?;
    let Some(vertices) = offset_count.checked_sub(1).filter(|&vertices| vertices > 0) else {
        return Err(in_col(Place::Byte(0).fault(Reason::Empty("vertex"))));
    };
    // Ids have 32 bits, so that many vertices are the most that can be told apart.
    if vertices > 1 << 32 {
        return Err(in_col(
            Place::Byte(0).fault(Reason::HugeVertex(vertices.to_string())),
        ));
    }
    budget
        .admit(vertices, edge_count)
        .map_err(|reason| in_col(Place::Byte(0).fault(reason)))?;

    let mut offsets = Vec::with_capacity(offset_count as usize);
    col.values(offset_count, |place, offset| {
        let expected = match offsets.last() {
            None if offset != 0 => Some("0".to_owned()),
            Some(&last) if offset < last || offset > edge_count => {
                Some(format!("from {last} to {edge_count}"))
            }
            _ if offsets.len() as u64 == vertices && offset != edge_count => {
                Some(format!("{edge_count}, the number of edges"))
            }
            _ => None,
        };
        if let Some(expected) = expected {
            return Err(place.fault(Reason::Offset {
                found: offset,
                expected,
            }));
        }
        offsets.push(offset);
        Ok(())
    })
    .map_err(in_col)?;

    let mut edges = Vec::with_capacity(edge_count as usize);
    dst.values(edge_count, |place, id| {
        if id >= vertices {
            return Err(place.fault(Reason::Neighbour {
                found: id,
                vertices,
            }));
        }
        edges.push(id as u32);
        Ok(())
    })
    .map_err(in_dst)?;
    Ok(Graph { offsets, edges })
}

impl<R: Read> Half<R> {
    /// Reads the header: the number of values, which the file's length must bear out, so that
    /// nothing is allocated on the word of a header alone.
    fn count(&mut self, what: &'static str) -> Result<u64, Fault> {
        if self.length == 0 {
            return Err(Place::Whole.fault(Reason::Empty(what)));
        }
        let mut header = [[0; VALUE_BYTES as usize]; 2];
        self.reader
            .read_exact(header.as_flattened_mut())
            .map_err(|error| read_error(error, 0))?;
        let declared = u64::from_le_bytes(header[0]);
        let expected = declared
            .checked_mul(VALUE_BYTES)
            .and_then(|bytes| bytes.checked_add(HEADER_BYTES));
        if expected != Some(self.length) {
            return Err(Place::Byte(0).fault(Reason::PairLength {
                declared,
                length: self.length,
            }));
        }
        Ok(declared)
    }

    /// Hands `count` values to `take`, each with its place.
    fn values(
        &mut self,
        count: u64,
        mut take: impl FnMut(Place, u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut buffer = vec![[0; VALUE_BYTES as usize]; CHUNK];
        let mut done = 0;
        while done < count {
            let chunk = &mut buffer[..(count - done).min(CHUNK as u64) as usize];
            let start = HEADER_BYTES + done * VALUE_BYTES;
            self.reader
                .read_exact(chunk.as_flattened_mut())
                .map_err(|error| read_error(error, start))?;
            for (place, &value) in (start..).step_by(VALUE_BYTES as usize).zip(&*chunk) {
                take(Place::Byte(place), u64::from_le_bytes(value))?;
            }
            done += chunk.len() as u64;
        }
        Ok(())
    }
}

fn read_error(error: io::Error, start: u64) -> Fault {
    Place::Byte(start).fault(match error.kind() {
        io::ErrorKind::UnexpectedEof => Reason::ShortPair,
        _ => Reason::Read(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(count: u64, values: &[u64]) -> Vec<u8> {
        [count, 7]
            .iter()
            .chain(values)
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    fn read_bytes(col: &[u8], dst: &[u8]) -> Result<Graph, (Side, Fault)> {
        let [col, dst] = [col, dst].map(|reader| Half {
            reader,
            length: reader.len() as u64,
        });
        read(col, dst, Budget::new(1 << 20))
    }

    fn refused(offsets: &[u64], ids: &[u64]) -> (Side, Place, Reason) {
        let (side, fault) = read_bytes(
            &file(offsets.len() as u64, offsets),
            &file(ids.len() as u64, ids),
        )
        .unwrap_err();
        (side, fault.place, fault.reason)
    }

    #[test]
    fn a_pair_is_a_graph() {
        let graph = read_bytes(&file(4, &[0, 2, 2, 3]), &file(3, &[1, 0, 2])).unwrap();
        assert_eq!(graph.offsets(), [0, 2, 2, 3]);
        assert_eq!(graph.edges(), [1, 0, 2]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file_and_byte() {
        use {
            Place::Byte,
            Side::{Destinations, Offsets},
        };
        assert!(matches!(
            refused(&[1, 2], &[0, 0]),
            (Offsets, Byte(16), Reason::Offset { found: 1, .. })
        ));
        assert!(matches!(
            refused(&[0, 2, 1, 2], &[0, 0]),
            (Offsets, Byte(32), Reason::Offset { found: 1, .. })
        ));
        assert!(matches!(
            refused(&[0, 3, 2], &[0, 0]),
            (Offsets, Byte(24), Reason::Offset { found: 3, .. })
        ));
        assert!(matches!(
            refused(&[0, 1, 1], &[0, 0]),
            (Offsets, Byte(32), Reason::Offset { found: 1, .. })
        ));
        assert!(matches!(
            refused(&[0, 1, 2], &[0, 2]),
            (
                Destinations,
                Byte(24),
                Reason::Neighbour {
                    found: 2,
                    vertices: 2
                }
            )
        ));
        assert!(matches!(
            refused(&[0], &[]),
            (Offsets, Byte(0), Reason::Empty("vertex"))
        ));
        assert!(matches!(
            refused(&[0; 100_000], &[]),
            (Offsets, Byte(0), Reason::Memory { .. })
        ));
    }

    #[test]
    fn lengths_must_agree_with_the_headers() {
        let (col, dst) = (file(3, &[0, 1, 2]), file(2, &[0, 1]));
        for cut in 0..col.len() {
            assert_eq!(read_bytes(&col[..cut], &dst).unwrap_err().0, Side::Offsets);
        }
        for cut in 0..dst.len() {
            assert_eq!(
                read_bytes(&col, &dst[..cut]).unwrap_err().0,
                Side::Destinations
            );
        }
        // The number of edges in place of vertices + 1, as a converter of BaM's writes it.
        let (_, fault) = read_bytes(&file(2, &[0, 1, 2]), &dst).unwrap_err();
        assert!(matches!(
            fault.reason,
            Reason::PairLength {
                declared: 2,
                length: 40
            }
        ));
        let (_, fault) = read_bytes(&file(u64::MAX, &[0, 1, 2]), &dst).unwrap_err();
        assert!(matches!(fault.reason, Reason::PairLength { .. }));
    }

    #[test]
    fn a_file_that_shrinks_meanwhile_is_refused() {
        let dst = file(2, &[0, 1]);
        let half = |bytes, length| Half {
            reader: bytes,
            length,
        };
        let col = file(3, &[0, 1, 2]);
        let (_, fault) = read(
            half(&col[..], 40),
            half(&dst[..20], 32),
            Budget::new(1 << 20),
        )
        .unwrap_err();
        assert!(matches!(
            fault,
            Fault {
                place: Place::Byte(16),
                reason: Reason::ShortPair
            }
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(col in prop::collection::vec(any::<u8>(), 0..100), dst in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = read_bytes(&col, &dst);
        }

        #[test]
        fn no_mutation_panics_or_breaks_the_graph(at in 0usize..40, bit in 0u8..8, in_col in any::<bool>()) {
            let (mut col, mut dst) = (file(4, &[0, 1, 2, 3]), file(3, &[1, 2, 0]));
            let bytes = if in_col { &mut col } else { &mut dst };
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            if let Ok(graph) = read_bytes(&col, &dst) {
                prop_assert!(graph.offsets().is_sorted());
                prop_assert_eq!(graph.offsets().last(), Some(&(graph.edges().len() as u64)));
                prop_assert!(graph.edges().iter().all(|&id| (id as usize) < graph.vertices()));
            }
        }
    }
}
