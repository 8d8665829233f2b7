//! Buffers for accesses that go round the cache: a line that finds no slot is read into one, so
//! that a cache of one line, or none, still makes progress.
//!
//! One word a buffer: free, taken (its owner has a command in flight or is about to), or settled
//! with the command's status. Its owner waits for nothing but its own commands while it has it, and
//! whoever drains settles it, so buffers always come back; those of held lines are a share of their
//! own ([`Share`]).

use core::num::NonZeroU32;

use nvme_wire::Status;
use warpstore_simt::{Cell, Cells, Device, NativeCells, Order, thread};

/// One word a buffer.
type Words = NativeCells<u64, Device>;

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

/// The buffers that one kind of access may take.
///
/// Half of them are for those that wait for nothing but their own command while they have one. The
/// other half are for those that run code of the kernel's author meanwhile, which may need buffers
/// of the first kind: so these always come back ([DL-1]).
#[derive(Clone, Copy)]
pub(crate) struct Share {
    first: u32,
    count: u32,
}

impl Share {
    /// Of `count` buffers, the share of accesses that hold theirs or do not.
    #[inline(always)]
    pub(crate) const fn of(count: u32, holds: bool) -> Self {
        let half = count / 2;
        if holds {
            Self {
                first: half,
                count: count - half,
            }
        } else {
            Self {
                first: 0,
                count: half,
            }
        }
    }
}

/// Takes a free buffer of `share`, or none if a few probes found none. Per lane.
#[inline(always)]
pub(crate) fn take(words: Words, share: Share, attempt: u32) -> Option<u64> {
    let count = NonZeroU32::new(share.count)?;
    // 32 bits: a 64-bit remainder is a call on the GPU.
    let start = (thread::index_1d() as u32).wrapping_add(attempt.wrapping_mul(PROBES));
    let mut next = start % count;
    for _ in 0..PROBES {
        let buffer = u64::from(share.first + next);
        next = if next + 1 < count.get() { next + 1 } else { 0 };
        let word = words.at(buffer);
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
pub(crate) fn put_back(words: Words, buffer: u64) {
    // Ordering: [BB-1].
    words.at(buffer).store(FREE, Order::Release);
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};

    use warpstore_simt::host::{Grid, Interleaving, Workers, launch};
    use warpstore_simt::{Native, Platform};

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

    /// Lanes that use `words` in turn; how often two had one buffer at once.
    #[allow(unsafe_code, reason = "cells are raw addresses")]
    fn clashes(seed: u64) -> u64 {
        let memory = [AtomicU64::new(FREE), AtomicU64::new(FREE)];
        // SAFETY: two atomic words that outlive the launch. They are adjacent, as an array's are.
        let words: Words = unsafe { NativeCells::new(memory.as_ptr().cast_mut().cast(), 2) };
        let users = [AtomicU64::new(0), AtomicU64::new(0)];
        let (taken, clashes) = (AtomicU64::new(0), AtomicU64::new(0));
        let lane = || {
            for attempt in 0..20 {
                let Some(buffer) = take(words, Share::of(4, false), attempt) else {
                    continue;
                };
                let user = &users[buffer as usize];
                taken.fetch_add(1, Ordering::Relaxed);
                clashes.fetch_add(user.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                Native::pause(attempt);
                user.fetch_sub(1, Ordering::Relaxed);
                put_back(words, buffer);
            }
        };
        let grid = Grid {
            grid_dim: 1,
            block_dim: 32,
        };
        let workers = Workers {
            threads: 1,
            resident_blocks: 1,
        };
        launch(grid, workers, Interleaving::Seeded(seed), &lane).unwrap();
        assert!(taken.into_inner() > 2, "hardly any buffer was taken");
        clashes.into_inner()
    }

    #[test]
    fn the_shares_are_all_there_is_and_apart() {
        for count in [2, 64, 65, 4096] {
            let (passing, holding) = (Share::of(count, false), Share::of(count, true));
            assert!(passing.count > 0 && holding.count > 0);
            assert_eq!(passing.first, 0);
            assert_eq!(passing.count, holding.first);
            assert_eq!(holding.first + holding.count, count);
        }
    }

    #[test]
    fn a_buffer_has_one_user_at_a_time() {
        for seed in 0..50 {
            assert_eq!(clashes(seed), 0, "with seed {seed}");
        }
    }
}
