//! Media files: the blocks byte for byte from offset 0 on, and behind them one 4096-byte trailer
//! that says that the file is ours.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | `warpstore media` and a zero byte |
//! | 16..20 | format version, 1 |
//! | 24..32 | length of the media in bytes |
//! | 32..52 | serial number of the controller, padded with spaces |

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use super::MediaError;

const MAGIC: &[u8; 16] = b"warpstore media\0";
const VERSION: u32 = 1;
const TRAILER: u64 = 4096;

/// An open media file. It is equal to itself alone.
#[derive(Debug)]
pub struct MediaFile {
    path: PathBuf,
    /// The file; its first [`MediaFile::bytes`] bytes are the media.
    pub file: File,
    /// Bytes of media.
    pub bytes: u64,
    is_writable: bool,
    is_new: bool,
}

impl PartialEq for MediaFile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for MediaFile {}

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
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            is_writable: for_writing,
            is_new: false,
        })
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
        let claimed = Claimed::of(path)?;
        if overwrite || claimed.is_empty() {
            return claimed.lay_out(bytes, serial);
        }
        let bytes = held(path, &claimed.file, claimed.len)?;
        Ok(claimed.opened(bytes))
    }

    /// Creates the file as [`MediaFile::open_or_create`] does, but never takes one that holds something,
    /// be it a media file, unless with `overwrite`.
    ///
    /// # Errors
    /// [`MediaError::Taken`] if it holds something; else as [`MediaFile::open_or_create`].
    pub fn create(
        path: &Path,
        bytes: u64,
        serial: &str,
        overwrite: bool,
    ) -> Result<Self, MediaError> {
        let claimed = Claimed::of(path)?;
        match overwrite || claimed.is_empty() {
            true => claimed.lay_out(bytes, serial),
            false => Err(MediaError::Taken {
                path: path.to_owned(),
            }),
        }
    }

    /// Keeps others from opening the file against `sharing`, as long as it is open here.
    ///
    /// # Errors
    /// [`MediaError::InUse`], or [`MediaError::File`] if files there cannot be locked.
    pub fn lock(self, sharing: Sharing) -> Result<Self, MediaError> {
        let file = locked(&self.path, self.file, sharing)?;
        Ok(Self { file, ..self })
    }

    /// The name by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its media can be written.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Takes the file out of its folder if it did not exist before it was opened here. A file that has
    /// come to its place meanwhile stays.
    pub fn discard_if_new(&self) {
        if self.is_new && is_at(&self.path, &self.file) {
            // Best effort: who calls has another error to report.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a file holds nothing: it has no bytes, or zeros alone, as a media file of which the making was
/// interrupted. Of one that cannot be read: false.
pub fn holds_nothing(path: &Path) -> bool {
    let file = open_regular(path, OpenOptions::new().read(true));
    let blank = file.and_then(|file| is_blank(&file));
    blank.unwrap_or(false)
}

/// A file that is locked and open for writing, before anything in it was believed: it may be half made
/// by somebody else, and what somebody saw there before may be something else by now.
struct Claimed<'p> {
    path: &'p Path,
    file: File,
    len: u64,
    is_new: bool,
}

impl<'p> Claimed<'p> {
    /// Opens the file, or creates it, and locks it.
    fn of(path: &'p Path) -> Result<Self, MediaError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let (opened, is_new) = match options.clone().create_new(true).open(path) {
            // A link that leads nowhere is there too, and is no file of ours.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let options = options.create(true).truncate(false);
                (open_regular(path, options), false)
            }
            created => (created, true),
        };
        let file = opened.map_err(MediaError::file(
            path,
            "cannot open it for writing",
            "name a regular file in a folder that you may write",
        ))?;
        let file = locked(path, file, Sharing::Nobody)?;
        let len = len_of(path, &file)?;
        Ok(Self {
            path,
            file,
            len,
            is_new,
        })
    }

    /// Whether it holds nothing: neither a trailer, which is cheaper to look for, nor anything but zeros.
    fn is_empty(&self) -> bool {
        held(self.path, &self.file, self.len).is_err() && is_blank(&self.file).unwrap_or(false)
    }

    /// Makes it `bytes` bytes of zeros.
    fn lay_out(self, bytes: u64, serial: &str) -> Result<MediaFile, MediaError> {
        let laid_out = lay_out(&self.file, self.len, bytes, serial);
        let path = self.path;
        let file = self.opened(bytes);
        laid_out.map_err(|source| {
            file.discard_if_new();
            MediaError::file(
                path,
                "cannot allocate its space",
                "free some space or ask for fewer blocks",
            )(source)
        })?;
        Ok(file)
    }

    fn opened(self, bytes: u64) -> MediaFile {
        MediaFile {
            path: self.path.to_owned(),
            file: self.file,
            bytes,
            is_writable: true,
            is_new: self.is_new,
        }
    }
}

/// Whether the file holds zeros alone. What was allocated and never written is not read, as far as the
/// file system tells: it counts what is in the page cache as written.
fn is_blank(file: &File) -> io::Result<bool> {
    let mut chunk = vec![0; 1 << 20];
    let (mut at, len) = (0, file.metadata()?.len());
    while at < len {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        for offset in (start..at).step_by(chunk.len()) {
            let part = &mut chunk[..(at - offset).min(1 << 20) as usize];
            file.read_exact_at(part, offset)?;
            if part.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether the name still leads to the open file.
fn is_at(path: &Path, file: &File) -> bool {
    let id = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let (there, open) = (fs::metadata(path).map(id), file.metadata().map(id));
    there.is_ok_and(|there| open.is_ok_and(|open| there == open))
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

/// The file with an advisory lock (`flock`), which ends when the file is closed. What was taken from its
/// place before it was locked is refused: nobody would find it again.
fn locked(path: &Path, file: File, sharing: Sharing) -> Result<File, MediaError> {
    let locked = match sharing {
        Sharing::Nobody => file.try_lock(),
        Sharing::Readers => file.try_lock_shared(),
    };
    match locked {
        Ok(()) if is_at(path, &file) => Ok(file),
        Ok(()) | Err(TryLockError::WouldBlock) => Err(MediaError::InUse {
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
