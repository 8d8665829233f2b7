//! Media files of emulated SSDs: which SSD has which, and which are left alone.

use std::fs::File;
use std::path::{Path, PathBuf};

use nvme_model::Media;
use warpstore_volume::FileMember;

use super::emulated::serial;
use crate::Error;
use crate::config::{Medium, SsdConfig};

/// Media files that are not there yet. Dropped, it removes those that have been made since: a
/// session that cannot be opened leaves nothing behind.
pub(crate) struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// The media files that so many such SSDs make.
    pub(super) fn of(each: &SsdConfig, ssds: u32) -> Self {
        let Medium::File { path, .. } = &each.medium else {
            return Self(Vec::new());
        };
        let members = (0..ssds).map(|index| member_path(path, index, ssds));
        // A link that leads nowhere is there and not ours to remove.
        Self(
            members
                .filter(|path| path.symlink_metadata().is_err())
                .collect(),
        )
    }

    /// The session is open: they stay.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // Another session may have made it meanwhile, and uses it.
            let is_free = File::open(path).is_ok_and(|file| file.try_lock().is_ok());
            if is_free {
                // Best effort: the error to report is another one.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The media of SSD `index` of `of`; `None` if they are no file.
///
/// # Errors
/// The file cannot be used, holds something else, or is a member of a volume.
pub(super) fn media_file(config: &SsdConfig, index: u32, of: u32) -> Result<Option<Media>, Error> {
    let media = match &config.medium {
        Medium::None | Medium::Near | Medium::Host => return Ok(None),
        Medium::File { path, overwrite } => {
            let path = member_path(path, index, of);
            if !overwrite {
                check_no_member(&path)?;
            }
            Media::file(&path, config.bytes, &serial(config, index), *overwrite)?
        }
        Medium::Files { paths, sharing } => {
            let path = paths
                .get(index as usize)
                .ok_or_else(|| Error::Configuration(format!("SSD {index} has no media file")))?;
            Media::existing(path, config.bytes, *sharing)?
        }
    };
    Ok(Some(media))
}

/// Refuses a media file that is a member of a volume: arrays of a session would lie over it.
fn check_no_member(path: &Path) -> Result<(), Error> {
    match FileMember::holds_volume(path) {
        false => Ok(()),
        true => Err(Error::Configuration(format!(
            "media file {} is a member of a volume; open the volume, or let it be overwritten (--overwrite)",
            path.display()
        ))),
    }
}

/// File of SSD `index` of `of`.
fn member_path(path: &Path, index: u32, of: u32) -> PathBuf {
    if of == 1 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{index}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_media_files_are_numbered() {
        assert_eq!(member_path(Path::new("a.img"), 0, 1), Path::new("a.img"));
        assert_eq!(member_path(Path::new("a.img"), 2, 3), Path::new("a.img.2"));
    }
}
