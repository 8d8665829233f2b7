//! Buffers for accesses that go round the cache: a line that finds no slot is read into one, so
//! that a cache of one line, or none, still makes progress.
//!
//! One word a buffer: free, taken (its owner has a command in flight or is about to), or settled
//! with the command's status. Its owner holds nothing else while it waits, and whoever drains
//! settles it, so buffers always come back.

use core::num::NonZeroU32;

use nvme_wire::Status;
use warpstore_simt::{Cell, Cells, Order, thread};

use crate::store::StoreDesc;

const FREE: u64 = 0;
const TAKEN: u64 = 1;
const SETTLED: u64 = 2;
const STATUS_SHIFT: u32 = 8;

/// Buffers that one attempt looks at before it gives way to others.
const PROBES: u32 = 4;

/// The word of a buffer whose command ended with `status`.
#[inline(always)]
pub(crate) const fn settled_word(status: Status) -> u64 {
    (status.bits() as u64) << STATUS_SHIFT | SETTLED
}

/// The word of a buffer whose command is in flight.
pub(crate) const IN_FLIGHT: u64 = TAKEN;

/// The status in a settled word, `None` while the command is in flight.
#[inline(always)]
pub(crate) const fn status_of(word: u64) -> Option<Status> {
    if word & 0xFF == SETTLED {
        Some(Status::from_bits((word >> STATUS_SHIFT) as u16))
    } else {
        None
    }
}

/// Takes a free buffer, or none if a few probes found none. Per lane.
#[inline(always)]
pub(crate) fn take(desc: &StoreDesc, attempt: u32) -> Option<u64> {
    let count = NonZeroU32::new(desc.bounce.count)?;
    // 32 bits: a 64-bit remainder is a call on the GPU.
    let start = (thread::index_1d() as u32).wrapping_add(attempt.wrapping_mul(PROBES));
    let mut next = start % count;
    for _ in 0..PROBES {
        let buffer = u64::from(next);
        next = if next + 1 < count.get() { next + 1 } else { 0 };
        let word = desc.bounce_words.at(buffer);
        // Ordering: [BB-1] acquire pairs with the release in `put_back`: the last owner has read
        // the buffer before the controller writes it again.
        if word.load(Order::Relaxed) == FREE
            && word.compare_exchange(FREE, TAKEN, Order::Acquire).is_ok()
        {
            return Some(buffer);
        }
    }
    None
}

/// Gives a buffer back. No command for it is in flight.
#[inline(always)]
pub(crate) fn put_back(desc: &StoreDesc, buffer: u64) {
    // Ordering: [BB-1].
    desc.bounce_words.at(buffer).store(FREE, Order::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_word_carries_the_status() {
        assert_eq!(status_of(FREE), None);
        assert_eq!(status_of(IN_FLIGHT), None);
        let status = Status::from_bits(0x4281);
        assert_eq!(status_of(settled_word(status)), Some(status));
        assert_eq!(
            status_of(settled_word(Status::from_bits(0))),
            Some(Status::from_bits(0))
        );
    }
}
