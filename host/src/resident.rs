//! The emulated SSDs as a resident kernel on the GPU.
#![allow(unsafe_code, reason = "the resident kernel gets raw addresses")]
// UNSAFETY: addresses of this session's buffers go to the resident kernel, which `Resident` stops
// before it lets go of any of them.

use std::time::Duration;

use nvme_model::{Placement, Service};
use warpstore_device::DisjointSlice;
use warpstore_device::launch::StatusSlot;
use warpstore_kernels::controller::{Controllers, nvme_controllers, read_clock};

use crate::Error;
use crate::buffer::{Buffer, Place};
use crate::cuda::Stream;
use crate::runner::{CudaRunner, LaunchConfig, Runner};
use crate::ssd::Ssd;

/// Threads of a block of the resident kernel: 8 warps, each with one queue pair or several.
const BLOCK: u32 = 256;
/// After this time the resident kernel ends by itself, should the host forget it.
const LIFETIME: Duration = Duration::from_secs(900);
/// Longest time from the stop word to the end of the kernel.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The running kernel and the memory it uses.
pub(crate) struct Resident {
    stream: Stream,
    stop: Buffer,
    images: Vec<Buffer>,
    _table: Buffer,
    _link: Buffer,
    _status: Buffer,
}

impl Resident {
    /// Starts serving the I/O queues of `ssds` on `multiprocessors` of the GPU. Queues are
    /// created and DMA ranges mapped already.
    pub(crate) fn start(
        runner: &Runner,
        ssds: &[Ssd],
        multiprocessors: u32,
    ) -> Result<Self, Error> {
        let Runner::Cuda(cuda) = runner else {
            return Err(Error::Configuration(
                "a resident kernel needs a GPU".to_owned(),
            ));
        };
        let near = |len| runner.allocate(Place::Kernel, len);
        let link = near(16)?;
        let mut images = Vec::new();
        for emulated in ssds.iter().filter_map(Ssd::emulated) {
            let place = Placement {
                media: emulated.served_media(),
                link: link.address(),
            };
            let words = emulated.model.image(place);
            let image = near(words.len() * 8)?;
            image.write(0, &words)?;
            images.push(image);
        }
        let addresses: Vec<u64> = images.iter().map(Buffer::address).collect();
        let table = near(addresses.len() * 8)?;
        table.write(0, &addresses)?;
        let stop = near(64)?;
        let status = near(StatusSlot::WORDS as usize * 8)?;
        let deadline = Self::clock(runner)? + LIFETIME.as_nanos() as u64;
        // SAFETY: table, images and stop word live as long as the kernel: `Resident` waits for
        // its end. The images name media, doorbells and ranges of this session.
        let service = unsafe {
            Service::new(
                table.address() as *const u64,
                addresses.len() as u64,
                stop.address() as *mut u32,
                deadline,
            )
        };
        let config = LaunchConfig {
            blocks: multiprocessors,
            threads: BLOCK,
        };
        // SAFETY: as above.
        let stream = unsafe {
            cuda.start_resident::<nvme_controllers>(config, &status, (Controllers(service),))
        }?;
        Ok(Self {
            stream,
            stop,
            images,
            _table: table,
            _link: link,
            _status: status,
        })
    }

    /// The time on the GPU's clock. Nanoseconds.
    fn clock(runner: &Runner) -> Result<u64, Error> {
        let clock = runner.allocate(Place::Kernel, 8)?;
        let status = runner.allocate(Place::Kernel, StatusSlot::WORDS as usize * 8)?;
        // SAFETY: the slice is the buffer, which outlives the launch.
        let slice = unsafe { DisjointSlice::from_raw(clock.address(), 1) };
        let config = LaunchConfig {
            blocks: 1,
            threads: 32,
        };
        // SAFETY: the arguments are this function's own buffers.
        unsafe { runner.run::<read_clock>(config, &status, (slice,)) }?;
        let mut now = [0u64];
        clock.read(0, &mut now)?;
        Ok(now[0])
    }

    /// Copies what the kernel has counted so far into the models.
    pub(crate) fn report(&self, ssds: &[Ssd]) -> Result<(), Error> {
        for (emulated, image) in ssds.iter().filter_map(Ssd::emulated).zip(&self.images) {
            let mut words = vec![0u64; image.len() / 8];
            image.read(0, &mut words)?;
            emulated.model.take_back(&words);
        }
        Ok(())
    }

    /// Ends the kernel and waits for it.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.stop.write(0, &[1u32])?;
        self.stream.wait_for("the resident kernel", STOP_TIMEOUT)?;
        Ok(())
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        if !self.stream.is_idle().unwrap_or(false) && self.stop().is_err() {
            // The kernel may still run: what it uses stays allocated for good.
            self.images.drain(..).for_each(std::mem::forget);
        }
    }
}

impl CudaRunner {
    /// Multiprocessors that serve `queues` queue pairs well: one warp for each.
    pub fn multiprocessors_for(queues: u32) -> u32 {
        queues.div_ceil(BLOCK / 32).max(1)
    }
}
