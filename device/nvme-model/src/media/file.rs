//! Media files: the blocks byte for byte from offset 0 on, and behind them one 4096-byte trailer
//! that says that the file is ours.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | `warpstore media` and a zero byte |
//! | 16..20 | format version, 1 |
//! | 24..32 | length of the media in bytes |
//! | 32..52 | serial number of the controller, padded with spaces |

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags};

use super::MediaError;

const MAGIC: &[u8; 16] = b"warpstore media\0";
const VERSION: u32 = 1;
const TRAILER: u64 = 4096;

/// An open media file.
#[derive(Debug)]
pub struct MediaFile {
    /// The file; its first [`MediaFile::bytes`] bytes are the media.
    pub file: File,
    /// Bytes of media.
    pub bytes: u64,
}

impl MediaFile {
    /// Opens a media file that is there.
    ///
    /// # Errors
    /// [`MediaError::File`] if it cannot be opened, [`MediaError::Foreign`] if it is not one of ours.
    pub fn open(path: &Path, for_writing: bool) -> Result<Self, MediaError> {
        let file = open_regular(path, OpenOptions::new().read(true).write(for_writing));
        let file = file.map_err(MediaError::file(
            path,
            "cannot open it",
            "name a media file that you may use",
        ))?;
        let bytes = held(path, &file, len_of(path, &file)?)?;
        Ok(Self { file, bytes })
    }

    /// Opens the file, or creates it with `bytes` bytes of zeros if it does not exist or is empty. All
    /// of its space is allocated up front, so a full disk shows here and not as a fault in the middle
    /// of a write. With `overwrite` any content becomes zeros. As long as it is open, nobody else opens
    /// it so, nor locks it.
    ///
    /// # Errors
    /// As [`MediaFile::open`], and that another process has it open. Nothing has been written then, and
    /// a file that was created has been removed.
    pub fn open_or_create(
        path: &Path,
        bytes: u64,
        serial: &str,
        overwrite: bool,
    ) -> Result<Self, MediaError> {
        let existed = path.exists();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = open_regular(path, &mut options).map_err(MediaError::file(
            path,
            "cannot open it for writing",
            "name a regular file in a folder that you may write",
        ))?;
        // Before anything is looked at or written: it may be half made by somebody else.
        let file = locked(path, file, Sharing::Nobody)?;
        let len = len_of(path, &file)?;
        if len != 0 && !overwrite {
            let bytes = held(path, &file, len)?;
            return Ok(Self { file, bytes });
        }
        if let Err(source) = lay_out(&file, len, bytes, serial) {
            if !existed {
                // Best effort: the error to report is the first one.
                let _ = std::fs::remove_file(path);
            }
            return Err(MediaError::file(
                path,
                "cannot allocate its space",
                "free some space or ask for fewer blocks",
            )(source));
        }
        Ok(Self { file, bytes })
    }

    /// Keeps others from opening the file against `sharing`, as long as it is open here.
    ///
    /// # Errors
    /// [`MediaError::InUse`], or [`MediaError::File`] if files there cannot be locked.
    pub fn lock(self, path: &Path, sharing: Sharing) -> Result<Self, MediaError> {
        let file = locked(path, self.file, sharing)?;
        Ok(Self { file, ..self })
    }
}

/// Opens a regular file. Anything else is refused, and never waited for, as a pipe would be that nobody
/// writes.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Of no effect on regular files.
    let file = options
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// With whom a media file is shared while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// With nobody: it is written.
    Nobody,
    /// With others that read it, too.
    Readers,
}

/// The file with an advisory lock (`flock`), which ends when the file is closed.
fn locked(path: &Path, file: File, sharing: Sharing) -> Result<File, MediaError> {
    let locked = match sharing {
        Sharing::Nobody => file.try_lock(),
        Sharing::Readers => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(MediaError::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(MediaError::file(
            path,
            "cannot lock it",
            "name a file on a local file system",
        )(source)),
    }
}

fn len_of(path: &Path, file: &File) -> Result<u64, MediaError> {
    let metadata = file.metadata().map_err(MediaError::file(
        path,
        "cannot read its size",
        "name a regular file",
    ))?;
    Ok(metadata.len())
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

/// Bytes of media in a file of this length, if its trailer is ours.
fn held(path: &Path, file: &File, len: u64) -> Result<u64, MediaError> {
    let foreign = || MediaError::Foreign {
        path: path.to_owned(),
    };
    let held = len.checked_sub(TRAILER).ok_or_else(foreign)?;
    let mut trailer = [0; 32];
    match file.read_exact_at(&mut trailer, held) {
        Ok(()) => {}
        // It became shorter meanwhile.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(foreign()),
        Err(error) => {
            let advice = "mend what it lies on, or name another media file";
            return Err(MediaError::file(path, "cannot read its last bytes", advice)(error));
        }
    }
    let (magic, rest) = trailer.split_at(16);
    let version_is_ours = rest[..4] == VERSION.to_le_bytes();
    if magic != MAGIC || !version_is_ours || rest[8..16] != held.to_le_bytes() {
        return Err(foreign());
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for opened in [
            MediaFile::open(&path, false),
            MediaFile::open_or_create(&path, 4096, "S", true),
        ] {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("it is not a regular file"), "{error}");
        }
        assert!(path.exists());
    }

    #[test]
    fn a_trailer_that_cannot_be_read_is_no_foreign_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        std::fs::write(&path, [0; 8192]).unwrap();
        let unreadable = OpenOptions::new().write(true).open(&path).unwrap();
        let error = held(&path, &unreadable, 8192).unwrap_err();
        assert!(matches!(error, MediaError::File { .. }), "{error}");
        let foreign = held(&path, &File::open(&path).unwrap(), 8192);
        assert!(matches!(foreign, Err(MediaError::Foreign { .. })));
    }
}
