//! What kernels wrote, to the SSDs and for good.

use std::sync::atomic::Ordering;

use warpstore_device::Flusher;
use warpstore_device::launch::Kernel;
use warpstore_kernels::flush::{flush_ssds, write_back};

use super::Session;
use crate::Error;
use crate::volume::VolumeAccess;

impl Session {
    /// Makes everything durable that kernels have written: every dirty line is written to its
    /// SSD, all of these writes are waited for, and then every SSD gets a Flush. When this has
    /// returned without an error, what was written before is there after a loss of power.
    ///
    /// # Errors
    /// The first thing that failed. What was not written is still in the cache, and dirty: after a
    /// failure that passes, flush again. Lines whose write was under way when its deadline passed
    /// cannot be written any more in this session.
    pub fn flush(&self) -> Result<(), Error> {
        let written = self.flush_with(&write_back);
        let flushed = self.flush_with(&flush_ssds);
        // The files behind media that a GPU serves from memory.
        let persisted = match &self.volume {
            Some(volume) if volume.access == VolumeAccess::ReadOnly => Ok(()),
            _ => self.ssds.iter().try_for_each(|ssd| ssd.persist()),
        };
        written.and(flushed).and(persisted)?;
        Ok(())
    }

    fn flush_with<K: Kernel<Args = (Flusher,)>>(&self, kernel: &K) -> Result<(), Error> {
        let config = self.fill(kernel)?;
        match self.launch(kernel, config, (Flusher::of(self.store()),)) {
            Ok(_) => Ok(()),
            Err(Error::Kernel {
                lanes,
                first,
                command,
                lba,
                ..
            }) => Err(Error::Flush {
                lanes,
                first,
                command,
                lba,
            }),
            Err(error) => Err(error),
        }
    }

    /// Whether there may be something to flush.
    pub(super) fn is_dirty(&self) -> bool {
        self.may_be_dirty.load(Ordering::Relaxed)
    }

    /// Flushes once, at the end, if anybody could write.
    pub(super) fn flush_if_dirty(&self) -> Result<(), Error> {
        if !self.may_be_dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.flush()
    }
}
