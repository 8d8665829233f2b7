//! Emulated SSDs: media, model, and who serves their queues.
#![allow(
    unsafe_code,
    reason = "media and doorbells are lent to the model by address"
)]
// UNSAFETY: memory of this crate's buffers is lent to the emulated controllers, which the same
// `Ssd` owns and drops first.

use std::ops::Range;
use std::sync::Arc;

use driver_vfio::Backing;
use nvme_model::{Controller as Model, LentDoorbells, Link, Media, Namespace, Serving};

use super::media::{NewFiles, media_file};
use super::{Medium, Opened, Ssd};
use crate::Error;
use crate::buffer::{Buffer, Place};
use crate::config::{self, Configuration, SsdConfig};
use crate::runner::Runner;

/// MDTS of the emulated controllers: 4 KiB << 5 = 128 KiB, as common SSDs have.
const MDTS: u8 = 5;
/// Doorbells 128 bytes apart, each in a cache line of its own.
const DSTRD: u8 = 5;
/// CAP.TO of the emulated controllers, in units of 500 ms.
const READY_TIMEOUT: u8 = 4;

/// Where a medium's bytes are, for the import.
enum MediaMemory {
    None,
    /// A buffer of ours, lent to the model.
    Lent(Buffer),
    /// The model's own: a file, of which a GPU serves the copy, or memory with a write cache.
    Own {
        copy: Option<Buffer>,
    },
}

/// Makes the emulated SSDs of a session, serves them and brings them up.
pub(super) fn open(
    runner: &Runner,
    config: &Configuration,
    each: &SsdConfig,
) -> Result<Opened, Error> {
    let mut new_files = NewFiles::default();
    let link = Link::new();
    let emulated = (0..config.ssds)
        .map(|index| Emulated::new(runner, each, index, config, &link, &mut new_files))
        .collect::<Result<Vec<_>, Error>>()?;
    let models = emulated.iter().map(|ssd| Arc::clone(&ssd.model)).collect();
    let io_threads = usize::from(matches!(runner, Runner::Threads(_)));
    let serving = Serving::start(models, io_threads)
        .map_err(|error| Error::Configuration(format!("no thread for the SSDs: {error}")))?;
    let bring_up = |ssd: Emulated| {
        let model = driver_vfio::Model::new(Arc::clone(&ssd.model));
        let backing: Arc<dyn Backing> = Arc::new(model);
        let mut driver = super::bring_up(&backing, Buffer::host, config.queues)?;
        let namespace = driver.namespace(1)?;
        ssd.fill_copy(0..ssd.bytes)?;
        Ok(Ssd::new(driver, backing, &namespace, Medium::Direct(ssd)))
    };
    Ok(Opened {
        ssds: emulated
            .into_iter()
            .map(bring_up)
            .collect::<Result<_, Error>>()?,
        serving: Some(serving),
        new_files: Some(new_files),
    })
}

/// Serial number of SSD `index`.
pub(super) fn serial(config: &SsdConfig, index: u32) -> String {
    format!("WS-{}-{index:04}", config.profile.name)
}

/// What the emulated controller of SSD `index` is like.
pub(super) fn controller(config: &SsdConfig, index: u32, queues: u16) -> nvme_model::Configuration {
    nvme_model::Configuration {
        serial: serial(config, index),
        model: format!("warpstore model {}", config.profile.name),
        namespaces: vec![Namespace {
            lbas: config.bytes / u64::from(config.lba_bytes),
            lba_bytes: config.lba_bytes,
        }],
        mdts: MDTS,
        queue_entries: 4096,
        dstrd: DSTRD,
        to: READY_TIMEOUT,
        queues,
        profile: config.profile,
        volatile_write_cache: config.volatile_write_cache,
        shadow_doorbells: false,
        faults: config.faults.clone().of_drive(index.into()),
    }
}

/// Bytes of a media file that are copied at a time.
const CHUNK: usize = 1 << 20;

/// The side of an emulated SSD that no submitter sees.
pub(crate) struct Emulated {
    pub(crate) model: Arc<Model>,
    media: MediaMemory,
    /// Bytes of the medium.
    bytes: u64,
    _doorbells: Option<Buffer>,
}

impl Emulated {
    /// Makes the model of SSD `index`. Its admin queue is not served yet.
    fn new(
        runner: &Runner,
        config: &SsdConfig,
        index: u32,
        session: &Configuration,
        link: &Link,
        new_files: &mut NewFiles,
    ) -> Result<Self, Error> {
        let (of, queues) = (session.ssds, session.queues);
        let media_buffer = |place| runner.allocate(place, config.bytes as usize);
        let (media, memory) = match media_file(config, index, of, new_files)? {
            Some(media) => {
                let copy = match runner {
                    Runner::Threads(_) => None,
                    Runner::Cuda(_) => Some(media_buffer(Place::Shared)?),
                };
                (media, MediaMemory::Own { copy })
            }
            None if config.medium == config::Medium::None => (Media::none(), MediaMemory::None),
            None if config.volatile_write_cache => {
                (Media::ram(config.bytes)?, MediaMemory::Own { copy: None })
            }
            None => {
                let near = config.medium == config::Medium::Near;
                let buffer = media_buffer(if near { Place::Kernel } else { Place::Shared })?;
                // SAFETY: the buffer lives in the same `Ssd` as the model, and longer.
                let media = unsafe { Media::lent(buffer.address(), config.bytes) };
                (media, MediaMemory::Lent(buffer))
            }
        };
        let doorbells = match runner {
            Runner::Threads(_) => None,
            Runner::Cuda(_) => {
                let bytes = 2 * queues as usize * (4 << DSTRD);
                Some(runner.allocate(Place::Kernel, bytes)?)
            }
        };
        // SAFETY: the doorbells are zeroed, large enough, and live as long as the model; each
        // queue identifier is created once in a session.
        let lent = doorbells
            .as_ref()
            .map(|buffer| unsafe { LentDoorbells::at(buffer.address()) });
        let configuration = controller(config, index, queues as u16);
        let model = Model::new(configuration, media, Some(link.clone()), lent)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        Ok(Self {
            model: Arc::new(model),
            media: memory,
            bytes: config.bytes / u64::from(config.lba_bytes) * u64::from(config.lba_bytes),
            _doorbells: doorbells,
        })
    }

    /// Copies what is in these bytes of the media file to where a GPU serves it.
    pub(crate) fn fill_copy(&self, range: Range<u64>) -> Result<(), Error> {
        let MediaMemory::Own { copy: Some(copy) } = &self.media else {
            return Ok(());
        };
        let mut chunk = vec![0u8; CHUNK];
        let mut offset = range.start;
        while offset < range.end {
            let part = &mut chunk[..CHUNK.min((range.end - offset) as usize)];
            let source = (self.model.media().0 + offset) as *const u8;
            // SAFETY: as in `stored`.
            unsafe { std::ptr::copy_nonoverlapping(source, part.as_mut_ptr(), part.len()) };
            copy.write(offset as usize, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Address of the media for whoever serves the I/O queues on a GPU; 0 for none.
    pub(crate) fn served_media(&self) -> u64 {
        match &self.media {
            MediaMemory::None => 0,
            MediaMemory::Lent(buffer) | MediaMemory::Own { copy: Some(buffer) } => buffer.address(),
            MediaMemory::Own { copy: None } => self.model.media().0,
        }
    }

    /// Writes `bytes` to the medium from byte `offset` of namespace 1 on, as a factory would: not
    /// by commands, while nobody reads them. Nothing happens if there is no medium.
    ///
    /// # Panics
    /// If they do not fit: the caller keeps to them.
    pub(crate) fn load(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        assert!(
            offset + bytes.len() as u64 <= self.bytes,
            "the bytes lie beyond the namespace"
        );
        match &self.media {
            MediaMemory::None => Ok(()),
            MediaMemory::Lent(buffer) => buffer.write(offset as usize, bytes),
            MediaMemory::Own { copy } => {
                self.model.load(offset, bytes);
                copy.as_ref()
                    .map_or(Ok(()), |copy| copy.write(offset as usize, bytes))
            }
        }
    }

    /// Reads the medium into `bytes` from byte `offset` of namespace 1 on, as a factory would. Nobody
    /// writes them meanwhile. Of an SSD with a volatile write cache it is what a power cut leaves.
    ///
    /// # Panics
    /// If they lie beyond the namespace.
    pub(crate) fn stored(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        assert!(
            offset + bytes.len() as u64 <= self.bytes,
            "the bytes lie beyond the namespace"
        );
        match &self.media {
            MediaMemory::None => Err(Error::Configuration(
                "the SSDs have no media: nothing that was written can be read".to_owned(),
            )),
            MediaMemory::Lent(buffer) | MediaMemory::Own { copy: Some(buffer) } => {
                buffer.read(offset as usize, bytes)
            }
            MediaMemory::Own { copy: None } => {
                let source = (self.model.media().0 + offset) as *const u8;
                // SAFETY: the model maps at least `self.bytes` bytes of media there as long as it
                // lives, the range lies inside (asserted), and no slice of ours overlaps it.
                unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
                Ok(())
            }
        }
    }

    /// Writes the copy that a GPU serves back to its file, after a Flush.
    pub(crate) fn persist(&self) -> Result<(), Error> {
        let MediaMemory::Own { copy: Some(copy) } = &self.media else {
            return Ok(());
        };
        let mut chunk = vec![0u8; CHUNK];
        let mut offset = 0;
        while offset < self.bytes {
            let part = &mut chunk[..CHUNK.min((self.bytes - offset) as usize)];
            copy.read(offset as usize, part)?;
            self.model.load(offset, part);
            offset += part.len() as u64;
        }
        if self.model.persist() {
            Ok(())
        } else {
            Err(Error::Configuration(format!(
                "the disk did not take what was written to the media file of {}",
                self.model.configuration().serial
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ssd_has_chances_of_its_own() {
        let config = SsdConfig {
            profile: nvme_model::Profile::IDEAL,
            medium: config::Medium::None,
            lba_bytes: 512,
            bytes: 1 << 20,
            volatile_write_cache: false,
            faults: nvme_model::Faults::none(),
        };
        let seed = |index| controller(&config, index, 1).faults.seed;
        assert_ne!(seed(0), seed(1));
        assert_eq!(seed(1), seed(1), "a run can be repeated");
    }
}
