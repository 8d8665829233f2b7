//! The memory that a controller reaches: its own image, the rings, the submitters' buffers, the
//! media.
#![allow(
    unsafe_code,
    reason = "a controller reaches memory by address, as DMA does"
)]
// UNSAFETY: addresses enter through `Image::new`, whose caller vouches for all that the image
// names, and become a `Span` only after a bounds check; every access is bounded by its span.

use warpstore_simt::{
    Cell, Device, Native, NativeCell, NativeCells, Order, Platform, System, warp,
};

use crate::layout::{self, header};

/// A controller's service image: words at fixed offsets from one address.
///
/// Copying the handle shares the image.
#[derive(Clone, Copy)]
pub struct Image {
    words: *mut u64,
}

// SAFETY: the handle is an address; every access through it is atomic, whoever holds it.
unsafe impl Send for Image {}
// SAFETY: as for Send.
unsafe impl Sync for Image {}

impl Image {
    /// Takes the image at `words`.
    ///
    /// # Safety
    /// An image that a `Controller` made (or a copy of it, see `Controller::image`) lies there,
    /// 128-byte aligned, as long as the handle or a copy is used. What it names is valid for
    /// atomic reads and writes by this agent: media, doorbells, the shared link cells and every
    /// DMA range that is mapped. Nothing else writes the image.
    #[inline(always)]
    pub const unsafe fn new(words: *mut u64) -> Self {
        Self { words }
    }

    /// The word at `index`, which comes from [`crate::layout`] and so lies inside the image.
    #[inline(always)]
    pub(crate) fn word(self, index: u64) -> NativeCell<u64, Device> {
        // SAFETY: the image is valid by the contract of `new`, and `index` is an offset of its
        // own layout.
        unsafe { NativeCell::new(self.words.wrapping_add(index as usize)) }
    }

    /// The value of the word at `index`.
    #[inline(always)]
    pub(crate) fn read(self, index: u64) -> u64 {
        self.word(index).load(Order::Relaxed)
    }

    /// Sets the word at `index`.
    #[inline(always)]
    pub(crate) fn write(self, index: u64, value: u64) {
        self.word(index).store(value, Order::Relaxed);
    }

    /// The words `index` and `index + 1` (`index` even), by one access where there is one.
    #[inline(always)]
    pub(crate) fn read_pair(self, index: u64) -> [u64; 2] {
        Native::load_pair::<Device>(self.pair(index), 0)
    }

    /// Sets the words `index` and `index + 1`.
    #[inline(always)]
    pub(crate) fn write_pair(self, index: u64, pair: [u64; 2]) {
        Native::store_pair::<Device>(self.pair(index), 0, pair);
    }

    #[inline(always)]
    fn pair(self, index: u64) -> NativeCells<u64, Device> {
        // SAFETY: as in `word`; even indices of an aligned image are 16-byte aligned.
        unsafe { NativeCells::new(self.words.wrapping_add(index as usize), 2) }
    }

    /// The `len` bytes of media from `offset` on; `None` beyond its end and without media.
    #[inline(always)]
    pub(crate) fn media(self, offset: u64, len: u64) -> Option<Span> {
        let [address, size] = self.read_pair(header::MEDIA);
        let inside = len <= size && offset <= size - len;
        if inside {
            Some(Span {
                address: address.wrapping_add(offset),
                len,
            })
        } else {
            None
        }
    }

    /// The entries of one ring of a live queue: `address` is the record word that names it.
    #[inline(always)]
    pub(crate) fn ring(self, address: u64, entries: u32, entry_bytes: u32) -> Span {
        // The controller checked the ring against the DMA ranges when it created the queue.
        Span {
            address: self.read(address),
            len: entries as u64 * entry_bytes as u64,
        }
    }

    /// The value of a doorbell: `address` is the record word that names it.
    #[inline(always)]
    pub(crate) fn doorbell(self, address: u64) -> u32 {
        let doorbell = self.read(address) as *mut u32;
        // SAFETY: the controller wrote the doorbell's address into the record, and doorbells are
        // valid by the contract of `new`.
        unsafe { NativeCell::<u32, System>::new(doorbell) }.load(Order::Relaxed)
    }

    /// The clock of the shared link for one direction; `None` if the profile has no link.
    #[inline(always)]
    pub(crate) fn link_clock(self, writing: bool) -> Option<NativeCell<u64, Device>> {
        let address = self.read(header::LINK_ADDRESS) as *mut u64;
        if address.is_null() {
            return None;
        }
        // SAFETY: the link cells are two words, valid by the contract of `new`.
        Some(unsafe { NativeCell::new(address.wrapping_add(writing as usize)) })
    }

    /// Makes the media durable; false if the machine could not.
    ///
    /// Media in memory need nothing. A file mapped by the host is written to its disk.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn persist(self) -> bool {
        let [address, size] = self.read_pair(header::MEDIA);
        if self.read(header::MEDIA_IS_FILE) == 0 || size == 0 {
            return true;
        }
        // SAFETY: the media are a mapping of `size` bytes by the contract of `new`; msync only
        // writes its pages back.
        let result = unsafe {
            rustix::mm::msync(
                address as *mut _,
                size as usize,
                rustix::mm::MsyncFlags::SYNC,
            )
        };
        result.is_ok()
    }

    /// Makes the media durable: GPU memory and pinned memory need nothing.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn persist(self) -> bool {
        true
    }
}

/// The DMA ranges of a controller, with the last range found.
#[derive(Clone, Copy)]
pub(crate) struct DmaRanges {
    image: Image,
    start: u64,
    end: u64,
}

impl DmaRanges {
    /// The ranges that are mapped at `image`'s controller.
    #[inline(always)]
    pub(crate) fn of(image: Image) -> Self {
        Self {
            image,
            start: 0,
            end: 0,
        }
    }

    /// The `len` bytes at `address`, if one mapped range holds them all.
    #[inline(always)]
    pub(crate) fn span(&mut self, address: u64, len: u64) -> Option<Span> {
        let span = Span { address, len };
        if span.inside(self.start, self.end) {
            return Some(span);
        }
        let count = self.image.read(header::RANGES);
        let mut index = 0;
        while index < count {
            let [start, end] = self.image.read_pair(layout::range(index));
            if span.inside(start, end) {
                self.start = start;
                self.end = end;
                return Some(span);
            }
            index += 1;
        }
        None
    }
}

/// Memory that was checked to be within the controller's reach.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    address: u64,
    len: u64,
}

impl Span {
    /// No memory.
    pub(crate) const EMPTY: Self = Self { address: 0, len: 0 };

    #[inline(always)]
    fn inside(self, start: u64, end: u64) -> bool {
        self.address >= start && self.address <= end && self.len <= end - self.address
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
}

/// The models that one service carries, and its stop word.
///
/// Plain data: stands in kernel parameters as it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Service {
    images: *const u64,
    count: u64,
    stop: *mut u32,
    deadline_ns: u64,
}

// SAFETY: addresses; accesses through them are atomic or of words that nobody writes.
unsafe impl Send for Service {}
// SAFETY: as for Send.
unsafe impl Sync for Service {}

impl Service {
    /// Serves the `count` images whose addresses stand at `images`, until the word at `stop` is
    /// not zero or the clock ([`Platform::now_ns`]) passes `deadline_ns`.
    ///
    /// # Safety
    /// Each of the addresses satisfies [`Image::new`]. The table does not change. `stop` is an
    /// aligned word that this agent can read and others may write. All outlive the service.
    pub const unsafe fn new(
        images: *const u64,
        count: u64,
        stop: *mut u32,
        deadline_ns: u64,
    ) -> Self {
        Self {
            images,
            count,
            stop,
            deadline_ns,
        }
    }

    /// Number of models.
    #[inline(always)]
    pub(crate) fn count(self) -> u64 {
        self.count
    }

    /// The image of model `index`, below [`Service::count`].
    #[inline(always)]
    pub(crate) fn image(self, index: u64) -> Image {
        let entry = self.images.wrapping_add(index as usize).cast_mut();
        // SAFETY: the table is valid by the contract of `new`.
        let address = unsafe { NativeCell::<u64, Device>::new(entry) }.load(Order::Relaxed);
        Image {
            words: address as *mut u64,
        }
    }

    /// True once the service has to end.
    #[inline(always)]
    pub(crate) fn is_over(self) -> bool {
        // SAFETY: the stop word is valid by the contract of `new`.
        let stop = unsafe { NativeCell::<u32, System>::new(self.stop) }.load(Order::Relaxed);
        stop != 0 || Native::now_ns() >= self.deadline_ns
    }
}

/// Zeroed words that agents share, 128-byte aligned: an image, or doorbells, in host memory.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) struct SharedWords {
    lines: Box<[Line]>,
}

/// The words of one cache-line pair.
#[cfg(not(target_arch = "nvptx64"))]
#[repr(align(128))]
#[derive(Default)]
struct Line([core::sync::atomic::AtomicU64; 16]);

#[cfg(not(target_arch = "nvptx64"))]
impl SharedWords {
    /// At least `words` zeros.
    pub(crate) fn zeroed(words: u64) -> Self {
        let lines = words.div_ceil(16) as usize;
        Self {
            lines: (0..lines).map(|_| Line::default()).collect(),
        }
    }

    /// Address of the first word.
    pub(crate) fn address(&self) -> u64 {
        self.lines.as_ptr().expose_provenance() as u64
    }

    /// Word `index`.
    pub(crate) fn word(&self, index: u64) -> &core::sync::atomic::AtomicU64 {
        &self.lines[index as usize / 16].0[index as usize % 16]
    }

    /// The 32-bit word at byte `offset`, a multiple of 4.
    pub(crate) fn half(&self, offset: u64) -> u32 {
        self.half_cell(offset).load(Order::Relaxed)
    }

    /// Sets the 32-bit word at byte `offset`, a multiple of 4.
    pub(crate) fn set_half(&self, offset: u64, value: u32) {
        self.half_cell(offset).store(value, Order::Relaxed);
    }

    fn half_cell(&self, offset: u64) -> NativeCell<u32, System> {
        let inside = offset.is_multiple_of(4) && offset < self.lines.len() as u64 * 128;
        assert!(inside, "no 32-bit word at byte {offset}");
        // SAFETY: aligned and inside, as just checked; atomics may be written through a shared
        // reference.
        unsafe { NativeCell::new((self.address() + offset) as *mut u32) }
    }

    /// The image that lies in these words.
    pub(crate) fn image(&self) -> Image {
        // Atomics may be written through a shared reference, so through this pointer too.
        Image {
            words: self.lines.as_ptr().cast_mut().cast(),
        }
    }
}
