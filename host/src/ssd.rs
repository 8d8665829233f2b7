//! Emulated SSDs: media, model, driver, and who serves their I/O queues.
#![allow(
    unsafe_code,
    reason = "media and doorbells are lent to the model by address"
)]
// UNSAFETY: memory of this crate's buffers is lent to the emulated controllers, which the same
// `Ssd` owns and drops first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use driver_vfio::{Backing, Controller, Deadlines, Enabled, QueueCells, QueueMemory};

use nvme_model::{Controller as Model, LentDoorbells, Link, Media, Namespace};

use crate::Error;
use crate::buffer::{Buffer, Place};
use crate::config::{Configuration, Medium, SsdConfig};
use crate::runner::Runner;

/// MDTS of the emulated controllers: 4 KiB << 5 = 128 KiB, as common SSDs have.
const MDTS: u8 = 5;
/// Doorbells 128 bytes apart, each in a cache line of its own.
const DSTRD: u8 = 5;
/// CAP.TO of the emulated controllers, in units of 500 ms.
const READY_TIMEOUT: u8 = 4;

/// One emulated SSD, brought up.
pub(crate) struct Ssd {
    /// Dropped first: it shuts the controller down.
    driver: Option<Controller<Enabled>>,
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) model: Arc<Model>,
    media: MediaMemory,
    pub(crate) lba_shift: u32,
    /// Bytes of namespace 1.
    pub(crate) bytes: u64,
    _doorbells: Option<Buffer>,
}

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

impl Ssd {
    /// Makes the model of SSD `index`. Its admin queue is not served yet.
    pub(crate) fn model(
        runner: &Runner,
        config: &SsdConfig,
        index: u32,
        of: u32,
        queues: u32,
        link: &Link,
    ) -> Result<SsdParts, Error> {
        let serial = format!("WS-{}-{index:04}", config.profile.name);
        let media_buffer = |place| runner.allocate(place, config.bytes as usize);
        let (media, memory) = match &config.medium {
            Medium::None => (Media::none(), MediaMemory::None),
            Medium::Near | Medium::Host if config.volatile_write_cache => {
                (Media::ram(config.bytes)?, MediaMemory::Own { copy: None })
            }
            Medium::Near | Medium::Host => {
                let near = config.medium == Medium::Near;
                let buffer = media_buffer(if near { Place::Kernel } else { Place::Shared })?;
                // SAFETY: the buffer lives in the same `Ssd` as the model, and longer.
                let media = unsafe { Media::lent(buffer.address(), config.bytes) };
                (media, MediaMemory::Lent(buffer))
            }
            Medium::File { path, overwrite } => {
                let path = member_path(path, index, of);
                let media = Media::file(&path, config.bytes, &serial, *overwrite)?;
                let copy = match runner {
                    Runner::Threads(_) => None,
                    Runner::Cuda(_) => Some(media_buffer(Place::Shared)?),
                };
                (media, MediaMemory::Own { copy })
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
        let configuration = nvme_model::Configuration {
            serial,
            model: format!("warpstore model {}", config.profile.name),
            namespaces: vec![Namespace {
                lbas: config.bytes / u64::from(config.lba_bytes),
                lba_bytes: config.lba_bytes,
            }],
            mdts: MDTS,
            queue_entries: 4096,
            dstrd: DSTRD,
            to: READY_TIMEOUT,
            queues: queues as u16,
            profile: config.profile,
            volatile_write_cache: config.volatile_write_cache,
            faults: config.faults.clone(),
        };
        let model = Model::new(configuration, media, Some(link.clone()), lent)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        Ok(SsdParts {
            model: Arc::new(model),
            media: memory,
            doorbells,
        })
    }
}

/// A model that nobody serves yet.
pub(crate) struct SsdParts {
    pub(crate) model: Arc<Model>,
    media: MediaMemory,
    doorbells: Option<Buffer>,
}

impl SsdParts {
    /// Brings the controller up; its admin queue is being served.
    pub(crate) fn bring_up(self, queues: u32) -> Result<Ssd, Error> {
        let backing: Arc<dyn Backing> = Arc::new(driver_vfio::Model::new(Arc::clone(&self.model)));
        let disabled = Controller::open(Arc::clone(&backing), Deadlines::SSD)?;
        let memory = AdminBuffers::new(disabled.admin_bytes() as usize)?;
        let mut driver = disabled.enable(Arc::new(memory), queues as u16)?;
        let granted = u32::from(driver.n_io_queues());
        if granted < queues {
            return Err(Error::Configuration(format!(
                "{} grants {granted} queue pairs, {queues} were asked for; use fewer queues",
                backing.name()
            )));
        }
        let namespace = driver.namespace(1)?;
        let shift = u32::from(namespace.block_shift);
        let ssd = Ssd {
            driver: Some(driver),
            backing,
            model: self.model,
            media: self.media,
            lba_shift: shift,
            bytes: namespace.blocks << shift,
            _doorbells: self.doorbells,
        };
        ssd.fill_copy()?;
        Ok(ssd)
    }
}

/// Bytes of a media file that are copied at a time.
const CHUNK: usize = 1 << 20;

impl Ssd {
    /// Copies what is in the media file to where a GPU serves it.
    fn fill_copy(&self) -> Result<(), Error> {
        let MediaMemory::Own { copy: Some(copy) } = &self.media else {
            return Ok(());
        };
        let mut chunk = vec![0u8; CHUNK];
        let mut offset = 0;
        while offset < self.bytes {
            let part = &mut chunk[..CHUNK.min((self.bytes - offset) as usize)];
            let source = (self.model.media().0 + offset) as *const u8;
            // SAFETY: as in `stored`.
            unsafe { std::ptr::copy_nonoverlapping(source, part.as_mut_ptr(), part.len()) };
            copy.write(offset as usize, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// The enabled controller.
    pub(crate) fn driver(&mut self) -> &mut Controller<Enabled> {
        self.driver
            .as_mut()
            .expect("the driver leaves only in shut_down")
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
    /// If they do not fit: the caller keeps to [`Ssd::bytes`].
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
                self.backing.name()
            )))
        }
    }

    /// Shuts the controller down, cleanly. No kernel uses it any more.
    pub(crate) fn shut_down(&mut self) -> Result<(), Error> {
        if let Some(driver) = self.driver.take() {
            driver.shutdown()?;
        }
        Ok(())
    }
}

/// Media files that are not there yet. Dropped, it removes those that have been made since: a
/// session that cannot be opened leaves nothing behind.
pub(crate) struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// The media files that a session with this configuration makes.
    pub(crate) fn of(config: &Configuration) -> Self {
        let Medium::File { path, .. } = &config.ssd.medium else {
            return Self(Vec::new());
        };
        let members = (0..config.ssds).map(|index| member_path(path, index, config.ssds));
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
            // Best effort, and most are not there: the error to report is another one.
            let _ = std::fs::remove_file(path);
        }
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

/// Memory of one admin queue, on the heap: the model's admin queue is served by a host thread.
struct AdminBuffers {
    shared: Buffer,
    private: Buffer,
}

/// Bytes before the private words: the dead word and the abort word, each on its own line.
const FLAGS: usize = 256;

impl AdminBuffers {
    fn new(shared_bytes: usize) -> Result<Self, Error> {
        let private = FLAGS + driver_vfio::QUEUE_PRIVATE_WORDS as usize * 8;
        Ok(Self {
            shared: Buffer::host(shared_bytes)?,
            private: Buffer::host(private)?,
        })
    }
}

impl QueueMemory for AdminBuffers {
    fn cells(&self) -> QueueCells {
        QueueCells {
            shared: self.shared.cells(0, self.shared.len() as u64 / 8),
            private: self.private.cells(FLAGS, driver_vfio::QUEUE_PRIVATE_WORDS),
            dead: self.private.cell(0),
            abort: self.private.cell(FLAGS / 2),
        }
    }
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
