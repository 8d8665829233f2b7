//! Memory checked to be within a controller's reach.
// UNSAFETY: a `Span` is made by `new`, whose caller vouches for it, or from a mapped DMA range;
// every access is bounded by it.

use warpstore_simt::{Cell, Native, NativeCell, NativeCells, Order, Platform, System, warp};

use super::Image;
use crate::layout::{self, dma_range, header};

/// The DMA ranges of a controller, with the last range found: what an IOMMU is to a real one.
#[derive(Clone, Copy)]
pub(crate) struct DmaRanges {
    image: Image,
    start: u64,
    end: u64,
    offset: u64,
}

impl DmaRanges {
    /// The ranges that are mapped at `image`'s controller.
    #[inline(always)]
    pub(crate) fn of(image: Image) -> Self {
        Self {
            image,
            start: 0,
            end: 0,
            offset: 0,
        }
    }

    /// The `len` bytes at `iova`, if one mapped range holds them all.
    #[inline(always)]
    pub(crate) fn span(&mut self, iova: u64, len: u64) -> Option<Span> {
        if inside(iova, len, self.start, self.end) {
            return Some(self.translated(iova, len));
        }
        let count = self.image.read(header::RANGES);
        let mut index = 0;
        while index < count {
            let range = layout::range(index);
            let [start, end] = self.image.read_pair(range + dma_range::START);
            if inside(iova, len, start, end) {
                self.start = start;
                self.end = end;
                self.offset = self.image.read(range + dma_range::OFFSET);
                return Some(self.translated(iova, len));
            }
            index += 1;
        }
        None
    }

    /// The bytes at an IOVA of the range found last.
    #[inline(always)]
    fn translated(&self, iova: u64, len: u64) -> Span {
        Span {
            address: iova.wrapping_add(self.offset),
            len,
        }
    }
}

/// Whether the `len` bytes at `iova` lie in the range from `start` up to `end`.
#[inline(always)]
fn inside(iova: u64, len: u64, start: u64, end: u64) -> bool {
    iova >= start && iova <= end && len <= end - iova
}

/// Memory that was checked to be within the controller's reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    address: u64,
    len: u64,
}

impl Span {
    /// No memory.
    pub(crate) const EMPTY: Self = Self { address: 0, len: 0 };

    /// Takes `len` bytes at `address`.
    ///
    /// # Safety
    /// They are valid for atomic reads and writes by this agent.
    #[inline(always)]
    pub(crate) const unsafe fn new(address: u64, len: u64) -> Self {
        Self { address, len }
    }

    /// Address of the first byte.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn address(self) -> u64 {
        self.address
    }

    /// Length in bytes.
    #[inline(always)]
    pub(crate) fn len(self) -> u64 {
        self.len
    }

    /// True if address and length are multiples of 16.
    #[inline(always)]
    pub(crate) fn is_aligned(self) -> bool {
        (self.address | self.len).is_multiple_of(16)
    }

    /// The `len` bytes from `offset` on, cut at the end of the span.
    #[inline(always)]
    pub(crate) fn part(self, offset: u64, len: u64) -> Self {
        let offset = if offset < self.len { offset } else { self.len };
        let rest = self.len - offset;
        Self {
            address: self.address.wrapping_add(offset),
            len: if len < rest { len } else { rest },
        }
    }

    /// The span that lane `source` of the warp holds.
    #[inline(always)]
    pub(crate) fn of_lane(self, mask: u32, source: u32) -> Self {
        Self {
            address: warp::shuffle_sync(mask, self.address, source),
            len: warp::shuffle_sync(mask, self.len, source),
        }
    }

    #[inline(always)]
    fn holds(self, offset: u64, bytes: u64) -> bool {
        bytes <= self.len && offset <= self.len - bytes
    }

    #[inline(always)]
    fn words(self, offset: u64) -> NativeCells<u64, System> {
        // SAFETY: callers check `holds` for the two words first; spans are reachable memory, and
        // 16-byte accesses are made only where `is_aligned` or the ring's alignment says so.
        unsafe { NativeCells::new(self.address.wrapping_add(offset) as *mut u64, 2) }
    }

    /// 16 bytes at `offset`, zeros beyond the end.
    #[inline(always)]
    pub(crate) fn load16(self, offset: u64) -> [u64; 2] {
        if self.holds(offset, 16) {
            Native::load_pair::<System>(self.words(offset), 0)
        } else {
            [0; 2]
        }
    }

    /// Writes 16 bytes at `offset`; nothing beyond the end.
    #[inline(always)]
    pub(crate) fn store16(self, offset: u64, pair: [u64; 2]) {
        if self.holds(offset, 16) {
            Native::store_pair::<System>(self.words(offset), 0, pair);
        }
    }

    /// Writes a CQE at `offset`, the word with the phase last.
    #[inline(always)]
    pub(crate) fn publish16(self, offset: u64, pair: [u64; 2]) {
        if !self.holds(offset, 16) {
            return;
        }
        if cfg!(target_arch = "nvptx64") {
            // One 16-byte store: a reader sees all of it or nothing.
            Native::store_pair::<System>(self.words(offset), 0, pair);
        } else {
            self.word(offset).store(pair[0], Order::Relaxed);
            self.word(offset + 8).store(pair[1], Order::Release);
        }
    }

    #[inline(always)]
    fn word(self, offset: u64) -> NativeCell<u64, System> {
        // SAFETY: callers check `holds` first; rings and PRP lists are 8-byte aligned.
        unsafe { NativeCell::new(self.address.wrapping_add(offset) as *mut u64) }
    }

    /// 8 bytes at `offset` of an 8-byte aligned span, zero beyond the end.
    #[inline(always)]
    pub(crate) fn load8(self, offset: u64) -> u64 {
        if self.holds(offset, 8) {
            self.word(offset).load(Order::Relaxed)
        } else {
            0
        }
    }

    #[inline(always)]
    fn half(self, offset: u64) -> NativeCell<u32, System> {
        // SAFETY: callers check `holds` first; buffers are 4-byte aligned (PRP offsets are).
        unsafe { NativeCell::new(self.address.wrapping_add(offset) as *mut u32) }
    }

    /// 4 bytes at `offset`, zero beyond the end.
    #[inline(always)]
    pub(crate) fn load4(self, offset: u64) -> u32 {
        if self.holds(offset, 4) {
            self.half(offset).load(Order::Relaxed)
        } else {
            0
        }
    }

    /// Writes 4 bytes at `offset`; nothing beyond the end.
    #[inline(always)]
    pub(crate) fn store4(self, offset: u64, value: u32) {
        if self.holds(offset, 4) {
            self.half(offset).store(value, Order::Relaxed);
        }
    }

    /// Copies `from` here, as far as both reach: the host's one-lane form of a transfer.
    ///
    /// Word by word and atomic, because other queues may move the same blocks meanwhile.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn copy_from(self, from: Span) {
        use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
        let len = self.len.min(from.len);
        let wide = if (self.address | from.address).is_multiple_of(8) {
            len & !7
        } else {
            0
        };
        for offset in (0..wide).step_by(8) {
            // SAFETY: below both lengths, and both addresses are multiples of 8.
            let source = unsafe { AtomicU64::from_ptr((from.address + offset) as *mut u64) };
            // SAFETY: as above.
            let target = unsafe { AtomicU64::from_ptr((self.address + offset) as *mut u64) };
            target.store(source.load(Relaxed), Relaxed);
        }
        for offset in (wide..len & !3).step_by(4) {
            // SAFETY: below both lengths; transfers are 4-byte aligned (PRP offsets are).
            let source = unsafe { AtomicU32::from_ptr((from.address + offset) as *mut u32) };
            // SAFETY: as above.
            let target = unsafe { AtomicU32::from_ptr((self.address + offset) as *mut u32) };
            target.store(source.load(Relaxed), Relaxed);
        }
    }

    /// Puts `bytes` here, as far as they reach: the host's import.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn fill(self, bytes: &[u8]) {
        use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
        let bytes = &bytes[..bytes.len().min(self.len as usize)];
        let (words, _) = bytes.as_chunks::<8>();
        let words = if self.address.is_multiple_of(8) {
            words
        } else {
            &[]
        };
        for (at, &word) in (self.address..).step_by(8).zip(words) {
            // SAFETY: below the length, and the address is a multiple of 8.
            unsafe { AtomicU64::from_ptr(at as *mut u64) }.store(u64::from_ne_bytes(word), Relaxed);
        }
        let done = 8 * words.len();
        for (at, &byte) in (self.address + done as u64..).zip(&bytes[done..]) {
            // SAFETY: below the length, and a byte is aligned anywhere.
            unsafe { AtomicU8::from_ptr(at as *mut u8) }.store(byte, Relaxed);
        }
    }
}
