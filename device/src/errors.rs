//! Failed commands, noted for the host: a counter and the first few records.

use nvme_wire::Status;
use warpstore_simt::{Cell, Cells, Device, NativeCell, NativeCells, Order};

use crate::finish::Purpose;

/// Words of one record: queue and CID and status; line or buffer.
const RECORD_WORDS: u64 = 2;

/// A counter of failed commands and room for the first `records.len() / 2` of them.
///
/// Failures are rare, so that one shared counter costs nothing on the path that works.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ErrorRing {
    /// Failed commands since the session was opened.
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
    /// Notes a failed command. Later ones than fit are only counted.
    #[inline(always)]
    pub(crate) fn note(self, failed: ErrorRecord) {
        let record = self.count.fetch_add(1, Order::Relaxed);
        if record < self.records.len() / RECORD_WORDS {
            let [first, tag] = failed.to_words();
            let at = record * RECORD_WORDS;
            self.records.at(at).store(first, Order::Relaxed);
            self.records.at(at + 1).store(tag, Order::Relaxed);
        }
    }
}

impl ErrorRecord {
    const fn to_words(self) -> [u64; 2] {
        let command = (self.cid as u64) << 16 | self.status as u64;
        [(self.queue as u64) << 32 | command, self.tag]
    }

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

impl core::fmt::Display for ErrorRecord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let status = Status::from_bits(self.status);
        write!(
            f,
            "queue {}, CID {:#x}: {}",
            self.queue,
            self.cid,
            status.name()
        )?;
        f.write_str(" for ")?;
        Purpose::of(self.tag).fmt(f)
    }
}

/// A command that was submitted and has not been completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCommand {
    /// Queue: SSD × queues per SSD + queue.
    pub queue: u32,
    /// Command identifier.
    pub cid: u16,
    /// What the command is for: the submitter's tag.
    pub tag: u64,
}

impl PendingCommand {
    /// Whether it moves bytes of `line`, as far as its tag says: of one beside the cache it does not.
    pub fn is_of_line(&self, line: u64) -> bool {
        match Purpose::of(self.tag) {
            Purpose::Fetch { line: of, .. } | Purpose::Clean { line: of } => of == line,
            Purpose::Bounce { .. } | Purpose::Block { .. } => false,
        }
    }
}

impl core::fmt::Display for PendingCommand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "CID {:#x} of queue {} for ", self.cid, self.queue)?;
        Purpose::of(self.tag).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn a_record_names_queue_cid_status_and_line() {
        let tag = Purpose::Fetch {
            line: 77,
            version: 3,
        }
        .tag();
        let record = ErrorRecord::from_words([5 << 32 | 0x12 << 16 | 0x4080, tag]);
        assert_eq!((record.queue, record.cid, record.tag), (5, 0x12, tag));
        assert_eq!(
            record.to_string(),
            "queue 5, CID 0x12: LBA Out of Range for line 77"
        );
    }
}
