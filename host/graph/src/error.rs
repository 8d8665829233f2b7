//! Why a graph file was refused.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A graph file that cannot be used: which, where in it, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}{place}: {reason}", file.display())]
pub struct GraphError {
    /// The file as it was named.
    pub file: PathBuf,
    /// Where in the file.
    pub place: Place,
    /// What is wrong and what to do about it.
    pub reason: Reason,
}

/// A position in a graph file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A line of text, counted from 1, after decompression.
    Line(u64),
    /// A byte of a binary file, counted from 0.
    Byte(u64),
}

impl Place {
    pub(super) fn fault(self, reason: Reason) -> Fault {
        Fault {
            place: self,
            reason,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line(line) => write!(f, ", line {line}"),
            Self::Byte(byte) => write!(f, ", byte {byte}"),
        }
    }
}

/// What a reader reports: it sees bytes and does not know the file's name.
#[derive(Debug)]
pub struct Fault {
    /// Where in the bytes.
    pub place: Place,
    /// What is wrong and what to do about it.
    pub reason: Reason,
}

impl Fault {
    /// The fault as one of this file.
    pub fn in_file(self, file: &Path) -> GraphError {
        GraphError {
            file: file.to_owned(),
            place: self.place,
            reason: self.reason,
        }
    }
}

/// What is wrong with a graph file, each with what to do.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each message is the documentation of its variant and fields"
)]
pub enum Reason {
    #[error("there is no such file; check the path")]
    Missing,
    #[error("this is not a regular file; name a graph file")]
    NotAFile,
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error(
        "the kind of graph is told by the name, which must end in .el, .el.gz, .mtx, .col or .dst; rename or convert the file"
    )]
    UnknownKind,
    #[error("the file holds no {0}; is it the right one, and was it written to its end?")]
    Empty(&'static str),
    #[error("the compressed file ends too early; copy or download it again")]
    TruncatedGzip,
    #[error("the compressed file is damaged ({0}); copy or download it again")]
    DamagedGzip(#[source] io::Error),
    #[error("the line is longer than {limit} bytes; is this a text file?")]
    LongLine { limit: usize },
    #[error("expected {expected}, found {found} word(s); correct the line")]
    Columns {
        expected: &'static str,
        found: usize,
    },
    #[error("'{0}' is not a {1}; correct it")]
    NotANumber(String, &'static str),
    #[error("'{0}' is negative, and vertices are numbered from 0; renumber them")]
    Negative(String),
    #[error(
        "vertex {0} is beyond 4294967295, the largest id of 32 bits; renumber the vertices from 0 without gaps"
    )]
    HugeVertex(String),
    #[error("{0} is beyond 64 bits; correct it")]
    HugeNumber(String),
    #[error(
        "{vertices} vertices (largest id + 1) and {edges} edges would take {need} bytes of memory, and only {limit} may be used; \
         renumber the vertices without gaps, or use a machine with more memory"
    )]
    Memory {
        vertices: u64,
        edges: u64,
        need: u128,
        limit: u64,
    },
    #[error(
        "vertex {wanted} does not exist: the graph has {vertices} vertices, numbered from 0; choose a smaller one"
    )]
    NoSuchVertex { wanted: u64, vertices: u64 },
    #[error(
        "the first line must be '%%MatrixMarket matrix coordinate pattern|real|integer general|symmetric', found '{0}'; convert the file"
    )]
    Banner(String),
    #[error(
        "a symmetric matrix must be square, and this one has {rows} rows and {columns} columns; correct the size line"
    )]
    NotSquare { rows: u64, columns: u64 },
    #[error(
        "{name} {found} is outside 1 to {size}, which the size line declares; correct one of them"
    )]
    OutsideMatrix {
        name: &'static str,
        found: u64,
        size: u64,
    },
    #[error(
        "the size line declares {declared} entries and the file ends after {found}; it is truncated: copy or download it again"
    )]
    TruncatedMatrix { declared: u64, found: u64 },
    #[error(
        "the size line declares {declared} entries and here is one more; correct the size line"
    )]
    ExcessEntry { declared: u64 },
    #[error(
        "the header declares {declared} values of 8 bytes after 16 bytes of header, and the file has {length} bytes; convert or copy it again"
    )]
    PairLength { declared: u64, length: u64 },
    #[error("the file ends within its values; convert or copy it again")]
    ShortPair,
    #[error(
        "offset {found} should be {expected}, so that each row begins where the one before ends and all lie within the edges; convert the graph again"
    )]
    Offset { found: u64, expected: String },
    #[error(
        "neighbour {found} is not a vertex: the graph has {vertices}, numbered from 0; are .col and .dst of the same graph?"
    )]
    Neighbour { found: u64, vertices: u64 },
}
