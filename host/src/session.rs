//! A session: SSDs, a store on them, and kernels that use it.
#![allow(
    unsafe_code,
    reason = "handles of a session's memory are made from raw addresses"
)]
// UNSAFETY: handles are made of this session's buffers, which live until the session is dropped,
// after its kernels have ended.

mod arrays;
mod faults;
mod flush;
mod launch;
mod lookout;
mod volume;

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use nvme_model::Serving;
use warpstore_device::launch::StatusSlot;
use warpstore_device::{Blocks, ErrorRecord, Store};
use zerocopy::{Immutable, IntoBytes};

use crate::Error;
use crate::buffer::{Buffer, Place};
use crate::config::{Configuration, Target};
use crate::kernels;
use crate::memory::Memory;
use crate::resident::Resident;
use crate::ringing::Ringing;
use crate::runner::{CudaRunner, Runner, ThreadsRunner};
use crate::ssd::{Opened, Ssd};
use crate::store::{Extent, StoreMemory};
use arrays::Arrays;
use lookout::Lookout;
use volume::OnVolume;

/// Commands that the SSDs completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read commands that succeeded.
    pub reads: u64,
    /// Write commands that succeeded.
    pub writes: u64,
    /// Flush commands that succeeded.
    pub flushes: u64,
    /// Bytes of all commands.
    pub bytes: u64,
    /// Commands completed with an error status.
    pub errors: u64,
}

/// An open store.
///
/// Dropped, it ends as [`Session::finish`] does, and says on stderr if something that kernels wrote
/// did not reach the SSDs; the fields go after that, in order: memory behind the controllers that it
/// is mapped for.
pub struct Session {
    config: Configuration,
    runner: Runner,
    resident: Option<Resident>,
    /// Watches the SSDs.
    lookout: Option<Lookout>,
    ssds: Vec<Ssd>,
    _serving: Option<Serving>,
    store: StoreMemory,
    /// Status slot of the launch that runs: one at a time.
    status: Mutex<Buffer>,
    buffers: Mutex<Vec<Arc<Buffer>>>,
    arrays: Mutex<Arrays>,
    volume: Option<OnVolume>,
    /// Whether kernels may have written since the last flush.
    may_be_dirty: AtomicBool,
}

impl Session {
    /// Opens a session: starts the emulated SSDs, brings them up, creates the queues and the
    /// cache. `ptx` is the PTX of the caller's kernels, as `warpstore_builder` makes it; it may be
    /// empty for those who run on host threads. [`kernels_ptx`](crate::kernels_ptx) has warpstore's own.
    ///
    /// # Errors
    /// The configuration, the GPU, a media file, the memory, or a controller.
    pub fn open(config: Configuration, ptx: &str) -> Result<Self, Error> {
        config.check()?;
        let (runner, lanes) = Self::runner_of(&config, ptx)?;
        Self::open_on(runner, config, lanes)
    }

    /// Where kernels run, and how many lanes at a time.
    fn runner_of(config: &Configuration, ptx: &str) -> Result<(Runner, u64), Error> {
        Ok(match config.target {
            Target::Threads { lanes } => {
                (Runner::Threads(ThreadsRunner::new(lanes)), u64::from(lanes))
            }
            Target::Cuda {
                gpu,
                controller_sms,
            } => {
                let reserved = config.ssd.emulated().map_or(0, |_| controller_sms);
                let runner = CudaRunner::open(gpu, &[&kernels::of_sessions(), ptx], reserved)?;
                (Runner::Cuda(runner), u64::MAX)
            }
        })
    }

    /// As [`Session::open`], on host threads with random interleaving: for tests.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_interleaved(config: Configuration, seed: u64) -> Result<Self, Error> {
        config.check()?;
        let Target::Threads { lanes } = config.target else {
            return Err(Error::Configuration(
                "only host threads can be interleaved".to_owned(),
            ));
        };
        let runner = ThreadsRunner::new(lanes).interleaved(seed);
        Self::open_on(Runner::Threads(runner), config, u64::from(lanes))
    }

    fn open_on(runner: Runner, config: Configuration, lanes: u64) -> Result<Self, Error> {
        let opened = Ssd::open_all(&runner, &config)?;
        Self::over(runner, config, lanes, opened)
    }

    /// A session over SSDs that are up.
    pub(crate) fn over(
        runner: Runner,
        config: Configuration,
        lanes: u64,
        opened: Opened,
    ) -> Result<Self, Error> {
        Self::on(runner, config, lanes, opened, None)
    }

    /// A session whose store has `extent`, or all of the SSDs.
    fn on(
        runner: Runner,
        config: Configuration,
        lanes: u64,
        opened: Opened,
        extent: Option<Extent>,
    ) -> Result<Self, Error> {
        // Dropped in the other order: files that go again are closed before.
        let Opened {
            new_files,
            ssds,
            serving,
        } = opened;
        let store = StoreMemory::build(&runner, &config, &ssds, lanes, extent)?;
        let resident = match config.target {
            Target::Threads { .. } => None,
            Target::Cuda { .. } if config.ssd.emulated().is_none() => None,
            Target::Cuda { controller_sms, .. } => {
                Some(Resident::start(&runner, &ssds, controller_sms)?)
            }
        };
        let status = runner.allocate(Place::Kernel, StatusSlot::WORDS as usize * 8)?;
        // Nothing fails afterwards: only `end` ends its thread, which stores to words of `store`.
        let backings = ssds.iter().map(|ssd| Arc::clone(&ssd.backing));
        let lookout = Lookout::watch(backings.collect(), store.brakes.clone())?;
        if let Some(new_files) = new_files {
            new_files.keep();
        }
        Ok(Self {
            config,
            runner,
            resident,
            lookout: Some(lookout),
            ssds,
            _serving: serving,
            store,
            status: Mutex::new(status),
            buffers: Mutex::default(),
            arrays: Mutex::default(),
            volume: None,
            may_be_dirty: AtomicBool::new(false),
        })
    }

    /// What the session was opened with.
    pub fn configuration(&self) -> &Configuration {
        &self.config
    }

    /// Where kernels run.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    fn store(&self) -> Store {
        // SAFETY: the description and what it names are this session's, which outlives its
        // launches.
        unsafe { Store::from_raw(self.store.address()) }
    }

    /// Writes `bytes` to SSD `ssd` from byte `offset` on; for benchmarks of raw blocks.
    ///
    /// # Panics
    /// If they lie beyond the SSD.
    ///
    /// # Errors
    /// The copy to the medium fails; or a real SSD may not be written, or fails a command.
    pub fn load_blocks(&self, ssd: u32, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.ssds[ssd as usize].load(std::iter::once((offset, bytes)))
    }

    /// Bytes of the smallest SSD.
    pub fn bytes_per_ssd(&self) -> u64 {
        self.ssds.iter().map(|ssd| ssd.bytes).min().unwrap_or(0)
    }

    /// The block buffers.
    pub fn blocks(&self) -> Blocks {
        Blocks::of(self.store())
    }

    /// Kernel memory with room for `len` zeroed elements; lives as long as the session.
    ///
    /// # Errors
    /// The machine has not that much.
    pub fn memory<T>(&self, len: u64) -> Result<Memory<T>, Error> {
        let bytes = usize::try_from(len)
            .ok()
            .and_then(|len| len.checked_mul(size_of::<T>()))
            .ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
        let buffer = Arc::new(self.runner.allocate(Place::Kernel, bytes)?);
        self.buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&buffer));
        Ok(Memory::new(buffer, len))
    }

    /// Kernel memory that holds `elements`.
    ///
    /// # Errors
    /// As [`Session::memory`].
    pub fn upload<T: IntoBytes + Immutable>(&self, elements: &[T]) -> Result<Memory<T>, Error> {
        let memory = self.memory(elements.len() as u64)?;
        memory.write(0, elements)?;
        Ok(memory)
    }

    /// Tells kernels to stop: every access that waits for an SSD, now or later, ends with
    /// [`ErrorKind::Aborted`](warpstore_device::ErrorKind::Aborted). From any thread, for good.
    ///
    /// # Errors
    /// The copy to the GPU fails.
    pub fn abort(&self) -> Result<(), Error> {
        self.store.brakes.abort()
    }

    /// Commands that the SSDs have completed since the session was opened, if they are emulated in
    /// another process those of kernels alone; none if they are real, which do not count for one session.
    ///
    /// # Errors
    /// The copy from the GPU fails, or an SSD's process does not answer.
    pub fn counts(&self) -> Result<Option<Counts>, Error> {
        if let Some(resident) = &self.resident {
            resident.report(&self.ssds)?;
        }
        let mut sum = Counts::default();
        for ssd in &self.ssds {
            let counters = match (ssd.emulated(), ssd.process()) {
                (Some(emulated), _) => emulated.model.counters(),
                (_, Some(process)) => vec![process.statistics()?.counters],
                (None, None) => return Ok(None),
            };
            for queue in counters {
                sum.reads += queue.reads;
                sum.writes += queue.writes;
                sum.flushes += queue.flushes;
                sum.bytes += queue.bytes;
                sum.errors += queue.errors;
            }
        }
        Ok(Some(sum))
    }

    /// Number of commands that kernels saw fail since the session was opened, and the first of
    /// them.
    ///
    /// # Errors
    /// The copy from the GPU fails.
    pub fn failed_commands(&self) -> Result<(u64, Vec<ErrorRecord>), Error> {
        self.store.errors()
    }

    /// Ends the session: what kernels wrote is flushed, then the resident kernel ends, and the
    /// controllers, in order.
    ///
    /// # Errors
    /// The first thing that did not end as it should; the rest is ended all the same. Of a flush
    /// that failed, see [`Session::flush`]: what was not written is lost with the session.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        // An SSD that is wanted back is there until it is let go. What an ended access left of its
        // queue is not.
        let resumed = match &self.lookout {
            Some(lookout) => lookout.let_finish(&self.store.brakes),
            None => Ok(()),
        };
        let mut result = resumed.and(self.flush_if_dirty());
        // It holds the backings too, which end with the SSDs.
        if let Some(lookout) = self.lookout.take() {
            lookout.end();
        }
        if let Some(resident) = self.resident.take() {
            let ended = resident.stop().and_then(|()| resident.report(&self.ssds));
            result = result.and(ended);
        }
        // Nobody rings any more.
        self.store.ringing = Ringing::default();
        for ssd in &mut self.ssds {
            let ended = ssd.shut_down();
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let may_be_dirty = self.is_dirty();
        // Whoever wants to know calls `finish`; but lost data is nothing to be silent about.
        if let Err(error) = self.end()
            && may_be_dirty
        {
            let _ = writeln!(std::io::stderr(), "warpstore: {error}");
        }
    }
}
