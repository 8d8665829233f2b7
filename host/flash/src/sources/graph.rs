//! A graph: two arrays, `NAME.offsets` (u64) and `NAME.edges` (u32).

use std::io::{self, Read};
use std::rc::Rc;

use anyhow::{Result, bail};
use warpstore_graph::{Budget, Graph};
use warpstore_terminal::Progress;
use warpstore_volume::{ArrayShape, ElementType};
use zerocopy::IntoBytes;

use super::Input;
use crate::options::SourceName;

pub(super) fn open(source: &SourceName) -> Result<Vec<Input>> {
    let file = source.file.display();
    if source.element.is_some() || source.column.is_some() {
        bail!("{file} is a graph: it has neither a type to choose nor columns");
    }
    let progress = Progress::begin(format!("read {file}"), 0);
    let graph = Rc::new(warpstore_graph::open(&source.file, Budget::of_machine())?);
    let (offsets, edges) = (graph.offsets().len() as u64, graph.edges().len() as u64);
    progress.end(&format!("{} vertices, {edges} edges", graph.vertices()));
    let array = |part: Part, element, len| Input {
        shape: ArrayShape {
            name: format!("{}.{}", source.name, part.name()),
            element,
            len,
        },
        bytes: Box::new(GraphBytes {
            graph: Rc::clone(&graph),
            part,
            at: 0,
        }),
    };
    Ok(vec![
        array(Part::Offsets, ElementType::U64, offsets),
        array(Part::Edges, ElementType::U32, edges),
    ])
}

#[derive(Clone, Copy)]
enum Part {
    Offsets,
    Edges,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Offsets => "offsets",
            Self::Edges => "edges",
        }
    }
}

/// The bytes of one of a graph's arrays.
struct GraphBytes {
    graph: Rc<Graph>,
    part: Part,
    at: usize,
}

impl Read for GraphBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = match self.part {
            Part::Offsets => self.graph.offsets().as_bytes(),
            Part::Edges => self.graph.edges().as_bytes(),
        };
        let read = (&bytes[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}
