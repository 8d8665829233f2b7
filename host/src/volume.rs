//! The members of volumes, opened as a user names them.

mod ssd;

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

/// Opens one member. A real SSD that is opened for writing must be one that may be destroyed: it is
/// for the caller to have asked.
///
/// # Errors
/// It is not there, not a media file, or in use.
pub fn open_member(name: &MemberName, access: VolumeAccess) -> Result<Box<dyn Member>, Error> {
    Ok(match name {
        MemberName::File(path) => Box::new(FileMember::open(path, access.writes())?),
        MemberName::Vfio(ssd) => Box::new(SsdMember::open(ssd, access)?),
    })
}

/// Opens a volume.
///
/// # Errors
/// Two names are one file's; or as [`open_member`] and [`Volume::open`].
pub fn open_volume(names: &MemberNames, access: VolumeAccess) -> Result<Volume, Error> {
    names.check_files()?;
    let members = names.iter().map(|name| open_member(name, access));
    let members = Members::new(members.collect::<Result<_, _>>()?)?;
    Ok(Volume::open(members)?)
}
