//! Launches: what is checked before, and what is known of one that failed.
#![allow(
    unsafe_code,
    reason = "kernels are handed raw addresses of a session's memory"
)]
// UNSAFETY: the handles of a launch name this session's memory, which is checked, and the session
// outlives its launches.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use warpstore_device::launch::{Kernel, KernelArgs, StatusSlot};
use warpstore_device::{ErrorKind, IoError};

use super::Session;
use crate::Error;
use crate::config::Configuration;
use crate::cuda::CudaError;
use crate::runner::{LaunchConfig, Runner};

impl Session {
    /// A launch that fills the machine with lanes of `kernel`, as far as the queues admit them
    /// ([`Configuration::admitted_lanes`]).
    ///
    /// # Errors
    /// The GPU does not know the kernel.
    pub fn fill<K: Kernel>(&self, _kernel: &K) -> Result<LaunchConfig, Error> {
        let config = self.runner.fill::<K>()?;
        Ok(config.within(self.config.admitted_lanes()))
    }

    /// Registers a thread of `kernel`; `None` on host threads, which have none of that kind.
    ///
    /// # Errors
    /// The GPU does not know the kernel.
    pub fn registers<K: Kernel>(&self, _kernel: &K) -> Result<Option<u32>, Error> {
        match &self.runner {
            Runner::Threads(_) => Ok(None),
            Runner::Cuda(runner) => runner.registers::<K>().map(Some),
        }
    }

    /// Runs a kernel to its end and returns its time in seconds.
    ///
    /// # Errors
    /// The block is not of whole warps within the kernel's bounds; a handle in `args` is not this
    /// session's; lanes of the kernel returned errors, of which the first is told; or the launch
    /// failed.
    pub fn launch<K: Kernel>(
        &self,
        _kernel: &K,
        config: LaunchConfig,
        args: K::Args,
    ) -> Result<f64, Error> {
        if config.threads > K::MAX_THREADS
            || !config.threads.is_multiple_of(32)
            || config.threads == 0
            || config.blocks == 0
        {
            return Err(Error::Configuration(format!(
                "kernel {} takes at least one block of whole warps and at most {} threads, not {} \
                 blocks of {}",
                K::NAME,
                K::MAX_THREADS,
                config.blocks,
                config.threads
            )));
        }
        self.check_admission(K::NAME, config)?;
        self.check_memory(K::NAME, &args)?;
        if args.writes() {
            self.check_writable(&format!("kernel {}", K::NAME))?;
            self.may_be_dirty.store(true, Ordering::Relaxed);
        }
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.write(0, &[0u64; StatusSlot::WORDS as usize])?;
        // SAFETY: the handles in `args` name this session's memory (checked), which outlives the
        // call.
        let ran = unsafe { self.runner.run::<K>(config, &status, args) };
        if let Err(Error::Cuda(CudaError::Timeout { .. })) = &ran {
            // The kernel must have ended before anybody may free what it uses.
            self.abort()?;
            self.runner.settle()?;
        }
        let seconds = ran?;
        let mut words = [0u64; StatusSlot::WORDS as usize];
        status.read(0, &mut words)?;
        match IoError::from_bits(words[StatusSlot::FIRST_ERROR as usize]) {
            None => Ok(seconds),
            Some(first) => {
                Err(self.failed(K::NAME, words[StatusSlot::FAILED_LANES as usize], first)?)
            }
        }
    }

    /// What is known of a launch of which some lanes failed.
    fn failed(&self, kernel: &'static str, lanes: u64, first: IoError) -> Result<Error, Error> {
        if let Some(refusal) = self.store.ringing.refusal() {
            return Ok(refusal.into());
        }
        self.check_ssds(first)?;
        let (commands, records) = self.store.errors()?;
        // The line may be fetched by another warp, through another queue.
        let mut pending = Vec::new();
        if first.kind() == ErrorKind::Timeout {
            for queue in 0..self.config.ssds * self.config.queues {
                pending.extend(self.store.in_flight(queue)?);
            }
        }
        let of_line = pending.iter().find(|one| one.is_of_line(first.line()));
        let of_queue = pending.iter().find(|one| one.queue == first.queue());
        Ok(Error::Kernel {
            kernel,
            lanes,
            first,
            commands,
            command: records.first().copied(),
            pending: of_line.or(of_queue).copied(),
            lba: self.lba_of(first),
        })
    }

    /// SSD and first LBA of the line of an error. With block buffers the error may be of a block.
    fn lba_of(&self, error: IoError) -> Option<(u32, u64)> {
        let is_of_line = !matches!(error.kind(), ErrorKind::OutOfRange | ErrorKind::Flush);
        if !is_of_line || self.config.blocks.is_some() {
            return None;
        }
        let ssd = error.queue() / self.config.queues;
        let place = self.store.desc.map.place(error.line(), ssd);
        let shift = self.ssds[place.ssd as usize].lba_shift;
        Some((
            place.ssd,
            (self.store.start + place.line * u64::from(self.config.line_bytes)) >> shift,
        ))
    }

    /// Refuses more lanes than the queues admit: they could wait for one another for ever ([BQ-7]).
    fn check_admission(&self, kernel: &str, launch: LaunchConfig) -> Result<(), Error> {
        let (lanes, admitted) = (launch.lanes(), self.config.admitted_lanes());
        if lanes <= admitted {
            return Ok(());
        }
        let Configuration { queues, depth, .. } = self.config;
        Err(Error::Configuration(format!(
            "a launch of kernel {kernel} with {lanes} lanes is refused: BaM's protocol admits {} lanes \
             (depth - 1, in whole warps) to a queue, {admitted} to the {queues} queue pairs of depth \
             {depth} that each SSD has; use fewer lanes, more queue pairs or a greater depth",
            admitted / u64::from(queues)
        )))
    }

    /// Refuses handles of other sessions, whose memory may be gone.
    fn check_memory<A: KernelArgs>(&self, kernel: &str, args: &A) -> Result<(), Error> {
        let buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |(address, bytes): (u64, u64)| {
            address == self.store.address()
                || bytes == 0
                || buffers.iter().any(|buffer| buffer.holds(address, bytes))
        };
        let foreign =
            (0..A::COUNT).find(|&index| args.memory(index).is_some_and(|at| !is_ours(at)));
        match foreign {
            None => Ok(()),
            Some(index) => Err(Error::Configuration(format!(
                "argument {index} of kernel {kernel}, counted from 0, is not memory of this session"
            ))),
        }
    }
}
