//! What the blocks of an emulated SSD are kept in.
#![allow(unsafe_code, reason = "mapping a file")]
// UNSAFETY: calls of mmap; mappings are only accessed by address, through `Span`.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};

use crate::memory::Span;
pub use file::{MediaFile, Sharing, holds_nothing, open_regular};

/// Where the blocks of a controller are.
#[derive(Debug)]
pub struct Media {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    None,
    Ram(MmapMut),
    File {
        mapping: MmapMut,
        file: Arc<MediaFile>,
    },
    Lent {
        address: u64,
        bytes: u64,
    },
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
    /// The file was to be made, and somebody was faster.
    #[error(
        "media file {path} was to be made, and by now it holds something; look what it is, and name another \
         file if it shall stay"
    )]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else has the file open.
    #[error(
        "media file {path} is in use by another process, or twice by this one; wait until that has \
         ended, or name another file"
    )]
    InUse {
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

impl MediaError {
    /// What an operation on `path` says when it fails.
    fn file(
        path: &Path,
        action: &'static str,
        advice: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            path,
            action,
            source,
            advice,
        }
    }
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

    /// A file that keeps the blocks, and that nobody else uses meanwhile; see
    /// [`MediaFile::open_or_create`].
    ///
    /// # Errors
    /// [`MediaError`], naming the file. Without `overwrite` a file of other origin is refused.
    pub fn file(
        path: &Path,
        bytes: u64,
        serial: &str,
        overwrite: bool,
    ) -> Result<Self, MediaError> {
        let file = MediaFile::open_or_create(path, bytes, serial, overwrite)?;
        Self::over(Arc::new(file), bytes)
    }

    /// The first `bytes` bytes of a media file that is open. If it is not open for writing, what is written
    /// to the media is in this process alone.
    ///
    /// # Errors
    /// [`MediaError`], naming the file.
    pub fn over(file: Arc<MediaFile>, bytes: u64) -> Result<Self, MediaError> {
        if file.bytes < bytes {
            return Err(MediaError::TooSmall {
                path: file.path().to_owned(),
                found: file.bytes,
                needed: bytes,
            });
        }
        let mut options = MmapOptions::new();
        options.len(bytes as usize);
        let mapping = match file.is_writable() {
            // SAFETY: the mapping is memory that is accessed atomically and by address only. A file that
            // another process truncates would fault; its space is allocated, and truncating a disk in use
            // is as wrong here as with a real one.
            true => unsafe { options.map_mut(&file.file) },
            // Nobody writes as a rule, so no memory need be kept for it.
            // SAFETY: as above.
            false => unsafe { options.no_reserve_swap().map_copy(&file.file) },
        };
        let mapping = mapping.map_err(MediaError::file(
            file.path(),
            "cannot map it",
            "name a file on a local file system",
        ))?;
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
        matches!(&self.kind, Kind::File { file, .. } if file.is_writable())
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
            Kind::File { file, .. } => unsafe { options.map_copy(&file.file) }?,
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
