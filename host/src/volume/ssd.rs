//! A real SSD as a member: its blocks by the CPU's own commands.

use std::io;
use std::sync::Arc;

use driver_vfio::{Access, Backing, BlockIo, Controller, Enabled};
use warpstore_volume::{Member, MemberName};

use super::VolumeAccess;
use crate::Error;
use crate::buffer::Buffer;
use crate::ssd::commands::{GATHERED, persist};
use crate::ssd::{QueueBuffers, backings, bring_up, only_namespace};

/// The only namespace of an SSD.
pub struct SsdMember {
    name: String,
    io: BlockIo<Controller<Enabled>>,
    lba_shift: u32,
    blocks: u64,
}

impl SsdMember {
    /// Opens the SSDs with these serial numbers through VFIO, in this order, together: they may lie in
    /// one IOMMU group.
    ///
    /// # Errors
    /// One is not bound, in use, or fails to come up; or it has several namespaces.
    pub fn open_all(serials: &[&str], access: VolumeAccess) -> Result<Vec<Self>, Error> {
        let backings = backings(serials.iter().copied())?;
        let each = serials.iter().zip(backings);
        each.map(|(serial, backing)| Self::called(serial, backing, access))
            .collect()
    }

    fn called(
        serial: &str,
        backing: Arc<dyn Backing>,
        access: VolumeAccess,
    ) -> Result<Self, Error> {
        let at = backing.name().to_owned();
        let member = Self::over(backing, access)?;
        // The SSD says itself who it is: records of serial numbers may be old.
        if member.name == MemberName::Vfio(serial.to_owned()).to_string() {
            return Ok(member);
        }
        let name = &member.name;
        Err(Error::Configuration(match at == serial {
            true => format!(
                "the SSD at {at} is the member {name}, and must be called so; unbind and bind it, which \
                 records its serial number"
            ),
            false => format!(
                "the SSD that was bound as {serial} says that it is {name}; unbind it and bind it \
                 again"
            ),
        }))
    }

    /// Brings a controller up, over any backing.
    pub(crate) fn over(backing: Arc<dyn Backing>, access: VolumeAccess) -> Result<Self, Error> {
        let mut controller = bring_up(&backing, Buffer::dma, 1)?;
        let serial = controller.info().serial.clone();
        let name = MemberName::Vfio(serial).to_string();
        let nsid = only_namespace(&mut controller, &name)?;
        let shared = Buffer::dma(controller.block_io_bytes() as usize)?;
        let access = match access {
            VolumeAccess::ReadOnly => Access::ReadOnly,
            VolumeAccess::ReadWrite => Access::ReadWrite,
        };
        let memory = Arc::new(QueueBuffers::new(shared)?);
        let io = BlockIo::open(controller, nsid, access, memory)?;
        let (lba_shift, blocks) = (io.namespace().block_shift.into(), io.namespace().blocks);
        Ok(Self {
            name,
            io,
            lba_shift,
            blocks,
        })
    }
}

impl Member for SsdMember {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn bytes(&self) -> u64 {
        self.blocks << self.lba_shift
    }

    fn block_bytes(&self) -> u32 {
        1 << self.lba_shift
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let parts = (offset..).step_by(GATHERED).zip(into.chunks_mut(GATHERED));
        for (offset, part) in parts {
            let read = persist(|| self.io.read(offset >> self.lba_shift, part));
            read.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        for (offset, part) in (offset..).step_by(GATHERED).zip(from.chunks(GATHERED)) {
            let written = persist(|| self.io.write(offset >> self.lba_shift, part));
            written.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        persist(|| self.io.flush()).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use nvme_model::{
        Controller as Model, Fault, Faults, Media, Namespace, Profile, Rule, Serving, When,
    };
    use warpstore_device::Layout;
    use warpstore_device::parts::nvme_wire::Status;
    use warpstore_volume::{ArrayShape, ElementType, Members, NewVolume, Plan, UNIT, Volume};

    use super::*;

    /// An SSD of which one command in 99 fails with a status that may pass.
    fn model(serial: &str, lba_bytes: u32) -> Arc<Model> {
        let passing = Rule::new(Fault::Status(Status::INTERNAL_ERROR), When::OneIn(99));
        let namespace = Namespace {
            lbas: (40 * UNIT) / u64::from(lba_bytes),
            lba_bytes,
        };
        let configuration = nvme_model::Configuration {
            serial: serial.to_owned(),
            model: "member".into(),
            namespaces: vec![namespace],
            mdts: 2,
            queue_entries: 256,
            dstrd: 0,
            to: 4,
            queues: 1,
            profile: Profile::IDEAL,
            volatile_write_cache: false,
            shadow_doorbells: false,
            faults: Faults {
                seed: 1,
                rules: vec![passing],
            },
        };
        let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
        Arc::new(Model::new(configuration, media, None, None).unwrap())
    }

    fn members(models: &[Arc<Model>], access: VolumeAccess) -> Members {
        let member = |model: &Arc<Model>| -> Box<dyn Member> {
            let backing = Arc::new(driver_vfio::Model::new(Arc::clone(model)));
            Box::new(SsdMember::over(backing, access).unwrap())
        };
        Members::new(models.iter().map(member).collect()).unwrap()
    }

    /// By commands alone, with LBAs of either size; what fails in passing is repeated.
    #[test]
    fn a_volume_is_written_and_read_by_commands() {
        let models = [model("S1", 512), model("S2", 4096)];
        let serving = Serving::start(models.to_vec(), 1).unwrap();
        let shapes = [ArrayShape {
            name: "a".to_owned(),
            element: ElementType::U8,
            len: 7 * UNIT + 3,
        }];
        let bytes: Vec<u8> = (0..shapes[0].len).map(|at| (at * 31 % 251) as u8).collect();
        let new = NewVolume::new(Layout::Stripe, UNIT, &shapes).unwrap();
        let mut both = members(&models, VolumeAccess::ReadWrite);
        let plan = Plan::make(&new, &mut both, |_| false).unwrap();
        plan.write(&mut both, vec![Box::new(&bytes[..])], UNIT, &mut |_, _| {})
            .unwrap();
        drop(both);
        let mut volume = Volume::open(members(&models, VolumeAccess::ReadOnly)).unwrap();
        assert_eq!(volume.member_names(), ["vfio:S1", "vfio:S2"]);
        let mut read = Vec::new();
        volume.copy("a", &mut read).unwrap();
        assert!(read == bytes);
        // What was opened for reading is not written.
        assert!(
            volume
                .unseal()
                .unwrap_err()
                .to_string()
                .contains("vfio:S1: cannot write")
        );
        drop(volume);
        drop(serving);
    }

    #[test]
    fn an_ssd_is_called_by_its_serial_number() {
        let model = model("S1", 512);
        let serving = Serving::start(vec![Arc::clone(&model)], 1).unwrap();
        let backing = || Arc::new(driver_vfio::Model::new(Arc::clone(&model)));
        let called = |name: &str| {
            let member = SsdMember::called(name, backing(), VolumeAccess::ReadOnly);
            member.map(|member| member.name())
        };
        assert_eq!(called("S1").unwrap(), "vfio:S1");
        let error = called("S2").unwrap_err().to_string();
        assert!(error.contains("vfio:S1; unbind it and bind it"), "{error}");
        let error = called(backing().name()).unwrap_err().to_string();
        assert!(error.contains("is the member vfio:S1"), "{error}");
        drop(serving);
    }
}
