//! Sessions on volumes.

use nvme_model::Sharing;
use warpstore_device::Layout;
use warpstore_volume::{Description, ElementType, MemberName, MemberNames};

use super::Session;
use crate::Error;
use crate::config::{Configuration, Medium, SsdSource, VfioConfig, VfioSsd};
use crate::ssd::Ssd;
use crate::store::Extent;
use crate::volume::{VolumeAccess, open_volume};

/// The volume that a session is on.
pub(super) struct OnVolume {
    pub access: VolumeAccess,
}

impl Session {
    /// Opens a session on a volume: its arrays are there by their names, and no others can be made.
    /// `config` says everything but what the volume says itself: the number of SSDs, their layout, the
    /// stripe unit and the media; media files are emulated SSDs as `config.ssd` describes them.
    ///
    /// Opened for writing, the volume is unsealed first, durably; and it stays unsealed when the session has
    /// ended: a checksum taken then would take for right whatever is there. `cargo xtask verify --seal` takes
    /// it when somebody wants that.
    ///
    /// # Errors
    /// The volume, as [`open_volume`]; replicas that shall be written; else as [`Session::open`].
    pub fn open_volume(
        mut config: Configuration,
        members: &MemberNames,
        access: VolumeAccess,
        ptx: &str,
    ) -> Result<Self, Error> {
        let mut volume = open_volume(members, access)?;
        let description = volume.description().clone();
        if access == VolumeAccess::ReadWrite {
            if description.layout == Layout::Replicate && description.members > 1 {
                return Err(Error::Configuration(format!(
                    "the volume lies on {} replicas, which kernels only read; open it for reading",
                    description.members
                )));
            }
            volume.unseal()?;
        }
        config.ssds = description.members;
        config.layout = description.layout;
        config.stripe_bytes = description.stripe;
        config.ssd = source(
            &config,
            &volume.member_names().join(","),
            &description,
            access,
        )?;
        config.check()?;
        let (runner, lanes) = Self::runner_of(&config, ptx)?;
        // The SSDs open their files again and lock them themselves.
        drop(volume);
        let opened = Ssd::open_all(&runner, &config)?;
        let extent = Extent {
            start: description.region.start,
            bytes: description.checks_offset,
        };
        let mut session = Self::on(runner, config, lanes, opened, Some(extent))?;
        session.volume = Some(OnVolume { access });
        for array in &description.arrays {
            session.adopt(array);
        }
        Ok(session)
    }
}

/// The SSDs of a session on a volume; its members' names in its order.
fn source(
    config: &Configuration,
    members: &str,
    description: &Description,
    access: VolumeAccess,
) -> Result<SsdSource, Error> {
    let names: MemberNames = members.parse().map_err(Error::Configuration)?;
    let (mut files, mut ssds) = (Vec::new(), Vec::new());
    for name in names.iter() {
        match name {
            MemberName::File(path) => files.push(path.clone()),
            MemberName::Vfio(serial) => ssds.push(VfioSsd {
                name: serial.clone(),
                nsid: None,
            }),
        }
    }
    match (&config.ssd, files.is_empty(), ssds.is_empty()) {
        (SsdSource::Emulated(each), false, true) => {
            let mut each = each.clone();
            each.medium = Medium::Files {
                paths: files,
                sharing: match access {
                    VolumeAccess::ReadOnly => Sharing::Readers,
                    VolumeAccess::ReadWrite => Sharing::Nobody,
                },
            };
            each.bytes = description.region.end;
            Ok(SsdSource::Emulated(each))
        }
        (_, true, false) => {
            let names = ssds.iter().map(|ssd| ssd.name.clone());
            let destroy = match access {
                VolumeAccess::ReadOnly => Vec::new(),
                VolumeAccess::ReadWrite => names.collect(),
            };
            Ok(SsdSource::Vfio(VfioConfig { ssds, destroy }))
        }
        (SsdSource::Vfio(_) | SsdSource::Sockets(_), false, true) => Err(Error::Configuration(
            "media files are read by emulated SSDs; say which".to_owned(),
        )),
        _ => Err(Error::Configuration(
            "a session has media files or real SSDs, not both".to_owned(),
        )),
    }
}

/// Refuses an element type that is another one than an array has. What is plain data of a type of the
/// caller's own is told by its size alone.
pub(super) fn check_type<T: 'static>(name: &str, element: ElementType) -> Result<(), Error> {
    let fits = match ElementType::of::<T>() {
        Some(asked) => asked == element,
        None => size_of::<T>() as u64 == element.bytes(),
    };
    match fits {
        true => Ok(()),
        false => Err(warpstore_volume::Error::WrongType {
            name: name.to_owned(),
            is: element,
            asked: std::any::type_name::<T>().to_owned(),
        }
        .into()),
    }
}
