//! The memory that a controller reaches: its own image, the rings, the submitters' buffers, the
//! media.
#![allow(
    unsafe_code,
    reason = "a controller reaches memory by address, as DMA does"
)]
// UNSAFETY: addresses enter through `Image::new`, whose caller vouches for all that the image
// names, and become a `Span` only after a bounds check; every access is bounded by its span.

#[cfg(not(target_arch = "nvptx64"))]
mod durable;
#[cfg(not(target_arch = "nvptx64"))]
mod shared;
mod span;

use warpstore_simt::{Cell, Device, Native, NativeCell, NativeCells, Order, Platform, System};

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use shared::SharedWords;
pub(crate) use span::{DmaRanges, Span};

use crate::layout::header;

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
            // SAFETY: inside the media, which are valid by the contract of `new`.
            Some(unsafe { Span::new(address.wrapping_add(offset), len) })
        } else {
            None
        }
    }

    /// The entries of one ring of a live queue: `address` is the record word that names it.
    #[inline(always)]
    pub(crate) fn ring(self, address: u64, entries: u32, entry_bytes: u32) -> Span {
        let len = entries as u64 * entry_bytes as u64;
        // SAFETY: the controller found the whole ring in a DMA range when it created the queue.
        unsafe { Span::new(self.read(address), len) }
    }

    /// The value of a doorbell: `address` is the record word that names it.
    #[inline(always)]
    pub(crate) fn doorbell(self, address: u64) -> u32 {
        let doorbell = self.read(address) as *mut u32;
        // SAFETY: the controller wrote the doorbell's address into the record: a register's, valid by the
        // contract of `new`, or a word of a DMA range, which stays mapped while the queue exists.
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
