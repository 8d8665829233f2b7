//! Sessions on volumes.

use warpstore_device::Layout;
use warpstore_volume::{Description, ElementType, MemberName, MemberNames, UNIT, Volume};

use super::Session;
use crate::Error;
use crate::config::{Configuration, Medium, SsdSource, VfioConfig, VfioSsd};
use crate::runner::Runner;
use crate::ssd::Ssd;
use crate::store::Extent;
use crate::volume::{HeldVolume, VolumeAccess};

/// The volume that a session is on.
pub(super) struct OnVolume {
    pub access: VolumeAccess,
    description: Description,
}

impl Session {
    /// Opens a session on a volume: its arrays are there by their names, and no others can be made.
    /// `config` says everything but what the volume says itself: the number of SSDs, their layout, the
    /// stripe unit and the media; media files are emulated SSDs as `config.ssd` describes them.
    ///
    /// Opened for writing, the volume is unsealed durably before this returns; and it stays unsealed when the
    /// session has ended: a checksum taken then would take for right whatever is there. `cargo xtask verify
    /// --seal` takes it when somebody wants that.
    ///
    /// # Errors
    /// The volume, as [`open_volume`](crate::open_volume); replicas that shall be written; real SSDs that
    /// were written while they were opened; else as [`Session::open`]. The volume is as it was then; only if
    /// it is on real SSDs, and they or the memory fail, it may be unsealed.
    pub fn open_volume(
        mut config: Configuration,
        members: &MemberNames,
        access: VolumeAccess,
        ptx: &str,
    ) -> Result<Self, Error> {
        let held = HeldVolume::open(members, access)?;
        let described = held.volume.description();
        if access == VolumeAccess::ReadWrite
            && described.layout == Layout::Replicate
            && described.members > 1
        {
            return Err(Error::Configuration(format!(
                "the volume lies on {} replicas, which kernels only read; open it for reading",
                described.members
            )));
        }
        config.ssds = described.members;
        config.layout = described.layout;
        config.stripe_bytes = described.stripe;
        config.ssd = source(&config, &held, access)?;
        config.check()?;
        let (runner, lanes) = Self::runner_of(&config, ptx)?;
        let extent = Extent {
            start: described.region.start,
            bytes: described.checks_offset,
        };
        let open = |runner: Runner, config: Configuration| {
            let opened = Ssd::open_all(&runner, &config)?;
            Self::on(runner, config, lanes, opened, Some(extent))
        };
        let is_on_files = config.ssd.emulated().is_some();
        let open = || open(runner, config);
        let (mut session, description) = match is_on_files {
            true => on_files(held.volume, access, open)?,
            false => on_ssds(held.volume, access, open)?,
        };
        for array in &description.arrays {
            session.adopt(array);
        }
        session.volume = Some(OnVolume {
            access,
            description,
        });
        Ok(session)
    }

    /// What the volume that the session is on was when it was opened, if it is on one. Nobody else has
    /// changed it since.
    pub fn volume(&self) -> Option<&Description> {
        self.volume.as_ref().map(|volume| &volume.description)
    }
}

/// Opens a session on media files that are open and locked already; nobody writes them between.
fn on_files(
    mut volume: Volume,
    access: VolumeAccess,
    open: impl FnOnce() -> Result<Session, Error>,
) -> Result<(Session, Description), Error> {
    let session = open()?;
    // The last thing that can fail: else it would stay unsealed for nothing.
    if access == VolumeAccess::ReadWrite {
        volume.unseal()?;
        for ssd in session.ssds.iter().filter_map(Ssd::emulated) {
            ssd.fill_copy(0..UNIT)?;
        }
    }
    Ok((session, volume.description().clone()))
}

/// Opens a session on real SSDs, which are let go of before: somebody may write them between.
fn on_ssds(
    mut volume: Volume,
    access: VolumeAccess,
    open: impl FnOnce() -> Result<Session, Error>,
) -> Result<(Session, Description), Error> {
    if access == VolumeAccess::ReadWrite {
        volume.unseal()?;
    }
    let (seen, names) = (volume.superblocks()?, volume.member_names());
    let description = volume.description().clone();
    drop(volume);
    let session = open()?;
    for ((ssd, seen), name) in session.ssds.iter().zip(&seen).zip(&names) {
        check_unchanged(name, ssd.bytes, seen, |at, into| {
            ssd.stored(std::iter::once((at, into)))
        })?;
    }
    Ok((session, description))
}

/// Refuses a member of `bytes` bytes that has other superblocks than were seen.
fn check_unchanged(
    name: &str,
    bytes: u64,
    seen: &[Vec<u8>; 2],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let last = (bytes / UNIT * UNIT).saturating_sub(UNIT);
    let mut found = vec![0; UNIT as usize];
    for (at, seen) in [0, last].into_iter().zip(seen) {
        read(at, &mut found)?;
        if found != *seen {
            return Err(Error::Configuration(format!(
                "the volume on {name} was written anew by somebody else while it was being opened; open it again"
            )));
        }
    }
    Ok(())
}

/// The SSDs of a session on a volume.
fn source(
    config: &Configuration,
    held: &HeldVolume,
    access: VolumeAccess,
) -> Result<SsdSource, Error> {
    let names = held.volume.member_names();
    let serials = names.iter().filter_map(|name| match name.parse() {
        Ok(MemberName::Vfio(serial)) => Some(serial),
        _ => None,
    });
    let serials: Vec<String> = serials.collect();
    match (&config.ssd, held.files.is_empty(), serials.is_empty()) {
        (SsdSource::Emulated(each), false, true) => {
            let mut each = each.clone();
            each.medium = Medium::Files(held.files.clone());
            each.bytes = held.volume.description().region.end;
            Ok(SsdSource::Emulated(each))
        }
        (_, true, false) => Ok(SsdSource::Vfio(VfioConfig {
            ssds: serials
                .iter()
                .map(|serial| VfioSsd {
                    name: serial.clone(),
                    nsid: None,
                })
                .collect(),
            destroy: match access {
                VolumeAccess::ReadOnly => Vec::new(),
                VolumeAccess::ReadWrite => serials,
            },
        })),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_was_written_meanwhile_is_refused() {
        let unit = UNIT as usize;
        let mut medium: Vec<u8> = (0..5 * unit + 700).map(|at| (at / unit) as u8).collect();
        let seen = [0, 4].map(|slot| medium[slot * unit..][..unit].to_vec());
        let check = |medium: &[u8]| {
            check_unchanged("vfio:S1", medium.len() as u64, &seen, |at, into| {
                into.copy_from_slice(&medium[at as usize..][..into.len()]);
                Ok(())
            })
        };
        assert!(check(&medium).is_ok());
        // What lies between is for kernels to write.
        medium[2 * unit] ^= 1;
        assert!(check(&medium).is_ok());
        for at in [40, 4 * unit + 40] {
            medium[at] ^= 1;
            let refused = check(&medium).unwrap_err().to_string();
            assert!(refused.contains("vfio:S1 was written anew"), "{refused}");
            medium[at] ^= 1;
        }
    }
}
