//! Edge lists: one `source destination` a line, separated by blanks.
//!
//! Blank lines and lines that begin with `#` or `%` are skipped. A third word is taken for the
//! edge's weight: it must be a number and is not used.

use std::io::BufRead;

use super::Graph;
use super::budget::Budget;
use super::edge_list::EdgeList;
use super::error::{Fault, Place, Reason};
use super::text::{self, Lines};

pub(super) fn read(reader: impl BufRead, budget: Budget) -> Result<Graph, Fault> {
    let mut lines = Lines::new(reader);
    let mut edges = EdgeList::new(budget);
    while let Some((place, line)) = lines.next_data(b"#%")? {
        edge(line)
            .and_then(|(source, destination)| edges.push(source, destination))
            .map_err(|reason| place.fault(reason))?;
    }
    if edges.is_empty() {
        return Err(Place::Whole.fault(Reason::Empty("edge")));
    }
    Ok(edges.into_graph())
}

fn edge(line: &[u8]) -> Result<(u32, u32), Reason> {
    let mut words = text::words(line);
    let (source, destination) = (words.next(), words.next());
    let (Some(source), Some(destination), weight, None) =
        (source, destination, words.next(), words.next())
    else {
        return Err(Reason::Columns {
            expected: "'source destination' or 'source destination weight'",
            found: text::words(line).count(),
        });
    };
    let edge = (text::vertex(source)?, text::vertex(destination)?);
    weight.map_or(Ok(()), text::weight)?;
    Ok(edge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_text(text: &str) -> Result<Graph, Fault> {
        read(text.as_bytes(), Budget::new(1 << 20))
    }

    #[test]
    fn comments_blank_lines_weights_and_line_ends_are_accepted() {
        let graph = read_text("# made by hand\n\n% too\n2 0\r\n\t0   1 0.5\n2 2\n2 0").unwrap();
        assert_eq!(graph.offsets(), [0, 1, 1, 4]);
        assert_eq!(graph.edges(), [1, 0, 2, 0]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let line_2 = |text: &str| match read_text(text) {
            Err(Fault {
                place: Place::Line(2),
                reason,
            }) => reason,
            other => panic!("{text:?}: {other:?}"),
        };
        assert!(matches!(line_2("0 1\n1 two\n"), Reason::NotANumber(word, _) if word == "two"));
        assert!(matches!(line_2("0 1\n-1 2\n"), Reason::Negative(_)));
        assert!(matches!(
            line_2("0 1\n7\n"),
            Reason::Columns { found: 1, .. }
        ));
        assert!(matches!(
            line_2("0 1\n1 2 3 4\n"),
            Reason::Columns { found: 4, .. }
        ));
        assert!(matches!(line_2("0 1\n1 2 heavy\n"), Reason::NotANumber(..)));
        assert!(matches!(
            line_2("0 1\n0 4294967296\n"),
            Reason::HugeVertex(_)
        ));
        assert!(matches!(
            line_2("0 1\n0 4000000000\n"),
            Reason::Memory {
                vertices: 4_000_000_001,
                ..
            }
        ));
    }

    #[test]
    fn a_file_without_edges_is_refused() {
        for text in ["", "\n\n", "# only words\n"] {
            assert!(matches!(
                read_text(text),
                Err(Fault {
                    place: Place::Whole,
                    reason: Reason::Empty(_)
                })
            ));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes[..], Budget::new(1 << 20));
        }

        #[test]
        fn no_near_miss_panics(text in "[0-9 \\t\n#%.e-]{0,80}") {
            let _ = read_text(&text);
        }
    }
}
