//! Doorbells: plain 32-bit words at a stride, polled by the service.
#![allow(unsafe_code, reason = "the caller vouches for doorbells of its own")]
// UNSAFETY: addresses of lent doorbells become cells; whoever lends them vouches for them.

use nvme_wire::regs::doorbell_offset;
use warpstore_simt::{Cell, NativeCell, Order, System};

use crate::memory::SharedWords;

/// Memory for doorbells that the caller supplies.
#[derive(Clone, Copy, Debug)]
pub struct LentDoorbells(Lent);

#[derive(Clone, Copy, Debug)]
enum Lent {
    /// Those of the I/O queues, out of the CPU's reach.
    Apart(u64),
    /// Those of all queues, in the CPU's reach.
    Shared(u64),
}

impl LentDoorbells {
    /// The doorbells of queue 1 and above will lie from `address` on, in the order and stride of
    /// the register space: in GPU memory, for instance. The CPU never touches them.
    ///
    /// # Safety
    /// `2 * queues * (4 << DSTRD)` zeroed bytes at `address`, aligned to 4, are valid for the
    /// agent that serves the I/O queues as long as the controller exists. A queue identifier is
    /// not created twice without zeroing its two doorbells in between.
    pub unsafe fn at(address: u64) -> Self {
        Self(Lent::Apart(address))
    }

    /// All doorbells, the admin queue's first, will lie from `address` on, in the order and stride
    /// of the register space: in pages that other processes map, for instance.
    ///
    /// # Safety
    /// `2 * (1 + queues) * (4 << DSTRD)` zeroed bytes at `address`, aligned to 4, are valid for
    /// atomic access by this process as long as the controller exists.
    pub unsafe fn shared(address: u64) -> Self {
        Self(Lent::Shared(address))
    }
}

/// The doorbells of a controller.
pub(super) struct Doorbells {
    here: Here,
    /// Where those of the I/O queues lie, if the CPU does not reach them.
    apart: Option<u64>,
    queues: u16,
    dstrd: u8,
}

/// The doorbells that the CPU reaches: those of the admin queue at least.
enum Here {
    Own(SharedWords),
    Lent(u64),
}

impl Doorbells {
    pub(super) fn new(queues: u16, dstrd: u8, lent: Option<LentDoorbells>) -> Self {
        let own = |pairs: u64| Here::Own(SharedWords::zeroed(pairs * (8 << dstrd) / 8));
        let (here, apart) = match lent {
            None => (own(1 + queues as u64), None),
            Some(LentDoorbells(Lent::Apart(address))) => (own(1), Some(address)),
            Some(LentDoorbells(Lent::Shared(address))) => (Here::Lent(address), None),
        };
        Self {
            here,
            apart,
            queues,
            dstrd,
        }
    }

    /// Address of the doorbell of a queue.
    pub(super) fn of(&self, qid: u16, is_cq: bool) -> Option<u64> {
        self.address(doorbell_offset(qid, is_cq, self.dstrd))
    }

    /// Address of the doorbell at a register offset.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let at = self.index(offset)?;
        match (self.apart, &self.here) {
            (Some(apart), _) if at >= self.pair() => Some(apart + at - self.pair()),
            (_, Here::Own(words)) => Some(words.address() + at),
            (_, Here::Lent(address)) => Some(address + at),
        }
    }

    /// Rings the doorbell at a register offset on behalf of the CPU. Offsets between doorbells,
    /// beyond them, and of those out of its reach are ignored.
    pub(super) fn ring(&self, offset: u64, value: u32) {
        match self.index(offset) {
            Some(at) if self.apart.is_none() || at < self.pair() => {
                self.cell(at).store(value, Order::Relaxed);
            }
            _ => {}
        }
    }

    /// Zeroes a doorbell, if the CPU reaches it.
    pub(super) fn clear(&self, qid: u16, is_cq: bool) {
        self.ring(doorbell_offset(qid, is_cq, self.dstrd), 0);
    }

    /// The admin queue's tail (SQ) or head (CQ).
    pub(super) fn admin(&self, is_cq: bool) -> u32 {
        let at = if is_cq { 4 << self.dstrd } else { 0 };
        self.cell(at).load(Order::Relaxed)
    }

    /// The word at byte index `at`, which `index` gave or which is the admin queue's.
    fn cell(&self, at: u64) -> NativeCell<u32, System> {
        match &self.here {
            Here::Own(words) => words.half_cell(at),
            // SAFETY: whoever lent the doorbells vouched for all that the register space has, and
            // `at` is one of them.
            Here::Lent(address) => unsafe { NativeCell::new((address + at) as *mut u32) },
        }
    }

    /// Bytes of one queue's two doorbells.
    fn pair(&self) -> u64 {
        8 << self.dstrd
    }

    /// Byte index of the doorbell at a register offset.
    fn index(&self, offset: u64) -> Option<u64> {
        let at = offset.checked_sub(doorbell_offset(0, false, self.dstrd))?;
        let inside = at < (1 + self.queues as u64) * self.pair();
        (inside && at.is_multiple_of(4 << self.dstrd)).then_some(at)
    }
}
