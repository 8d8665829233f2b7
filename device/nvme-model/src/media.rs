//! What the blocks of an emulated SSD are kept in.
//!
//! A media file holds the blocks byte for byte from offset 0 on, and behind them one 4096-byte
//! trailer that says that the file is ours:
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | `warpstore media` and a zero byte |
//! | 16..20 | format version, 1 |
//! | 24..32 | length of the media in bytes |
//! | 32..52 | serial number of the controller, padded with spaces |
#![allow(unsafe_code, reason = "mapping a file")]
// UNSAFETY: calls of mmap; mappings are only accessed by address, through `Span`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memmap2::{MmapMut, MmapOptions};
use rustix::fs::FallocateFlags;

use crate::memory::Span;

const MAGIC: &[u8; 16] = b"warpstore media\0";
const VERSION: u32 = 1;
const TRAILER: u64 = 4096;

/// Where the blocks of a controller are.
#[derive(Debug)]
pub struct Media {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    None,
    Ram(MmapMut),
    File { mapping: MmapMut, file: File },
    Lent { address: u64, bytes: u64 },
}

/// Why media cannot be used. Nothing has been written when one is returned, and a file that was
/// created has been removed.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The file cannot be opened, created or sized.
    #[error("media file {path}: {action}: {source}; {advice}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The file is smaller than the media it should hold.
    #[error(
        "media file {path} holds {found} bytes of media, the namespaces need {needed}; \
         ask for fewer blocks, or let the file be overwritten (--overwrite)"
    )]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Bytes of media in the file.
        found: u64,
        /// Bytes asked for.
        needed: u64,
    },
    /// The file has content and no trailer of ours.
    #[error(
        "media file {path} is not empty and was not made by warpstore; \
         name another file, or let it be overwritten (--overwrite)"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// No memory for RAM media.
    #[error("cannot reserve {bytes} bytes of memory as media: {source}; ask for fewer blocks")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Media {
    /// No media: commands succeed and move no data, so a reader's buffer keeps what it held and
    /// its content cannot be verified.
    pub fn none() -> Self {
        Self { kind: Kind::None }
    }

    /// `bytes` zeroed bytes of memory, gone when the controller is.
    ///
    /// # Errors
    /// [`MediaError::Memory`].
    pub fn ram(bytes: u64) -> Result<Self, MediaError> {
        let memory = MmapOptions::new().len(bytes as usize).map_anon();
        let memory = memory.map_err(|source| MediaError::Memory { bytes, source })?;
        Ok(Self {
            kind: Kind::Ram(memory),
        })
    }

    /// Memory of the caller: pinned memory, or GPU memory if only a GPU serves the I/O queues.
    ///
    /// # Safety
    /// `bytes` bytes at `address` are valid for the agent that serves the I/O queues, 16-byte
    /// aligned, as long as the controller exists.
    pub unsafe fn lent(address: u64, bytes: u64) -> Self {
        Self {
            kind: Kind::Lent { address, bytes },
        }
    }

    /// A file that keeps the blocks, created with `bytes` bytes of zeros if it does not exist or
    /// is empty. All of its space is allocated up front, so a full disk shows here and not as a
    /// fault in the middle of a write. With `overwrite` any content becomes zeros.
    ///
    /// # Errors
    /// [`MediaError`], naming the file. Without `overwrite` a file of other origin is refused.
    pub fn file(
        path: &Path,
        bytes: u64,
        serial: &str,
        overwrite: bool,
    ) -> Result<Self, MediaError> {
        let fail = |action, advice| {
            move |source| MediaError::File {
                path: path.to_owned(),
                action,
                source,
                advice,
            }
        };
        let existed = path.exists();
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = open.map_err(fail(
            "cannot open it for writing",
            "name a regular file in a folder that you may write",
        ))?;
        let metadata = file
            .metadata()
            .map_err(fail("cannot read its size", "name a regular file"))?;
        let fresh = overwrite || metadata.len() == 0;
        if !fresh {
            check_trailer(path, &file, metadata.len(), bytes)?;
        } else if let Err(source) = lay_out(&file, metadata.len(), bytes, serial) {
            if !existed {
                // Best effort: the error to report is the first one.
                let _ = std::fs::remove_file(path);
            }
            return Err(fail(
                "cannot allocate its space",
                "free some space or ask for fewer blocks",
            )(source));
        }
        // SAFETY: the mapping is shared memory that is accessed atomically and by address only.
        // A file that another process truncates would fault; its space is allocated, and
        // truncating a disk in use is as wrong here as with a real one.
        let mapping = unsafe { MmapOptions::new().len(bytes as usize).map_mut(&file) };
        let mapping =
            mapping.map_err(fail("cannot map it", "name a file on a local file system"))?;
        Ok(Self {
            kind: Kind::File { mapping, file },
        })
    }

    /// Address of the first byte and length; both 0 without media.
    pub fn place(&self) -> (u64, u64) {
        match &self.kind {
            Kind::None => (0, 0),
            Kind::Ram(memory)
            | Kind::File {
                mapping: memory, ..
            } => (
                memory.as_ptr().expose_provenance() as u64,
                memory.len() as u64,
            ),
            Kind::Lent { address, bytes } => (*address, *bytes),
        }
    }

    /// True if Flush has to write a file back.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// True if the memory is somebody else's.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.kind, Kind::Lent { .. })
    }

    /// The media, which nobody but commands may touch.
    pub(crate) fn span(&self) -> Span {
        let (address, bytes) = self.place();
        // SAFETY: a mapping of ours, or memory that `lent`'s caller vouched for.
        unsafe { Span::new(address, bytes) }
    }

    /// Memory that shows the media and keeps what is written there to itself; `None` without
    /// media of our own. Of a file it takes memory only for what has been written.
    pub(crate) fn view(&self) -> io::Result<Option<View>> {
        let (_, bytes) = self.place();
        let options = MmapOptions::new().len(bytes as usize).to_owned();
        let mut mapping = match &self.kind {
            Kind::None | Kind::Lent { .. } => return Ok(None),
            // Media in memory begin with zeros, as this does.
            Kind::Ram(_) => options.map_anon()?,
            // SAFETY: as for the file's own mapping.
            Kind::File { file, .. } => unsafe { options.map_copy(file) }?,
        };
        let address = mapping.as_mut_ptr().expose_provenance() as u64;
        Ok(Some(View {
            // SAFETY: the mapping lives in the same `View`, and nothing else touches it.
            span: unsafe { Span::new(address, bytes) },
            _mapping: mapping,
        }))
    }
}

/// A private view of media; see [`Media::view`].
#[derive(Debug)]
pub(crate) struct View {
    span: Span,
    _mapping: MmapMut,
}

impl View {
    /// The memory, valid as long as the view.
    pub(crate) fn span(&self) -> Span {
        self.span
    }
}

/// Sizes the file for `bytes` of media and writes the trailer last, so that a file with a trailer
/// is complete.
fn lay_out(file: &File, old: u64, bytes: u64, serial: &str) -> io::Result<()> {
    let reserve = || rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes + TRAILER);
    // Space that is missing shows here, while old content still stands.
    if let Err(error) = reserve() {
        // The error to report is the first one.
        let _ = file.set_len(old);
        return Err(error.into());
    }
    if old != 0 {
        file.set_len(0)?;
        reserve()?;
    }
    let mut trailer = [0; TRAILER as usize];
    trailer[..16].copy_from_slice(MAGIC);
    trailer[16..20].copy_from_slice(&VERSION.to_le_bytes());
    trailer[24..32].copy_from_slice(&bytes.to_le_bytes());
    for (to, from) in trailer[32..52]
        .iter_mut()
        .zip(serial.bytes().chain(std::iter::repeat(b' ')))
    {
        *to = from;
    }
    file.write_all_at(&trailer, bytes)?;
    file.sync_all()
}

/// Checks that an existing file is ours and large enough.
fn check_trailer(path: &Path, file: &File, len: u64, bytes: u64) -> Result<(), MediaError> {
    let foreign = || MediaError::Foreign {
        path: path.to_owned(),
    };
    let held = len.checked_sub(TRAILER).ok_or_else(foreign)?;
    let mut trailer = [0; 32];
    file.read_exact_at(&mut trailer, held)
        .map_err(|_| foreign())?;
    let (magic, rest) = trailer.split_at(16);
    let version_is_ours = rest[..4] == VERSION.to_le_bytes();
    if magic != MAGIC || !version_is_ours || rest[8..16] != held.to_le_bytes() {
        return Err(foreign());
    }
    if held < bytes {
        return Err(MediaError::TooSmall {
            path: path.to_owned(),
            found: held,
            needed: bytes,
        });
    }
    Ok(())
}
