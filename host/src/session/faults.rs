//! What goes wrong with emulated SSDs, on purpose: power cuts, and counts of injected faults.

use super::Session;
use crate::Error;
use crate::runner::Runner;

impl Session {
    /// Cuts the power of every SSD, from any thread, while kernels run. What was not flushed of a
    /// volatile write cache is lost or, with a `seed`, stays by chance
    /// ([`nvme_model::Controller::power_cut`]). Accesses that wait for an SSD end at their deadline;
    /// open another session on the media.
    ///
    /// # Errors
    /// A GPU serves the SSDs: only those that host threads serve can lose their power.
    pub fn power_cut(&self, seed: Option<u64>) -> Result<(), Error> {
        if let Runner::Cuda(_) = self.runner {
            return Err(Error::Configuration(
                "only SSDs that host threads serve can lose their power".to_owned(),
            ));
        }
        for ssd in &self.ssds {
            ssd.model.power_cut(seed);
        }
        Ok(())
    }

    /// How often each rule of [`SsdConfig::faults`](crate::SsdConfig::faults) has hit, all SSDs
    /// together.
    ///
    /// # Errors
    /// The copy from the GPU fails.
    pub fn injected_faults(&self) -> Result<Vec<u64>, Error> {
        if let Some(resident) = &self.resident {
            resident.report(&self.ssds)?;
        }
        let mut sum = vec![0; self.config.ssd.faults.rules.len()];
        for ssd in &self.ssds {
            for (sum, hits) in sum.iter_mut().zip(ssd.model.faults()) {
                *sum += hits;
            }
        }
        Ok(sum)
    }
}
