//! Arrays from files: what they are called, how long they are, and their bytes.

mod columns;
mod csv;
mod floats;
mod graph;
mod parquet;
mod raw;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nvme_model::open_regular;
use warpstore_volume::ArrayShape;

use crate::options::SourceName;

/// An array that a file has.
pub struct Input {
    /// Its name, type and length.
    pub shape: ArrayShape,
    /// Its elements, little-endian.
    pub bytes: Box<dyn Read>,
}

/// Opens the arrays that a source names: two of a graph, one or all columns of a table, one of raw
/// binary.
///
/// # Errors
/// The file is not there or not as it must be, or the source says too much or too little.
pub fn open(source: &SourceName) -> Result<Vec<Input>> {
    let source = &source.resolved();
    let ends_in = |end: &str| ends_in(&source.file, end);
    if warpstore_graph::is_graph(&source.file) {
        return graph::open(source);
    }
    if ends_in("csv") {
        return csv::open(source);
    }
    if ends_in("parquet") {
        return parquet::open(source);
    }
    if let Some(column) = &source.column {
        bail!(
            "{} is no table, so it has no column {column}; tables end in .csv or .parquet",
            source.file.display()
        );
    }
    raw::open(source)
}

/// Opens a regular file for reading.
fn open_file(path: &Path) -> Result<File> {
    let file = open_regular(path, OpenOptions::new().read(true));
    file.with_context(|| format!("cannot read {}", path.display()))
}

fn ends_in(file: &Path, end: &str) -> bool {
    file.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case(end))
}
