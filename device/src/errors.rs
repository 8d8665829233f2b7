//! Failed commands, noted for the host: a counter and the first few records.

use nvme_queue::Completion;
use warpstore_simt::{Cell, Cells, Device, NativeCell, NativeCells, Order};

/// Words of one record: queue and CID and status; line or buffer.
const RECORD_WORDS: u64 = 2;

/// A counter of failed commands and room for the first `records.len() / 2` of them.
///
/// Failures are rare, so that one shared counter costs nothing on the path that works.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ErrorRing {
    /// Failed commands since the host last cleared it.
    pub count: NativeCell<u64, Device>,
    /// Two words a record.
    pub records: NativeCells<u64, Device>,
}

/// One failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Queue: SSD × queues per SSD + queue.
    pub queue: u32,
    /// Command identifier.
    pub cid: u16,
    /// The 15 status bits.
    pub status: u16,
    /// What the command was for: the submitter's tag.
    pub tag: u64,
}

impl ErrorRing {
    /// Notes a failure of a command of `queue`. Later ones than fit are only counted.
    #[inline(never)]
    pub(crate) fn note(&self, queue: u32, completion: Completion) {
        let record = self.count.fetch_add(1, Order::Relaxed);
        if record < self.records.len() / RECORD_WORDS {
            let status = u64::from(completion.status.bits());
            let first = u64::from(queue) << 32 | u64::from(completion.cid) << 16 | status;
            self.records
                .at(record * RECORD_WORDS)
                .store(first, Order::Relaxed);
            self.records
                .at(record * RECORD_WORDS + 1)
                .store(completion.tag, Order::Relaxed);
        }
    }
}

impl ErrorRecord {
    /// Decodes the two words of a record.
    pub const fn from_words([first, tag]: [u64; 2]) -> Self {
        Self {
            queue: (first >> 32) as u32,
            cid: (first >> 16) as u16,
            status: first as u16,
            tag,
        }
    }
}
