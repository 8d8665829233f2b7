//! What ends the waits of kernels before their deadlines.

use std::sync::Arc;

use warpstore_device::parts::nvme_queue::Layout;

use crate::Error;
use crate::buffer::Buffer;

/// The words that kernels look at in every turn of a wait ([SQ-8]), for any thread.
#[derive(Clone)]
pub(crate) struct Brakes {
    pub(crate) abort: Arc<Buffer>,
    /// The private words of each SSD's queue pairs, one after the other.
    pub(crate) queue_words: Vec<Arc<Buffer>>,
    pub(crate) layout: Layout,
}

impl Brakes {
    /// Ends all waits, until `release`.
    pub(crate) fn abort(&self) -> Result<(), Error> {
        self.abort.store_word(0, 1)
    }

    /// Lets waits be, so that what is left can still be written.
    pub(crate) fn release(&self) -> Result<(), Error> {
        self.abort.store_word(0, 0)
    }

    /// Gives up the queues of SSD `ssd`, for good: nothing is submitted to it any more. What is in
    /// flight is waited for, or aborted.
    pub(crate) fn give_up(&self, ssd: usize) -> Result<(), Error> {
        let words = &self.queue_words[ssd];
        let stride = words_stride(self.layout) as usize;
        for first in (0..words.len()).step_by(stride) {
            words.store_word(first + self.layout.dead_byte() as usize, 1)?;
        }
        Ok(())
    }
}

/// Bytes from one queue pair's private words to the next one's.
pub(crate) fn words_stride(layout: Layout) -> u64 {
    layout.bytes().next_multiple_of(128)
}
