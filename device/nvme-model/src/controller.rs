//! The CPU's side of the controller: registers, DMA ranges and everything behind the admin queue.
//!
//! ```text
//! submitter ── write32(CC, AQA, …) ──► Controller ── step_admin ──► Identify, Create I/O SQ, …
//!     │                                    │ image: queues, namespaces, ranges
//!     └── doorbell memory ─────────────► serve / step (I/O queues)
//! ```
//!
//! Lifetime of a queue in the image: the controller writes its record, then makes the record's
//! generation odd; the service adopts it. On deletion the generation becomes even, and the
//! deletion completes when the service has adopted that too, so nothing is posted afterwards.
#![allow(
    unsafe_code,
    reason = "the caller vouches for memory that commands will name"
)]
// UNSAFETY: one unsafe function without unsafe operations, `map_dma`: it records a range.

mod admin;
mod configuration;
mod doorbells;
mod identify;
mod power;
mod queues;
mod registers;
mod serving;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use configuration::{Configuration, ConfigurationError, Namespace};
pub use doorbells::LentDoorbells;
pub use serving::Serving;

use crate::Media;
use crate::layout::{
    self, MAX_RANGES, dma_range, fault, fault_rule, header, mode, namespace, namespace_entry,
    record, record_of,
};
use crate::memory::{Image, SharedWords};
use crate::profile::Link;
use crate::service::{Counter, step};
use crate::write_cache::WriteCache;
use admin::AdminQueue;
use doorbells::Doorbells;
use queues::Queues;
use registers::Registers;

/// IOVA and address of a byte agree in their place within this many bytes, so that whatever is
/// aligned by the one is so by the other.
const PAGE: u64 = 4096;

/// An emulated NVMe controller.
///
/// All methods may be called from any thread.
pub struct Controller {
    configuration: Configuration,
    words: SharedWords,
    doorbells: Doorbells,
    // Dropped before the media: it writes back what it holds.
    cache: Option<Box<WriteCache>>,
    media: Media,
    // Keeps the clocks alive that the image names.
    _link: Option<Link>,
    state: Mutex<State>,
}

/// What the registers and the admin queue change.
#[derive(Default)]
struct State {
    registers: Registers,
    admin: AdminQueue,
    queues: Queues,
}

/// A DMA range could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Too many ranges.
    #[error("{MAX_RANGES} DMA ranges are mapped already; map fewer, larger ranges")]
    Full,
    /// The range is empty or wraps around the address space.
    #[error("{len} bytes at {address:#x} are no range of addresses")]
    NoRange {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A part of it is mapped already.
    #[error("{len} bytes at {address:#x} overlap a range that is mapped; unmap it first")]
    Overlap {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
    /// IOVA and address differ in their place within a page.
    #[error(
        "IOVA {iova:#x} and address {address:#x} lie at different places of their pages of {PAGE} bytes"
    )]
    Unaligned {
        /// First IOVA.
        iova: u64,
        /// First address.
        address: u64,
    },
    /// No such range is mapped.
    #[error("{len} bytes at {address:#x} were not mapped in one piece; unmap what was mapped")]
    NotMapped {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Counters of one I/O queue pair since the controller was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Successful reads.
    pub reads: u64,
    /// Successful writes.
    pub writes: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Successful flushes.
    pub flushes: u64,
    /// Commands completed with an error.
    pub errors: u64,
    /// Doorbell values beyond their ring.
    pub bad_doorbells: u64,
}

/// Where the parts of an image lie that is served from elsewhere; see [`Controller::image`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Address of the media there, as long as the controller's own; 0 for no media.
    pub media: u64,
    /// Address of the link's two zeroed clock words there, shared by the controllers of one
    /// link; 0 for no link term.
    pub link: u64,
}

impl Controller {
    /// A controller in reset. `link` is shared with the other drives on it and used if the
    /// profile has a link term.
    ///
    /// # Errors
    /// [`ConfigurationError`] if the configuration contradicts itself or the media.
    pub fn new(
        configuration: Configuration,
        media: Media,
        link: Option<Link>,
        lent: Option<LentDoorbells>,
    ) -> Result<Self, ConfigurationError> {
        configuration.check(&media)?;
        let pending = configuration.pending_entries();
        let cache = if configuration.volatile_write_cache {
            WriteCache::over(&media)
                .map_err(|error| ConfigurationError::WriteCache(error.to_string()))?
        } else {
            None
        };
        let controller = Self {
            words: SharedWords::zeroed(configuration.image_words()),
            doorbells: Doorbells::new(configuration.queues, configuration.dstrd, lent),
            _link: link.clone(),
            state: Mutex::default(),
            configuration,
            cache: cache.map(Box::new),
            media,
        };
        controller.fill_image(link, pending);
        Ok(controller)
    }

    fn fill_image(&self, link: Option<Link>, pending: u64) {
        let image = self.image_here();
        let configuration = &self.configuration;
        image.write(header::QUEUES, configuration.queues as u64);
        image.write(header::PAGE, 4096);
        image.write(header::MAX_TRANSFER, configuration.max_transfer());
        image.write(header::NAMESPACES, configuration.namespaces.len() as u64);
        image.write(header::PENDING_MASK, pending - 1);
        let (media, bytes) = self.media.place();
        if self.media.is_file() {
            image.write(header::FILE, media);
        }
        let mut served = media;
        if let Some(cache) = &self.cache {
            let address = std::ptr::from_ref::<WriteCache>(cache).expose_provenance();
            image.write(header::WRITE_CACHE, address as u64);
            served = cache.view().address();
        }
        image.write_pair(header::MEDIA, [served, bytes]);
        let mut base = 0;
        for (nsid, space) in (1..).zip(&configuration.namespaces) {
            let entry = namespace_entry(nsid);
            image.write(entry + namespace::BASE, base);
            image.write(entry + namespace::LBAS, space.lbas);
            image.write(entry + namespace::SHIFT, space.lba_bytes.ilog2() as u64);
            base += space.lbas * space.lba_bytes as u64;
        }
        let profile = &configuration.profile;
        if configuration.is_timed() {
            image.write(header::MODE, mode::TIMED);
        }
        let faults = &configuration.faults;
        image.write(header::FAULTS, faults.rules.len() as u64);
        image.write(header::FAULT_SEED, faults.seed);
        if faults.has_late() {
            let late = layout::words(configuration.queues as u64, pending);
            image.write(header::LATE, late);
        }
        for (index, rule) in (0..).zip(&faults.rules) {
            for (word, value) in (fault_rule(index)..).zip(rule.to_words()) {
                image.write(word, value);
            }
        }
        for (word, value) in (header::OCCUPATION..).zip(profile.occupation_ns) {
            image.write(word, value);
        }
        for (word, value) in (header::MIN_LATENCY..).zip(profile.min_latency_ns) {
            image.write(word, value);
        }
        if let (Some(generation), Some(link)) = (profile.link, link) {
            image.write(header::LINK_PER_BYTE, generation.per_byte());
            image.write(header::LINK_ADDRESS, link.address());
        }
    }

    /// What the controller was made from.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Writes what the host put into the mapping of a media file to its disk; false if the machine
    /// could not. Other media need nothing.
    pub fn persist(&self) -> bool {
        self.image_here().persist()
    }

    /// Address and length of the media, both 0 without: to load it into other memory before a
    /// GPU serves it, and to write it back afterwards. With a volatile write cache these are the
    /// durable media, which nobody but the controller writes ([`Controller::load`]). Valid as
    /// long as the controller.
    pub fn media(&self) -> (u64, u64) {
        self.media.place()
    }

    /// Writes `bytes` to the media from byte `offset` on, as a factory would: not by commands,
    /// durable at once. Whoever reads or writes there meanwhile sees some of it.
    ///
    /// # Panics
    /// If they lie beyond the media, and if the media are lent: their owner writes them.
    pub fn load(&self, offset: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let inside = len <= self.media.place().1 && offset <= self.media.place().1 - len;
        assert!(inside, "the bytes lie beyond the media");
        assert!(
            !self.media.is_lent(),
            "lent media are written by their owner"
        );
        match &self.cache {
            Some(cache) => cache.load(offset, bytes),
            None => self.media.span().part(offset, len).fill(bytes),
        }
    }

    /// Makes `len` bytes at `address` reachable for commands and rings, which call them by IOVAs
    /// from `iova` on.
    ///
    /// # Errors
    /// [`MapError`] if there are too many ranges, the range is none or has IOVAs that are mapped.
    ///
    /// # Safety
    /// Until it is unmapped the memory is valid for atomic reads and writes by the agent that
    /// serves the I/O queues, and, if the admin queue, an admin command or a ring there names it,
    /// by the CPU.
    pub unsafe fn map_dma(&self, iova: u64, address: u64, len: u64) -> Result<(), MapError> {
        let no_range = |address| MapError::NoRange { address, len };
        let end = iova.checked_add(len).filter(|_| len != 0);
        let end = end.ok_or(no_range(iova))?;
        address.checked_add(len).ok_or(no_range(address))?;
        if !(iova ^ address).is_multiple_of(PAGE) {
            return Err(MapError::Unaligned { iova, address });
        }
        let _state = self.lock();
        let image = self.image_here();
        let count = image.read(header::RANGES);
        let mapped = |index| image.read_pair(layout::range(index) + dma_range::START);
        if (0..count).any(|index| mapped(index)[0] < end && iova < mapped(index)[1]) {
            return Err(MapError::Overlap { address: iova, len });
        }
        let free = (0..count).find(|&index| mapped(index) == [0; 2]);
        let index = free.unwrap_or(count);
        if index == MAX_RANGES {
            return Err(MapError::Full);
        }
        let range = layout::range(index);
        image.write(range + dma_range::OFFSET, address.wrapping_sub(iova));
        image.write_pair(range + dma_range::START, [iova, end]);
        // Ordering: release, so that a service which sees the new count sees the range.
        self.words
            .word(header::RANGES)
            .store(count.max(index + 1), Ordering::Release);
        Ok(())
    }

    /// Takes back a range as it was mapped. The submitter has no command in flight that names it.
    ///
    /// # Errors
    /// [`MapError::NotMapped`].
    pub fn unmap_dma(&self, iova: u64, len: u64) -> Result<(), MapError> {
        let range = [iova, iova.wrapping_add(len)];
        let _state = self.lock();
        let image = self.image_here();
        let mut firsts = (0..image.read(header::RANGES)).map(layout::range);
        let first = firsts
            .find(|first| len != 0 && image.read_pair(first + dma_range::START) == range)
            .ok_or(MapError::NotMapped { address: iova, len })?;
        image.write_pair(first + dma_range::START, [0; 2]);
        Ok(())
    }

    /// Address of the 32-bit doorbell at `offset` of the register space; `None` if there is none.
    /// Valid as long as the controller.
    pub fn doorbell_address(&self, offset: u64) -> Option<u64> {
        self.doorbells.address(offset)
    }

    /// Counters of the I/O queue pairs, queue 1 first.
    pub fn counters(&self) -> Vec<Counters> {
        (0..self.configuration.queues as u32)
            .map(|queue| self.counters_of(queue))
            .collect()
    }

    fn counters_of(&self, queue: u32) -> Counters {
        let first = record_of(queue) + record::COUNTERS;
        let counter = |counter: Counter| self.image_here().read(first + counter as u64);
        Counters {
            reads: counter(Counter::Reads),
            writes: counter(Counter::Writes),
            bytes: counter(Counter::Bytes),
            flushes: counter(Counter::Flushes),
            errors: counter(Counter::Errors),
            bad_doorbells: counter(Counter::BadDoorbells),
        }
    }

    /// How often each rule of the configuration's faults has hit, in their order.
    pub fn faults(&self) -> Vec<u64> {
        let hits = |index| {
            let rule = fault_rule(index);
            let limit = self.image_here().read(rule + fault::LIMIT);
            self.image_here().read(rule + fault::HITS).min(limit)
        };
        (0..self.configuration.faults.rules.len() as u64)
            .map(hits)
            .collect()
    }

    /// Serves the admin queue and every I/O queue once, with `now` (ns) as the time. True if
    /// anything was done. For tests and for callers that own the loop: not while a [`Serving`]
    /// or a GPU serves the controller, because a queue pair has one server.
    pub fn step(&self, now: u64) -> bool {
        let mut worked = self.step_admin();
        for queue in 0..self.configuration.queues as u32 {
            worked |= step::<1>(self.image_here(), queue, now);
        }
        worked
    }

    /// A copy of the image, to be served from another place: the words to put there, at a
    /// 128-byte aligned address that [`Image::new`] is then given.
    ///
    /// Take it when queues and DMA ranges are set up; changes made here later do not reach the
    /// copy. Stop serving the copy before queues are deleted or the controller is reset, and give
    /// its words to [`Controller::take_back`].
    ///
    /// # Panics
    /// If the controller has a volatile write cache, which only its own process can serve.
    pub fn image(&self, place: Placement) -> Vec<u64> {
        assert!(
            self.cache.is_none(),
            "a volatile write cache is served in its own process only"
        );
        let _state = self.lock();
        let mut copy: Vec<u64> = (0..self.configuration.image_words())
            .map(|index| self.image_here().read(index))
            .collect();
        let mut set = |word: u64, value| copy[word as usize] = value;
        set(header::SERVING, 0);
        set(header::MEDIA, place.media);
        set(header::FILE, 0);
        set(header::LINK_ADDRESS, place.link);
        if place.media == 0 {
            set(header::MEDIA_BYTES, 0);
        }
        copy
    }

    /// Takes over what a service elsewhere changed in its copy: positions, pending completions,
    /// clocks, counters, and whether a fault stopped it. The queues can then be served here.
    ///
    /// # Panics
    /// If `words` is shorter than what [`Controller::image`] gave.
    pub fn take_back(&self, words: &[u64]) {
        let _state = self.lock();
        let image = self.image_here();
        for instance in 0..layout::INSTANCES {
            let clock = layout::clock(instance);
            image.write(clock, words[clock as usize]);
        }
        let stopped = words[header::MODE as usize] & !mode::TIMED;
        self.words
            .word(header::MODE)
            .fetch_or(stopped, Ordering::Relaxed);
        for index in 0..layout::MAX_FAULTS {
            let hits = fault_rule(index) + fault::HITS;
            image.write(hits, words[hits as usize]);
        }
        for queue in 0..self.configuration.queues as u32 {
            let first = record_of(queue);
            image.write(
                first + record::ADOPTED,
                words[(first + record::ADOPTED) as usize],
            );
            for word in first + record::POSITION..first + record::WORDS {
                image.write(word, words[word as usize]);
            }
        }
        let queues = self.configuration.queues as u64;
        let pending = self.configuration.pending_entries();
        let first = layout::pending(queues, pending, 0, 0);
        for word in first..self.configuration.image_words() {
            image.write(word, words[word as usize]);
        }
    }

    /// The image in this process.
    pub(crate) fn image_here(&self) -> Image {
        self.words.image()
    }

    /// True if no service can still act on an older generation of the queue's record.
    fn is_quiet(&self, queue: u32) -> bool {
        let record = record_of(queue);
        // Ordering: the addition of 0 and a service's own addition to the word are ordered one
        // way or the other: either we see the service, or it sees our generation.
        let serving = self
            .words
            .word(header::SERVING)
            .fetch_add(0, Ordering::AcqRel);
        let adopted = self
            .words
            .word(record + record::ADOPTED)
            .load(Ordering::Acquire);
        serving == 0 || adopted == self.image_here().read(record + record::REQUESTED)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // State is changed by whole commands; a panic elsewhere leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
