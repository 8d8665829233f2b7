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

mod admin;
mod configuration;
mod doorbells;
mod identify;
mod image;
mod power;
mod queues;
mod ranges;
mod registers;
mod serving;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use configuration::{Configuration, ConfigurationError, Namespace};
pub use doorbells::LentDoorbells;
pub use image::Placement;
pub use ranges::MapError;
pub use serving::Serving;

use crate::Media;
use crate::layout::{fault, fault_rule, header, record, record_of};
use crate::memory::{Image, SharedWords};
use crate::profile::Link;
use crate::service::{Counter, step};
use crate::write_cache::WriteCache;
use admin::AdminQueue;
use doorbells::Doorbells;
use queues::Queues;
use registers::Registers;

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
