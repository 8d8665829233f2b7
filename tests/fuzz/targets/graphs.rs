//! The graph readers, on any bytes: none panics, and what is not refused is a graph.
//!
//! The first byte chooses the format. A graph that was read is written as an edge list and read
//! again, which must give the same.
#![no_main]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use libfuzzer_sys::fuzz_target;
use warpstore_graph::{Budget, Fault, Format, Graph, read, read_pair};

/// Memory that a graph may take: so little that inputs of a few bytes reach the limit.
const BUDGET: u64 = 1 << 14;

fuzz_target!(|bytes: &[u8]| {
    let Some((format, content)) = bytes.split_first() else {
        return;
    };
    let read = match format % 5 {
        0 => read_as(Format::EdgeList, content),
        1 => read_as(Format::PackedEdgeList, content),
        2 => read_as(Format::PackedEdgeList, &gzip(content)),
        3 => read_as(Format::MatrixMarket, content),
        _ => pair(content),
    };
    match read {
        Ok(graph) => check(&graph),
        Err(fault) => assert!(!fault.in_file(Path::new("g")).to_string().is_empty()),
    }
});

fn read_as(format: Format, content: &[u8]) -> Result<Graph, Fault> {
    read(format, content, Budget::new(BUDGET))
}

/// The first byte of `content` says where the one file ends and the other begins, in words.
fn pair(content: &[u8]) -> Result<Graph, Fault> {
    let (first, content) = content.split_first().unwrap_or((&0, &[]));
    let middle = (usize::from(*first) * 8).min(content.len());
    let (col, dst) = content.split_at(middle);
    read_pair(col, dst, Budget::new(BUDGET))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn check(graph: &Graph) {
    let (offsets, edges) = (graph.offsets(), graph.edges());
    assert!(offsets.is_sorted() && offsets[0] == 0);
    assert_eq!(offsets.last(), Some(&(edges.len() as u64)));
    assert!(edges.iter().all(|&id| (id as usize) < graph.vertices()));
    assert!(graph.vertices() as u64 * 16 + edges.len() as u64 * 20 <= BUDGET);
    assert!(
        graph
            .vertex(graph.vertices() as u64, Path::new("g"))
            .is_err()
    );
    if let Some(again) = rewritten(graph) {
        assert_eq!(&again, graph);
    }
}

/// The graph by way of an edge list; `None` where that cannot say the same: the last vertex of
/// an edge list has an edge.
fn rewritten(graph: &Graph) -> Option<Graph> {
    let mut text = String::new();
    let mut largest = 0;
    for vertex in 0..graph.vertices() as u32 {
        for &id in graph.neighbours(vertex) {
            largest = largest.max(id.max(vertex));
            writeln!(text, "{vertex} {id}").unwrap();
        }
    }
    let same = !text.is_empty() && largest as usize + 1 == graph.vertices();
    same.then(|| read_as(Format::EdgeList, text.as_bytes()).unwrap())
}
