//! Media files of emulated SSDs: which SSD has which, and which are left alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvme_model::{Media, MediaFile};
use warpstore_volume::FileMember;

use super::emulated::serial;
use crate::Error;
use crate::config::{Medium, SsdConfig};

/// Media files that were made here. Dropped, it removes them: a session that cannot be opened leaves
/// nothing behind. They stay locked until then.
#[derive(Default)]
pub(crate) struct NewFiles(Vec<Arc<MediaFile>>);

impl NewFiles {
    /// The session is open: they stay.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        self.0.iter().for_each(|file| file.discard_if_new());
    }
}

/// The media of SSD `index` of `of`; `None` if they are no file. One that is made is one of `new_files`.
///
/// # Errors
/// The file cannot be used, holds something else, or is a member of a volume.
pub(super) fn media_file(
    config: &SsdConfig,
    index: u32,
    of: u32,
    new_files: &mut NewFiles,
) -> Result<Option<Media>, Error> {
    let file = match &config.medium {
        Medium::None | Medium::Near | Medium::Host => return Ok(None),
        Medium::File { path, overwrite } => {
            let path = member_path(path, index, of);
            let serial = serial(config, index);
            let file = MediaFile::open_or_create(&path, config.bytes, &serial, *overwrite)?;
            let file = Arc::new(file);
            new_files.0.push(Arc::clone(&file));
            if !overwrite {
                check_no_member(&file)?;
            }
            file
        }
        Medium::Files(files) => {
            let file = files.get(index as usize);
            let file =
                file.ok_or_else(|| Error::Configuration(format!("SSD {index} has no media file")))?;
            Arc::clone(file)
        }
    };
    Ok(Some(Media::over(file, config.bytes)?))
}

/// Refuses a media file that is a member of a volume: arrays of a session would lie over it. It is locked,
/// so it does not become one.
fn check_no_member(file: &Arc<MediaFile>) -> Result<(), Error> {
    match FileMember::holds_volume(file) {
        false => Ok(()),
        true => Err(Error::Configuration(format!(
            "media file {} is a member of a volume; open the volume, or let it be overwritten (--overwrite)",
            file.path().display()
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
    use std::fs;

    use nvme_model::{Faults, Profile, Sharing};
    use warpstore_device::Layout;
    use warpstore_volume::{ArrayShape, ElementType, Members, NewVolume, Plan};

    use super::*;

    const BYTES: u64 = 1 << 20;

    fn config(path: &Path) -> SsdConfig {
        SsdConfig {
            profile: Profile::IDEAL,
            medium: Medium::File {
                path: path.to_owned(),
                overwrite: false,
            },
            lba_bytes: 512,
            bytes: BYTES,
            volatile_write_cache: false,
            faults: Faults::none(),
        }
    }

    fn flash(path: &Path) {
        let shape = ArrayShape {
            name: "a".to_owned(),
            element: ElementType::U8,
            len: 3,
        };
        let new = NewVolume::new(Layout::Stripe, 1 << 16, &[shape]).unwrap();
        let member = FileMember::create(path, BYTES, false).unwrap();
        let mut members = Members::new(vec![Box::new(member)]).unwrap();
        let plan = Plan::make(&new, &mut members, |_| false).unwrap();
        plan.write(
            &mut members,
            vec![Box::new(&b"abc"[..])],
            1 << 30,
            &mut |_, _| {},
        )
        .unwrap();
    }

    /// A volume that came after the session began to look is refused, and not removed with what the session
    /// made itself.
    #[test]
    fn what_others_made_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let config = config(&path);
        let mut new_files = NewFiles::default();
        let media = media_file(&config, 0, 2, &mut new_files).unwrap();
        let other = folder.path().join("m.1");
        flash(&other);
        let refused = media_file(&config, 1, 2, &mut new_files).unwrap_err();
        assert!(
            refused.to_string().contains("m.1 is a member of a volume"),
            "{refused}"
        );
        let volume = fs::read(&other).unwrap();
        drop(media);
        // Nobody takes what goes.
        let own = folder.path().join("m.0");
        let taken = MediaFile::open(&own, true).unwrap().lock(Sharing::Nobody);
        assert!(taken.is_err());
        drop(new_files);
        assert!(!own.exists() && fs::read(&other).unwrap() == volume);
        let mut new_files = NewFiles::default();
        media_file(&config, 0, 2, &mut new_files).unwrap();
        new_files.keep();
        assert!(own.exists());
    }

    #[test]
    fn several_media_files_are_numbered() {
        assert_eq!(member_path(Path::new("a.img"), 0, 1), Path::new("a.img"));
        assert_eq!(member_path(Path::new("a.img"), 2, 3), Path::new("a.img.2"));
    }
}
