//! Where kernels run: on host threads, or on a GPU. One interface.
#![allow(unsafe_code, reason = "running a kernel hands out raw addresses")]
// UNSAFETY: an unsafe function that passes its caller's promise on.

mod cuda;
mod threads;

pub use cuda::CudaRunner;
pub use threads::ThreadsRunner;

use warpstore_device::launch::Kernel;

use crate::Error;
use crate::buffer::{Buffer, Place};

/// Size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Threads of a block: a multiple of 32.
    pub threads: u32,
}

impl LaunchConfig {
    /// Number of lanes.
    pub const fn lanes(self) -> u64 {
        self.blocks as u64 * self.threads as u64
    }

    /// This launch, or a smaller one of at most `lanes` lanes, but of at least one warp.
    #[must_use]
    pub fn within(self, lanes: u64) -> Self {
        let threads = u64::from(self.threads).min(lanes / 32 * 32).max(32) as u32;
        let blocks = (lanes / u64::from(threads)).max(1);
        Self {
            blocks: u64::from(self.blocks).min(blocks) as u32,
            threads,
        }
    }
}

/// Runs kernels.
pub enum Runner {
    /// On host threads.
    Threads(ThreadsRunner),
    /// On a GPU.
    Cuda(CudaRunner),
}

impl Runner {
    /// Name on command lines and in results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Threads(_) => "threads",
            Self::Cuda(_) => "cuda",
        }
    }

    /// Zeroed memory.
    ///
    /// # Errors
    /// The machine has not that much.
    pub fn allocate(&self, place: Place, len: usize) -> Result<Buffer, Error> {
        match self {
            Self::Threads(_) if place == Place::Dma => Buffer::dma(len),
            Self::Threads(_) => Buffer::host(len),
            Self::Cuda(runner) => runner.allocate(place, len),
        }
    }

    /// A launch that fills the machine with lanes of kernel `K`.
    ///
    /// # Errors
    /// The GPU does not know the kernel.
    pub fn fill<K: Kernel>(&self) -> Result<LaunchConfig, Error> {
        match self {
            Self::Threads(runner) => Ok(runner.fill()),
            Self::Cuda(runner) => runner.fill::<K>(),
        }
    }

    /// Waits for the end of a kernel that was told to stop.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        match self {
            Self::Threads(_) => Ok(()),
            Self::Cuda(runner) => runner.settle(),
        }
    }

    /// Runs kernel `K` to its end. Returns seconds of kernel time.
    ///
    /// # Safety
    /// Everything that `args` and `status` name is valid for the side that runs the kernel, as
    /// the constructors of the handles say, until the call returns.
    pub(crate) unsafe fn run<K: Kernel>(
        &self,
        config: LaunchConfig,
        status: &Buffer,
        args: K::Args,
    ) -> Result<f64, Error> {
        match self {
            Self::Threads(runner) => runner.run::<K>(config, status, args),
            // SAFETY: the caller vouches for the arguments.
            Self::Cuda(runner) => unsafe { runner.run::<K>(config, status, args) },
        }
    }
}
