//! Matrix Market coordinate files (NIST, "The Matrix Market Exchange Formats", 1996).
//!
//! An entry is an edge from its row to its column, both counted from 1; its value is checked to
//! be a number and not used. A symmetric matrix holds one triangle, so each entry off the
//! diagonal is an edge both ways. Vertices are the larger of rows and columns.

use std::io::BufRead;

use super::Graph;
use super::budget::Budget;
use super::edge_list::EdgeList;
use super::error::{Fault, Place, Reason};
use super::text::{self, Lines};

/// What the first line says.
struct Banner {
    has_values: bool,
    is_symmetric: bool,
}

/// The size line.
struct Size {
    rows: u64,
    columns: u64,
    entries: u64,
}

pub(super) fn read(reader: impl BufRead, budget: Budget) -> Result<Graph, Fault> {
    let mut lines = Lines::new(reader);
    let (place, line) = lines
        .next()?
        .ok_or_else(|| Place::Whole.fault(Reason::Empty("matrix")))?;
    let banner = banner(line).map_err(|reason| place.fault(reason))?;

    let (place, line) = lines
        .next_data(b"%")?
        .ok_or_else(|| Place::Whole.fault(Reason::Empty("size line")))?;
    let size = size(line, &banner).map_err(|reason| place.fault(reason))?;
    let mut edges = EdgeList::new(budget);
    edges
        .declare(size.rows.max(size.columns))
        .map_err(|reason| place.fault(reason))?;
    if edges.is_empty() {
        return Err(place.fault(Reason::Empty("vertex")));
    }

    let mut found = 0;
    while let Some((place, line)) = lines.next_data(b"%")? {
        add_entry(line, &banner, &size, found, &mut edges).map_err(|reason| place.fault(reason))?;
        found += 1;
    }
    if found < size.entries {
        return Err(lines.place().fault(Reason::TruncatedMatrix {
            declared: size.entries,
            found,
        }));
    }
    Ok(edges.into_graph())
}

fn banner(line: &[u8]) -> Result<Banner, Reason> {
    let lower = line.to_ascii_lowercase();
    let words: Vec<&[u8]> = text::words(&lower).collect();
    let [b"%%matrixmarket", b"matrix", b"coordinate", field, symmetry] = words[..] else {
        return Err(Reason::Banner(text::quote(line)));
    };
    let has_values = match field {
        b"pattern" => Some(false),
        b"real" | b"integer" => Some(true),
        _ => None,
    };
    let is_symmetric = match symmetry {
        b"general" => Some(false),
        b"symmetric" => Some(true),
        _ => None,
    };
    match (has_values, is_symmetric) {
        (Some(has_values), Some(is_symmetric)) => Ok(Banner {
            has_values,
            is_symmetric,
        }),
        _ => Err(Reason::Banner(text::quote(line))),
    }
}

fn size(line: &[u8], banner: &Banner) -> Result<Size, Reason> {
    let words: Vec<&[u8]> = text::words(line).collect();
    let [rows, columns, entries] = words[..] else {
        return Err(Reason::Columns {
            expected: "the size line 'rows columns entries'",
            found: words.len(),
        });
    };
    let size = Size {
        rows: text::number(rows, "number of rows")?,
        columns: text::number(columns, "number of columns")?,
        entries: text::number(entries, "number of entries")?,
    };
    if banner.is_symmetric && size.rows != size.columns {
        return Err(Reason::NotSquare {
            rows: size.rows,
            columns: size.columns,
        });
    }
    // Ids have 32 bits, so that many vertices are the most that can be told apart.
    if size.rows.max(size.columns) > 1 << 32 {
        return Err(Reason::HugeVertex(size.rows.max(size.columns).to_string()));
    }
    Ok(size)
}

/// Adds entry number `index`.
fn add_entry(
    line: &[u8],
    banner: &Banner,
    size: &Size,
    index: u64,
    edges: &mut EdgeList,
) -> Result<(), Reason> {
    if index == size.entries {
        return Err(Reason::ExcessEntry {
            declared: size.entries,
        });
    }
    let mut words = text::words(line);
    let expected = if banner.has_values {
        "'row column value'"
    } else {
        "'row column'"
    };
    let (row, column) = (words.next(), words.next());
    let value = if banner.has_values {
        words.next()
    } else {
        None
    };
    let (Some(row), Some(column), true, None) = (
        row,
        column,
        value.is_some() == banner.has_values,
        words.next(),
    ) else {
        return Err(Reason::Columns {
            expected,
            found: text::words(line).count(),
        });
    };
    value.map_or(Ok(()), text::weight)?;
    let (row, column) = (
        position(row, "row", size.rows)?,
        position(column, "column", size.columns)?,
    );
    edges.push(row, column)?;
    if banner.is_symmetric && row != column {
        edges.push(column, row)?;
    }
    Ok(())
}

/// A row or column, from 1 in the file to 0 in the graph.
fn position(word: &[u8], name: &'static str, size: u64) -> Result<u32, Reason> {
    let found = text::number(word, name)?;
    let outside = Reason::OutsideMatrix { name, found, size };
    if found > size {
        return Err(outside);
    }
    found
        .checked_sub(1)
        .and_then(|id| u32::try_from(id).ok())
        .ok_or(outside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SYMMETRIC: &str = "%%MatrixMarket matrix coordinate real symmetric\n% a comment\n\n4 4 3\n2 1 0.5\n3 3 1e9\n3 1 -2\n";

    fn read_text(text: &str) -> Result<Graph, Fault> {
        read(text.as_bytes(), Budget::new(1 << 20))
    }

    fn general(rest: &str) -> String {
        format!("%%MatrixMarket matrix coordinate pattern general\n{rest}")
    }

    #[test]
    fn symmetric_entries_are_edges_both_ways() {
        let graph = read_text(SYMMETRIC).unwrap();
        assert_eq!(graph.offsets(), [0, 2, 3, 5, 5]);
        assert_eq!(graph.edges(), [1, 2, 0, 2, 0]);
    }

    #[test]
    fn vertices_are_the_larger_side_and_may_have_no_edges() {
        let graph = read_text(&general("2 5 1\n1 5\n")).unwrap();
        assert_eq!(graph.vertices(), 5);
        assert_eq!(graph.neighbours(0), [4]);
        assert_eq!(read_text(&general("3 3 0\n")).unwrap().vertices(), 3);
    }

    #[test]
    fn a_file_cut_at_any_line_is_refused() {
        let lines: Vec<&str> = SYMMETRIC.split_inclusive('\n').collect();
        for kept in 0..lines.len() {
            assert!(read_text(&lines[..kept].concat()).is_err(), "{kept} lines");
        }
        let cut = read_text(&lines[..lines.len() - 1].concat());
        assert!(matches!(
            cut,
            Err(Fault {
                place: Place::Line(6),
                reason: Reason::TruncatedMatrix {
                    declared: 3,
                    found: 2
                }
            })
        ));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let reason = |text: &str| read_text(text).expect_err(text).reason;
        for banner in [
            "",
            "0 1\n",
            "%%MatrixMarket matrix array real general\n",
            "%%MatrixMarket matrix coordinate complex general\n",
            "%%MatrixMarket matrix coordinate real hermitian\n",
            "%%MatrixMarket matrix coordinate real\n",
        ] {
            assert!(
                matches!(reason(banner), Reason::Banner(_) | Reason::Empty(_)),
                "{banner}"
            );
        }
        assert!(matches!(reason(&general("")), Reason::Empty("size line")));
        assert!(matches!(
            reason(&general("0 0 0\n")),
            Reason::Empty("vertex")
        ));
        assert!(matches!(
            reason(&general("3 3\n")),
            Reason::Columns { found: 2, .. }
        ));
        assert!(matches!(
            reason(&general("3 three 1\n")),
            Reason::NotANumber(..)
        ));
        assert!(matches!(
            reason(&general("9999999999 3 1\n")),
            Reason::HugeVertex(_)
        ));
        assert!(matches!(
            reason(&general("4000000000 3 1\n")),
            Reason::Memory { .. }
        ));
        assert!(matches!(
            reason(&general("3 3 1\n0 1\n")),
            Reason::OutsideMatrix {
                name: "row",
                found: 0,
                size: 3
            }
        ));
        assert!(matches!(
            reason(&general("3 3 1\n1 4\n")),
            Reason::OutsideMatrix {
                name: "column",
                found: 4,
                size: 3
            }
        ));
        assert!(matches!(
            reason(&general("3 3 1\n1 2 3\n")),
            Reason::Columns { found: 3, .. }
        ));
        assert!(matches!(
            reason(&general("3 3 1\n1 2\n2 3\n")),
            Reason::ExcessEntry { declared: 1 }
        ));
        assert!(matches!(
            reason(&general("3 3 18446744073709551615\n1 2\n")),
            Reason::TruncatedMatrix { found: 1, .. }
        ));
        assert!(matches!(
            reason("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2\n"),
            Reason::Columns { found: 2, .. }
        ));
        assert!(matches!(
            reason("%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n"),
            Reason::NotSquare { .. }
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes[..], Budget::new(1 << 20));
        }

        #[test]
        fn no_near_miss_panics(rest in "[0-9 \n%.-]{0,60}") {
            let _ = read_text(&general(&rest));
        }

        #[test]
        fn no_mutation_panics(at in 0..SYMMETRIC.len(), byte in any::<u8>()) {
            let mut bytes = SYMMETRIC.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = read(&bytes[..], Budget::new(1 << 20));
        }
    }
}
