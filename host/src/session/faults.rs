//! What goes wrong with emulated SSDs, on purpose: power cuts, and counts of injected faults, on
//! either side of the queues.

use warpstore_device::parts::nvme_queue::{self, Queue, QueueDesc, Wide};
use warpstore_device::parts::simt::Native;

use super::Session;
use crate::Error;
use crate::runner::Runner;

impl Session {
    /// Cuts the power of every SSD, from any thread, while kernels run. What was not flushed of a
    /// volatile write cache is lost or, with a `seed`, stays by chance
    /// ([`nvme_model::Controller::power_cut`]). The SSDs are gone, which ends accesses that wait for
    /// them; open another session on the media.
    ///
    /// # Errors
    /// A GPU serves the SSDs, or they are real: only those that host threads serve can lose their
    /// power.
    pub fn power_cut(&self, seed: Option<u64>) -> Result<(), Error> {
        self.needs_host_threads("cutting the power of SSDs")?;
        for ssd in &self.ssds {
            let emulated = ssd.emulated().ok_or_else(|| {
                let name = ssd.backing.name();
                Error::Configuration(format!(
                    "{name} is a real SSD, whose power nobody cuts here"
                ))
            })?;
            emulated.model.power_cut(seed);
        }
        Ok(())
    }

    /// How often each rule of the SSDs' faults ([`SsdConfig::faults`](crate::SsdConfig::faults)) has hit,
    /// all SSDs together; of SSDs in other processes, commands of kernels alone. Real SSDs have no such
    /// rules.
    ///
    /// # Errors
    /// The copy from the GPU fails, or an SSD's process does not answer.
    pub fn injected_faults(&self) -> Result<Vec<u64>, Error> {
        if let Some(resident) = &self.resident {
            resident.report(&self.ssds)?;
        }
        let mut sum: Vec<u64> = Vec::new();
        for ssd in &self.ssds {
            let hits = match (ssd.emulated(), ssd.process()) {
                (Some(emulated), _) => emulated.model.faults(),
                (_, Some(process)) => process.statistics()?.faults,
                (None, None) => Vec::new(),
            };
            sum.resize(sum.len().max(hits.len()), 0);
            for (sum, hits) in sum.iter_mut().zip(hits) {
                *sum += hits;
            }
        }
        Ok(sum)
    }

    /// Completions that the queues have counted and not applied, all SSDs together: unknown and
    /// stale CIDs, duplicates. `last_cid` is that of the last queue that has any.
    ///
    /// # Errors
    /// A GPU has the queues.
    pub fn refused_completions(&self) -> Result<nvme_queue::Faults, Error> {
        self.needs_host_threads("reading the counters of queues")?;
        let desc = &self.store.desc;
        let count = desc.map.ssds.get() * desc.queues_per_ssd.get();
        let mut sum = nvme_queue::Faults::default();
        for index in 0..count as usize {
            let table = desc.queues as *const QueueDesc;
            // SAFETY: the index is below the length of the table, which nobody writes and which
            // lives as long as the session, in this address space.
            let queue = unsafe { &*table.wrapping_add(index) };
            // SAFETY: this session built the description from live rings and words.
            let queue = unsafe { Queue::<Native, Wide>::from_desc(queue) };
            let faults = queue.faults();
            if faults.total() != 0 {
                sum.last_cid = faults.last_cid;
            }
            sum.unknown += faults.unknown;
            sum.stale += faults.stale;
            sum.duplicate += faults.duplicate;
            sum.foreign += faults.foreign;
        }
        Ok(sum)
    }

    /// Rings the SQ doorbell of queue pair `index` (SSD × queues per SSD + queue) with `tail`, as a
    /// kernel does that writes where it should not, on host threads.
    #[cfg(test)]
    pub(crate) fn ring(&self, index: usize, tail: u32) {
        use warpstore_device::parts::simt::{Cell, NativeCell, Order, System};
        let table = self.store.desc.queues as *const QueueDesc;
        // SAFETY: as in `refused_completions`; tests know how many queue pairs they have.
        let queue = unsafe { &*table.wrapping_add(index) };
        let doorbell = queue.rings.sq_doorbell as *mut u32;
        // SAFETY: what kernels ring is a word in this address space as long as the session lives.
        let doorbell = unsafe { NativeCell::<u32, System>::new(doorbell) };
        doorbell.store(tail, Order::Relaxed);
    }

    fn needs_host_threads(&self, what: &str) -> Result<(), Error> {
        match self.runner {
            Runner::Threads(_) => Ok(()),
            Runner::Cuda(_) => Err(Error::Configuration(format!(
                "{what} is for sessions on host threads only"
            ))),
        }
    }
}
