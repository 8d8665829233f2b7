//! The SSDs of a session, emulated or real, brought up.
//!
//! Kernels see no difference. The host does, when it puts arrays on them and reads them back: to the
//! medium of an emulated SSD it has a way of its own, to a real one only commands.

mod commands;
mod emulated;
mod joined;
mod media;
mod outside;
mod serve;
mod socket;
mod vfio;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use driver_vfio::{
    Access, Backing, Controller, Deadlines, DmaRegion, Enabled, Iova, Namespace,
    QUEUE_PRIVATE_WORDS, QueueCells, QueueMemory,
};
use nvme_model::Serving;
use warpstore_device::PAGE_BYTES;

use crate::Error;
use crate::buffer::Buffer;
use crate::config::{Configuration, SsdSource};
use crate::runner::Runner;
pub(crate) use emulated::Emulated;
use media::NewFiles;
pub(crate) use outside::only_namespace;
pub use serve::SsdServer;
pub(crate) use socket::Process;

/// The SSDs of a session, and what serves them and goes with them.
pub(crate) struct Opened {
    pub(crate) ssds: Vec<Ssd>,
    /// Threads that play the controllers.
    pub(crate) serving: Option<Serving>,
    /// Media files that go again if the session cannot be opened.
    pub(crate) new_files: Option<NewFiles>,
}

/// One SSD, brought up.
pub(crate) struct Ssd {
    /// Dropped first: it shuts the controller down.
    driver: Mutex<Option<Controller<Enabled>>>,
    pub(crate) backing: Arc<dyn Backing>,
    /// First IOVA and length of what kernels and the controller share.
    mapped: Mutex<Vec<(Iova, u64)>>,
    pub(crate) nsid: u32,
    pub(crate) lba_shift: u32,
    /// Bytes of the namespace.
    pub(crate) bytes: u64,
    medium: Medium,
}

/// How the host reaches the blocks.
enum Medium {
    /// As a factory would.
    Direct(Emulated),
    /// As everybody does, by commands.
    Commands(Access),
    /// By commands too, but whatever is on it may be lost, and it counts.
    Process(Process),
}

impl Ssd {
    /// Opens the SSDs that a session is configured with.
    pub(crate) fn open_all(runner: &Runner, config: &Configuration) -> Result<Opened, Error> {
        match &config.ssd {
            SsdSource::Emulated(each) => emulated::open(runner, config, each),
            SsdSource::Vfio(vfio) => vfio::open(config, vfio),
            SsdSource::Sockets(sockets) => socket::open(config, sockets),
        }
    }

    fn new(
        driver: Controller<Enabled>,
        backing: Arc<dyn Backing>,
        namespace: &Namespace,
        medium: Medium,
    ) -> Self {
        let lba_shift = u32::from(namespace.block_shift);
        Self {
            driver: Mutex::new(Some(driver)),
            backing,
            mapped: Mutex::default(),
            nsid: namespace.nsid,
            lba_shift,
            bytes: namespace.blocks << lba_shift,
            medium,
        }
    }

    /// The enabled controller, for one at a time.
    ///
    /// # Panics
    /// After `shut_down`.
    pub(crate) fn driver(&self) -> Driver<'_> {
        Driver(self.driver.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The model, if it is an emulated SSD.
    pub(crate) fn emulated(&self) -> Option<&Emulated> {
        match &self.medium {
            Medium::Direct(emulated) => Some(emulated),
            Medium::Commands(_) | Medium::Process(_) => None,
        }
    }

    /// The process that it is, if it is one.
    pub(crate) fn process(&self) -> Option<&Process> {
        match &self.medium {
            Medium::Process(process) => Some(process),
            Medium::Direct(_) | Medium::Commands(_) => None,
        }
    }

    /// [VF-3] Refuses to write what was opened for reading only.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        match self.medium {
            Medium::Commands(Access::ReadOnly) => Err(Error::Configuration(format!(
                "{} was opened for reading only; to write it, name its serial number among those that \
                 may be destroyed, if all that is on it may be lost",
                self.backing.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Writes `parts`, each at a byte of the namespace, while nobody reads them. What follows a part
    /// in its last block is lost. Nothing happens if an emulated SSD has no medium.
    ///
    /// # Panics
    /// If a part does not fit: the caller keeps to [`Ssd::bytes`].
    pub(crate) fn load<'p>(
        &self,
        parts: impl Iterator<Item = (u64, &'p [u8])>,
    ) -> Result<(), Error> {
        self.check_writable()?;
        match &self.medium {
            Medium::Direct(emulated) => joined::write(parts, |at, part| emulated.load(at, part)),
            Medium::Commands(access) => commands::write(self, *access, parts),
            Medium::Process(process) => {
                process.apart(|| commands::write(self, Access::ReadWrite, parts))
            }
        }
    }

    /// Fills `parts`, each from a byte of the namespace on, while nobody writes them. Of an emulated
    /// SSD with a volatile write cache it is what a power cut leaves.
    ///
    /// # Panics
    /// If a part lies beyond the namespace.
    pub(crate) fn stored<'p>(
        &self,
        parts: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Error> {
        match &self.medium {
            Medium::Direct(emulated) => joined::read(parts, |at, part| emulated.stored(at, part)),
            Medium::Commands(_) => commands::read(self, parts),
            Medium::Process(process) => process.apart(|| commands::read(self, parts)),
        }
    }

    /// Makes durable what a GPU wrote to memory that stands for a medium, after a Flush.
    pub(crate) fn persist(&self) -> Result<(), Error> {
        self.emulated().map_or(Ok(()), Emulated::persist)
    }

    /// Shuts the controller down, cleanly. No kernel uses it any more.
    pub(crate) fn shut_down(&mut self) -> Result<(), Error> {
        let driver = self.driver.get_mut();
        if let Some(driver) = driver.unwrap_or_else(PoisonError::into_inner).take() {
            driver.shutdown()?;
            let mapped = self
                .mapped
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            for (iova, bytes) in mapped.drain(..) {
                // An error means that it was not mapped: then there is nothing to take back.
                let _ = self.backing.unmap_dma(iova, bytes);
            }
        }
        Ok(())
    }

    /// Lets the controller reach `region` until it has been shut down.
    pub(crate) fn map(&self, region: DmaRegion) -> Result<Iova, Error> {
        let bytes = region.bytes();
        let iova = self.backing.map_dma(region).map_err(|error| {
            Error::Configuration(format!(
                "{} cannot reach {bytes} bytes of memory: {error}",
                self.backing.name()
            ))
        })?;
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.push((iova, bytes));
        Ok(iova)
    }
}

/// The lock on an enabled controller.
pub(crate) struct Driver<'s>(MutexGuard<'s, Option<Controller<Enabled>>>);

impl Driver<'_> {
    /// The controller.
    pub(crate) fn controller(&mut self) -> &mut Controller<Enabled> {
        self.0
            .as_mut()
            .expect("the driver leaves only in shut_down")
    }
}

/// Brings a controller up that grants `queues` queue pairs. Its admin queue is being served.
pub(crate) fn bring_up(
    backing: &Arc<dyn Backing>,
    allocate: fn(usize) -> Result<Buffer, Error>,
    queues: u32,
) -> Result<Controller<Enabled>, Error> {
    let disabled = Controller::open(Arc::clone(backing), Deadlines::SSD)?;
    // Before memory is aligned for them.
    check_pages(backing.name(), disabled.page_bytes())?;
    let memory = QueueBuffers::new(allocate(disabled.admin_bytes() as usize)?)?;
    let driver = disabled.enable(Arc::new(memory), queues as u16)?;
    // CAP may have changed with CC.
    check_pages(backing.name(), driver.page_bytes())?;
    let granted = u32::from(driver.n_io_queues());
    if granted < queues {
        return Err(Error::Configuration(format!(
            "{} grants {granted} queue pairs, {queues} were asked for; use fewer queues",
            backing.name()
        )));
    }
    Ok(driver)
}

/// Refuses a controller whose CAP.MPSMIN asks for larger pages than those that kernels describe memory in.
fn check_pages(name: &str, bytes: u64) -> Result<(), Error> {
    if bytes == PAGE_BYTES {
        return Ok(());
    }
    Err(Error::Configuration(format!(
        "{name}: its memory pages have {bytes} bytes (CAP.MPSMIN), and kernels describe memory in pages \
         of {PAGE_BYTES}; use another SSD"
    )))
}

/// Memory of one queue pair that the CPU submits to.
pub(crate) struct QueueBuffers {
    shared: Buffer,
    private: Buffer,
}

/// Bytes before the private words: the dead word and the abort word, each on its own line.
const FLAGS: usize = 256;

impl QueueBuffers {
    /// Shares `shared` with the controller; the rest is on the heap.
    pub(crate) fn new(shared: Buffer) -> Result<Self, Error> {
        let private = FLAGS + QUEUE_PRIVATE_WORDS as usize * 8;
        Ok(Self {
            shared,
            private: Buffer::host(private)?,
        })
    }
}

impl QueueMemory for QueueBuffers {
    fn cells(&self) -> QueueCells {
        QueueCells {
            shared: self.shared.dma_cells(),
            private: self.private.cells(FLAGS, QUEUE_PRIVATE_WORDS),
            dead: self.private.cell(0),
            abort: self.private.cell(FLAGS / 2),
        }
    }
}
