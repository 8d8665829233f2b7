//! From a path to the reader of its format.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::budget::Budget;
use super::error::{Fault, GraphError, Place, Reason};
use super::pair::{self, Half, Side};
use super::{Graph, el, mtx};

const READ_AHEAD_BYTES: usize = 1 << 20;
/// Unpacked text between the decoder and its reader.
const UNPACKED_BYTES: usize = 64 << 10;

/// Reads the graph at `path`, whose format its name tells; `path` may also be the common stem of
/// a `.col` and a `.dst` file.
///
/// # Errors
/// A [`GraphError`] if a file is missing, unreadable, cut short or not of its format, or if the
/// graph would take more memory than `budget`.
pub fn open(path: &Path, budget: Budget) -> Result<Graph, GraphError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some(format) = Format::of(&name) {
        read(format, open_file(path)?.reader, budget).map_err(|fault| fault.in_file(path))
    } else if name.ends_with(".col") || name.ends_with(".dst") {
        open_pair(
            &path.with_extension("col"),
            &path.with_extension("dst"),
            budget,
        )
    } else {
        let [col, dst] = [".col", ".dst"].map(|end| append(path, end));
        if col.exists() || dst.exists() {
            return open_pair(&col, &dst, budget);
        }
        // A missing file of an unknown kind is missing first of all.
        open_file(path)?;
        Err(Place::Whole.fault(Reason::UnknownKind).in_file(path))
    }
}

/// Whether [`open`] would take `path` for a graph, by its name or because a `.col` or `.dst` file has it
/// for its stem.
pub fn is_graph(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_half = name.ends_with(".col") || name.ends_with(".dst");
    let has_half = || {
        [".col", ".dst"]
            .iter()
            .any(|end| append(path, end).exists())
    };
    Format::of(&name).is_some() || is_half || has_half()
}

/// How a graph is written that is a single file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.el`
    EdgeList,
    /// `.el.gz`
    PackedEdgeList,
    /// `.mtx`
    MatrixMarket,
}

impl Format {
    /// What the name of a file says.
    fn of(name: &str) -> Option<Self> {
        const ENDS: [(&str, Format); 3] = [
            (".el", Format::EdgeList),
            (".el.gz", Format::PackedEdgeList),
            (".mtx", Format::MatrixMarket),
        ];
        let known = ENDS.into_iter().find(|(end, _)| name.ends_with(end));
        known.map(|(_, format)| format)
    }
}

/// Reads a graph from a stream of bytes.
///
/// # Errors
/// What is wrong, and where: as for [`open`], but for the name of the file.
pub fn read(format: Format, source: impl BufRead, budget: Budget) -> Result<Graph, Fault> {
    match format {
        Format::EdgeList => el::read(source, budget),
        Format::PackedEdgeList => {
            let unpacked = MultiGzDecoder::new(source);
            el::read(BufReader::with_capacity(UNPACKED_BYTES, unpacked), budget)
        }
        Format::MatrixMarket => mtx::read(source, budget),
    }
}

/// Reads a graph from the bytes of a `.col` and a `.dst` file.
///
/// # Errors
/// As [`read`].
pub fn read_pair(col: &[u8], dst: &[u8], budget: Budget) -> Result<Graph, Fault> {
    let [col, dst] = [col, dst].map(|reader| Half {
        reader,
        length: reader.len() as u64,
    });
    pair::read(col, dst, budget).map_err(|(_, fault)| fault)
}

fn open_pair(col: &Path, dst: &Path, budget: Budget) -> Result<Graph, GraphError> {
    pair::read(open_file(col)?, open_file(dst)?, budget).map_err(|(side, fault)| match side {
        Side::Offsets => fault.in_file(col),
        Side::Destinations => fault.in_file(dst),
    })
}

/// Opens a regular file that is not empty.
fn open_file(path: &Path) -> Result<Half<BufReader<File>>, GraphError> {
    let refuse = |reason| Place::Whole.fault(reason).in_file(path);
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => refuse(Reason::Missing),
        _ => refuse(Reason::Read(error)),
    };
    // Asked before opening: to open a pipe that nobody writes would wait for ever.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(refuse(Reason::NotAFile));
    }
    let file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    if length == 0 {
        return Err(refuse(Reason::Empty("byte")));
    }
    Ok(Half {
        reader: BufReader::with_capacity(READ_AHEAD_BYTES, file),
        length,
    })
}

fn append(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;
    use std::io::Write;
    use tempfile::TempDir;

    const EDGES: &str = "0 1\n1 2\n2 0\n3 3\n";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Opens a file of this name and content, in a folder of its own.
    fn open_named(name: &str, content: &[u8]) -> Result<Graph, GraphError> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let opened = open(&path, Budget::new(1 << 20));
        if let Err(error) = &opened {
            assert!(error.to_string().contains(name), "{error}");
        }
        opened
    }

    fn u64s(values: &[u64]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    #[test]
    fn every_kind_of_name_leads_to_its_reader() {
        let plain = open_named("g.el", EDGES.as_bytes()).unwrap();
        assert_eq!(
            plain,
            open_named("g.el.gz", &gzip(EDGES.as_bytes())).unwrap()
        );
        // A gzip file may be several, one after the other.
        let members = [gzip(&EDGES.as_bytes()[..5]), gzip(&EDGES.as_bytes()[5..])].concat();
        assert_eq!(plain, open_named("g.el.gz", &members).unwrap());
        let matrix =
            "%%MatrixMarket matrix coordinate pattern general\n4 4 4\n1 2\n2 3\n3 1\n4 4\n";
        assert_eq!(plain, open_named("g.mtx", matrix.as_bytes()).unwrap());

        let folder = TempDir::new().unwrap();
        fs::write(
            folder.path().join("g.bel.col"),
            u64s(&[5, 0, 0, 1, 2, 3, 4]),
        )
        .unwrap();
        fs::write(folder.path().join("g.bel.dst"), u64s(&[4, 0, 1, 2, 0, 3])).unwrap();
        for name in ["g.bel", "g.bel.col", "g.bel.dst"] {
            assert_eq!(
                plain,
                open(&folder.path().join(name), Budget::new(1 << 20)).unwrap(),
                "{name}"
            );
        }
        fs::remove_file(folder.path().join("g.bel.dst")).unwrap();
        let error = open(&folder.path().join("g.bel"), Budget::new(1 << 20)).unwrap_err();
        assert!(error.file.ends_with("g.bel.dst") && matches!(error.reason, Reason::Missing));
    }

    #[test]
    fn files_that_are_no_graphs_are_refused() {
        assert!(matches!(
            open_named("g.csv", b"0 1").unwrap_err().reason,
            Reason::UnknownKind
        ));
        assert!(matches!(
            open_named("g.gz", b"0 1").unwrap_err().reason,
            Reason::UnknownKind
        ));
        for name in ["g.el", "g.el.gz", "g.mtx", "g.col"] {
            let error = open_named(name, b"").unwrap_err();
            assert!(
                matches!(error.reason, Reason::Empty(_) | Reason::Missing),
                "{error}"
            );
        }
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("g.el")).unwrap();
        for (name, is_missing) in [
            ("g.el", false),
            ("", false),
            ("h.el", true),
            ("h", true),
            ("h.mtx", true),
        ] {
            let reason = open(&folder.path().join(name), Budget::new(1 << 20))
                .unwrap_err()
                .reason;
            match reason {
                Reason::Missing => assert!(is_missing, "{name}"),
                Reason::NotAFile => assert!(!is_missing, "{name}"),
                other => panic!("{name}: {other}"),
            }
        }
    }

    #[test]
    fn a_gzip_file_cut_anywhere_is_refused() {
        let whole = gzip(EDGES.as_bytes());
        for length in 1..whole.len() {
            let error = open_named("g.el.gz", &whole[..length]).unwrap_err();
            assert!(
                matches!(error.reason, Reason::TruncatedGzip),
                "{length}: {error}"
            );
        }
        let error = open_named("g.el.gz", EDGES.as_bytes()).unwrap_err();
        assert!(matches!(error.reason, Reason::DamagedGzip(_)), "{error}");
    }

    #[test]
    fn messages_name_file_line_reason_and_cure() {
        let error = open_named("g.el", b"0 1\n0 two\n").unwrap_err().to_string();
        assert!(
            error.ends_with("g.el, line 2: 'two' is not a vertex number; correct it"),
            "{error}"
        );
        let graph = open_named("g.el", EDGES.as_bytes()).unwrap();
        assert_eq!(graph.vertex(3, Path::new("g.el")).unwrap(), 3);
        for wanted in [4, 1 << 32, u64::MAX] {
            let error = graph
                .vertex(wanted, Path::new("g.el"))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(&format!(
                    "g.el: vertex {wanted} does not exist: the graph has 4"
                )),
                "{error}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_damage_to_a_gzip_file_panics(at in 0usize..1000, byte in any::<u8>()) {
            let mut bytes = gzip(EDGES.as_bytes());
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = open_named("g.el.gz", &bytes);
        }
    }
}
