//! The members of volumes, opened as a user names them.

mod ssd;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use nvme_model::MediaFile;
use warpstore_volume::{FileMember, Member, MemberName, MemberNames, Members, Volume};

use crate::Error;
pub use ssd::SsdMember;

/// What may be done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeAccess {
    /// Reading.
    ReadOnly,
    /// Reading, and writing elements of its arrays.
    ReadWrite,
}

impl VolumeAccess {
    fn writes(self) -> bool {
        self == Self::ReadWrite
    }
}

/// Opens members, in this order. A real SSD that is opened for writing must be one that may be
/// destroyed: it is for the caller to have asked.
///
/// SSDs are opened together, so those of one IOMMU group can be: a second call would find their group
/// in use.
///
/// # Errors
/// One is not there, not a media file, or in use.
pub fn open_members(
    names: &[&MemberName],
    access: VolumeAccess,
) -> Result<Vec<Box<dyn Member>>, Error> {
    in_order(
        names,
        |path| Ok(FileMember::open(path, access.writes())?),
        |serials| SsdMember::open_all(serials, access),
    )
}

/// Opens each file, then all SSDs in one call, if there are any; the members, as they were named.
fn in_order<F: Member + 'static, S: Member + 'static>(
    names: &[&MemberName],
    open_file: impl Fn(&Path) -> Result<F, Error>,
    open_ssds: impl FnOnce(&[&str]) -> Result<Vec<S>, Error>,
) -> Result<Vec<Box<dyn Member>>, Error> {
    let (mut files, mut serials) = (Vec::new(), Vec::new());
    for name in names {
        match name {
            MemberName::File(path) => files.push(open_file(path)?),
            MemberName::Vfio(serial) => serials.push(serial.as_str()),
        }
    }
    let ssds = match serials[..] {
        [] => Vec::new(),
        _ => open_ssds(&serials)?,
    };
    let (mut files, mut ssds) = (files.into_iter(), ssds.into_iter());
    let mut member = |name: &&MemberName| -> Option<Box<dyn Member>> {
        Some(match name {
            MemberName::File(_) => Box::new(files.next()?),
            MemberName::Vfio(_) => Box::new(ssds.next()?),
        })
    };
    let one = |name| member(name).expect("one was opened for each name");
    Ok(names.iter().map(one).collect())
}

/// Opens a volume.
///
/// # Errors
/// Two names are one file's; or as [`open_members`] and [`Volume::open`].
pub fn open_volume(names: &MemberNames, access: VolumeAccess) -> Result<Volume, Error> {
    Ok(HeldVolume::open(names, access)?.volume)
}

/// An open volume, and the media files that it lies on, in its order: whoever has these keeps them locked.
pub(crate) struct HeldVolume {
    pub volume: Volume,
    pub files: Vec<Arc<MediaFile>>,
}

impl HeldVolume {
    /// Opens a volume, as [`open_volume`].
    pub fn open(names: &MemberNames, access: VolumeAccess) -> Result<Self, Error> {
        names.check_files()?;
        let each: Vec<&MemberName> = names.iter().collect();
        let files = RefCell::new(Vec::new());
        let open_file = |path: &Path| {
            let member = FileMember::open(path, access.writes())?;
            files
                .borrow_mut()
                .push((member.name(), Arc::clone(member.media())));
            Ok(member)
        };
        let open_ssds = |serials: &[&str]| SsdMember::open_all(serials, access);
        let members = in_order(&each, open_file, open_ssds)?;
        let volume = Volume::open(Members::new(members)?)?;
        let files = files.into_inner();
        let called = |name: &String| files.iter().find(|(file, _)| file == name);
        let names = volume.member_names();
        let files = names
            .iter()
            .filter_map(|name| Some(Arc::clone(&called(name)?.1)));
        let files = files.collect();
        Ok(Self { volume, files })
    }
}

#[cfg(test)]
mod tests {
    use warpstore_volume::BlankMember;

    use super::*;

    #[test]
    fn ssds_are_opened_in_one_call_and_stand_where_they_were_named() {
        let names: MemberNames = "vfio:S1,file:a,vfio:S2,vfio:S3,file:b".parse().unwrap();
        let names: Vec<&MemberName> = names.iter().collect();
        let calls = RefCell::new(Vec::new());
        let blank = |name: &str| BlankMember::new(name.as_ref(), 1 << 20);
        let open_ssds = |serials: &[&str]| {
            calls.borrow_mut().push(serials.join(" "));
            Ok(serials.iter().map(|serial| blank(serial)).collect())
        };
        let open_file = |path: &Path| Ok(blank(&path.display().to_string()));
        let opened = in_order(&names, open_file, open_ssds).unwrap();
        let opened: Vec<String> = opened.iter().map(|member| member.name()).collect();
        assert_eq!(
            opened,
            ["file:S1", "file:a", "file:S2", "file:S3", "file:b"]
        );
        assert_eq!(calls.take(), ["S1 S2 S3"]);
        // Without an SSD nothing asks for VFIO.
        in_order(&[names[1]], open_file, open_ssds).unwrap();
        assert_eq!(calls.take(), [""; 0]);
    }
}
