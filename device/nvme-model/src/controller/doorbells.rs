//! Doorbells: plain 32-bit words at a stride, polled by the service.
#![allow(unsafe_code, reason = "the caller vouches for doorbells of its own")]
// UNSAFETY: one unsafe function without unsafe operations, `LentDoorbells::at`.

use nvme_wire::regs::doorbell_offset;

use crate::memory::SharedWords;

/// Memory for the I/O doorbells that the caller supplies, such as GPU memory.
#[derive(Clone, Copy, Debug)]
pub struct LentDoorbells {
    address: u64,
}

impl LentDoorbells {
    /// The doorbells of queue 1 and above will lie from `address` on, in the order and stride of
    /// the register space. The CPU never touches them.
    ///
    /// # Safety
    /// `2 * queues * (4 << DSTRD)` zeroed bytes at `address`, aligned to 4, are valid for the
    /// agent that serves the I/O queues as long as the controller exists. A queue identifier is
    /// not created twice without zeroing its two doorbells in between.
    pub unsafe fn at(address: u64) -> Self {
        Self { address }
    }
}

/// The doorbells of a controller. Those of the admin queue are always in host memory.
pub(super) struct Doorbells {
    own: SharedWords,
    queues: u16,
    dstrd: u8,
    lent: Option<LentDoorbells>,
}

impl Doorbells {
    pub(super) fn new(queues: u16, dstrd: u8, lent: Option<LentDoorbells>) -> Self {
        let pairs = if lent.is_some() { 1 } else { 1 + queues as u64 };
        let bytes = pairs * (8 << dstrd);
        Self {
            own: SharedWords::zeroed(bytes.div_ceil(8)),
            queues,
            dstrd,
            lent,
        }
    }

    /// Address of the doorbell of a queue.
    pub(super) fn of(&self, qid: u16, is_cq: bool) -> Option<u64> {
        self.address(doorbell_offset(qid, is_cq, self.dstrd))
    }

    /// Address of the doorbell at a register offset.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let at = self.index(offset)?;
        match self.lent {
            Some(lent) if at >= self.pair() => Some(lent.address + at - self.pair()),
            _ => Some(self.own.address() + at),
        }
    }

    /// Rings the doorbell at a register offset on behalf of the CPU. Offsets between doorbells,
    /// beyond them, and of lent ones are ignored.
    pub(super) fn ring(&self, offset: u64, value: u32) {
        match self.index(offset) {
            Some(at) if self.lent.is_none() || at < self.pair() => self.own.set_half(at, value),
            _ => {}
        }
    }

    /// Zeroes a doorbell, unless it is lent.
    pub(super) fn clear(&self, qid: u16, is_cq: bool) {
        self.ring(doorbell_offset(qid, is_cq, self.dstrd), 0);
    }

    /// The admin queue's tail (SQ) or head (CQ).
    pub(super) fn admin(&self, is_cq: bool) -> u32 {
        self.own.half(if is_cq { 4 << self.dstrd } else { 0 })
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
