//! The `cuda` runner: kernels as PTX on a GPU, beside a resident kernel that is the SSDs.
#![allow(unsafe_code, reason = "launches take raw parameter addresses")]
// UNSAFETY: launches of kernels whose parameters the type `Kernel` fixes; what they point to is
// the session's, which waits for the end of every launch.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use warpstore_device::launch::{Kernel, KernelArgs, StatusSlot};

use super::LaunchConfig;
use crate::Error;
use crate::buffer::{Buffer, Place};
use crate::cuda::{Context, Function, Module, Stream};

/// Parameters that a kernel may have, the status slot included.
const MAX_PARAMETERS: usize = 16;
/// Threads of a block where the caller does not care: small, so that a level's few warps spread
/// over many multiprocessors.
const BLOCK: u32 = 128;
/// Bytes that stand for each parameter of a warm-up launch.
const BLANK_BYTES: usize = 4096;
/// Longest run of one launch. Kernels have their own, shorter deadlines; this one ends a wait for
/// a kernel that has a defect.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs kernels on a GPU.
pub struct CudaRunner {
    context: Arc<Context>,
    stream: Arc<Stream>,
    functions: HashMap<String, Function>,
    /// Multiprocessors that the resident kernel does not use.
    multiprocessors: u32,
}

impl CudaRunner {
    /// Opens GPU `gpu`, compiles the kernels of each PTX text and runs every one once without
    /// work, since a kernel that is first loaded while a resident kernel runs would wait for its
    /// end. `reserved` multiprocessors are left to the resident kernel.
    ///
    /// # Errors
    /// There is no driver or no such GPU, or the driver's compiler refuses the PTX.
    pub fn open(gpu: u32, ptx: &[&str], reserved: u32) -> Result<Self, Error> {
        let context = Context::open(gpu)?;
        let stream = Arc::new(Stream::new(&context)?);
        let mut functions = HashMap::new();
        for text in ptx.iter().filter(|text| !text.is_empty()) {
            let module = Arc::new(Module::load(&context, text)?);
            for name in entries(text) {
                functions.insert(name.to_owned(), module.function(name)?);
            }
        }
        let multiprocessors = context.multiprocessors()?.saturating_sub(reserved).max(1);
        let runner = Self {
            context,
            stream,
            functions,
            multiprocessors,
        };
        runner.warm_up()?;
        Ok(runner)
    }

    /// The GPU.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The kernel `name`.
    pub(crate) fn function(&self, name: &str) -> Result<&Function, Error> {
        self.functions.get(name).ok_or_else(|| {
            Error::Configuration(format!(
                "kernel {name} is not in the PTX that the session was opened with"
            ))
        })
    }

    /// Registers a thread of kernel `K` on this GPU.
    ///
    /// # Errors
    /// The kernel is not in the PTX.
    pub fn registers<K: Kernel>(&self) -> Result<u32, Error> {
        Ok(self.function(K::NAME)?.registers()?)
    }

    /// Zeroed memory.
    pub(super) fn allocate(&self, place: Place, len: usize) -> Result<Buffer, Error> {
        match place {
            Place::Kernel => Buffer::device(&self.context, &self.stream, len),
            Place::Shared => Buffer::pinned(&self.context, len),
            Place::Dma => Buffer::dma_pinned(&self.context, len),
        }
    }

    pub(super) fn fill<K: Kernel>(&self) -> Result<LaunchConfig, Error> {
        let threads = BLOCK.min(K::MAX_THREADS);
        let blocks = self
            .function(K::NAME)?
            .blocks_per_multiprocessor(threads, 0)?;
        Ok(LaunchConfig {
            blocks: blocks.max(1) * self.multiprocessors,
            threads,
        })
    }

    /// Runs every kernel with blank parameters: an absent status slot makes it return at once.
    fn warm_up(&self) -> Result<(), Error> {
        let mut blank = [0u64; BLANK_BYTES / 8];
        let mut parameters = [blank.as_mut_ptr().cast::<c_void>(); MAX_PARAMETERS];
        for function in self.functions.values() {
            // SAFETY: every parameter, of whatever plain type up to 4 KiB, reads as zeros; with
            // an absent status slot no kernel looks at another one.
            unsafe { function.launch(&self.stream, 1, 32, 0, &mut parameters) }?;
        }
        self.stream
            .wait_for("the kernels' first run", LAUNCH_TIMEOUT)?;
        Ok(())
    }

    /// Queues kernel `K` on a stream of its own, with blocks that leave no room for others on
    /// their multiprocessors, and returns without waiting.
    ///
    /// # Safety
    /// As [`super::Runner::run`], until the stream is idle.
    pub(crate) unsafe fn start_resident<K: Kernel>(
        &self,
        config: LaunchConfig,
        status: &Buffer,
        args: K::Args,
    ) -> Result<Stream, Error> {
        let function = self.function(K::NAME)?;
        let shared = self.context.max_shared_memory()?;
        function.allow_shared_memory(shared)?;
        let stream = Stream::new(&self.context)?;
        let slot = status.status_slot();
        let mut parameters = parameters(&slot, &args);
        // SAFETY: as in `run`; the caller keeps everything until the stream is idle.
        unsafe {
            function.launch(
                &stream,
                config.blocks,
                config.threads,
                shared,
                &mut parameters,
            )
        }?;
        Ok(stream)
    }

    /// Waits for the end of a kernel that was told to stop.
    pub(super) fn settle(&self) -> Result<(), Error> {
        self.stream
            .wait_for("a kernel that was told to stop", LAUNCH_TIMEOUT)?;
        Ok(())
    }

    /// Runs kernel `K` to its end and returns seconds.
    ///
    /// # Safety
    /// As [`super::Runner::run`].
    pub(super) unsafe fn run<K: Kernel>(
        &self,
        config: LaunchConfig,
        status: &Buffer,
        args: K::Args,
    ) -> Result<f64, Error> {
        let function = self.function(K::NAME)?;
        let slot = status.status_slot();
        let mut parameters = parameters(&slot, &args);
        let begin = self.stream.record()?;
        // SAFETY: the parameters are the status slot and the elements of `args`, which `#[kernel]`
        // made the parameters of the entry; what they name is vouched for by the caller, and the
        // wait below outlasts the kernel.
        unsafe {
            function.launch(
                &self.stream,
                config.blocks,
                config.threads,
                0,
                &mut parameters,
            )
        }?;
        let end = self.stream.record()?;
        self.stream.wait_for(K::NAME, LAUNCH_TIMEOUT)?;
        Ok(begin.seconds_until(&end)?)
    }
}

/// Addresses of a kernel's parameters: the status slot, then the elements of `args`. Valid as
/// long as both stay where they are.
fn parameters<A: KernelArgs>(slot: &StatusSlot, args: &A) -> [*mut c_void; MAX_PARAMETERS] {
    let mut addresses = [std::ptr::null(); MAX_PARAMETERS];
    addresses[0] = (&raw const *slot).cast();
    args.addresses(&mut addresses[1..]);
    addresses.map(<*const c_void>::cast_mut)
}

/// Names of the kernels in a PTX text.
fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| {
        let (_, name) = line.split_once(".entry ")?;
        name.split(['(', ' ', '\t']).next()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernels_of_a_module_are_found_by_name() {
        let ptx = ".version 8.2\n.visible .entry one(\n.param .u64 x\n)\n{ }\n.entry two( ) { }\n";
        assert_eq!(super::entries(ptx).collect::<Vec<_>>(), ["one", "two"]);
    }
}
