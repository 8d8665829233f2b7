//! Media files as members, and members that are not there yet.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvme_model::{MediaError, MediaFile, Sharing};
use rustix::fs::Advice;

use crate::error::Error;
use crate::member::{Member, Members};
use crate::name::MemberName;
use crate::survey::{Found, Surveyed};

/// Bytes of a logical block: what the file system's own blocks are.
const BLOCK_BYTES: u32 = 4096;
/// What the trailer of a file made here says as its serial number.
const SERIAL: &str = "WS-VOLUME";

/// A media file, as an emulated SSD opens it. While it is open for writing nobody else opens it as
/// a member, and nobody writes it while it is open for reading.
pub struct FileMember {
    media: Arc<MediaFile>,
}

impl FileMember {
    /// Opens a media file that is there.
    ///
    /// # Errors
    /// It is not there, not a media file, or in use.
    pub fn open(path: &Path, for_writing: bool) -> Result<Self, Error> {
        let sharing = match for_writing {
            true => Sharing::Nobody,
            false => Sharing::Readers,
        };
        let media = MediaFile::open(path, for_writing).and_then(|media| media.lock(sharing));
        let media = media.map_err(|error| match error {
            MediaError::Foreign { path } => Error::NoMediaFile {
                member: Self::name_of(&path),
                bytes: fs::metadata(&path).map_or(0, |metadata| metadata.len()),
            },
            MediaError::InUse { path } => Error::InUse {
                member: Self::name_of(&path),
            },
            other => other.into(),
        })?;
        Ok(Self::over(Arc::new(media)))
    }

    /// A media file that is open, and locked if anybody else may use it.
    pub fn over(media: Arc<MediaFile>) -> Self {
        Self { media }
    }

    /// Makes a media file of `bytes` bytes, or of a file that is empty; with `overwrite` of any.
    ///
    /// # Errors
    /// It cannot be made, holds something, whatever was seen there before, or is in use.
    pub fn create(path: &Path, bytes: u64, overwrite: bool) -> Result<Self, Error> {
        let media = MediaFile::create(path, bytes, SERIAL, overwrite)?;
        Ok(Self::over(Arc::new(media)))
    }

    /// The file; it stays locked as long as anybody has it.
    pub fn media(&self) -> &Arc<MediaFile> {
        &self.media
    }

    /// Whether a file begins as a member of a volume does, or ends so.
    pub fn holds_volume(media: &Arc<MediaFile>) -> bool {
        let member = Self::over(Arc::clone(media));
        let members = Members::new(vec![Box::new(member)]);
        let surveyed = members.and_then(|mut members| Surveyed::all(&mut members));
        surveyed.is_ok_and(|surveyed| {
            let found = surveyed[0].found();
            matches!(
                found,
                Found::Member { .. } | Found::Damaged { .. } | Found::Interrupted { .. }
            )
        })
    }

    /// What the user calls the member.
    pub fn name_of(path: &Path) -> String {
        MemberName::File(path.to_owned()).to_string()
    }
}

impl Member for FileMember {
    fn name(&self) -> String {
        Self::name_of(self.media.path())
    }

    fn bytes(&self) -> u64 {
        self.media.bytes
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.media.file.read_exact_at(into, offset)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.media.file.write_all_at(from, offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.media.file.sync_all()?;
        // What is read again then comes from the disk, as far as the kernel follows the advice.
        rustix::fs::fadvise(&self.media.file, 0, None, Advice::DontNeed)?;
        Ok(())
    }
}

/// A member that will be made: full of zeros, and never written.
pub struct BlankMember {
    path: PathBuf,
    bytes: u64,
}

impl BlankMember {
    /// The file that will have `bytes` bytes of media.
    pub fn new(path: &Path, bytes: u64) -> Self {
        Self {
            path: path.to_owned(),
            bytes,
        }
    }
}

impl Member for BlankMember {
    fn name(&self) -> String {
        FileMember::name_of(&self.path)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_at(&mut self, _: u64, into: &mut [u8]) -> io::Result<()> {
        into.fill(0);
        Ok(())
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
