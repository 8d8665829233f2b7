//! The table, as readers use it: look, read optimistically, wait.

use warpstore_simt::{Cell, Cells, Device, Order, Platform};

use crate::meta::{MAX_SLOTS, REF};
use crate::{Failure, Look, Meta, State};

/// How the second load of an optimistic read stays behind the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOrder {
    /// Acquire on the first load, a fence before the second: ordered by the memory model.
    Strict,
    /// The address of the second load depends on the data: ordered by the hardware, `[HW-1]`.
    /// Taken only where the code runs on an NVIDIA GPU; elsewhere it means Strict.
    Dependency,
}

/// Handles to the words of one cache. Copying it shares the cache.
#[derive(Clone, Copy)]
pub struct LineTable<P: Platform> {
    pub(crate) meta: P::Cells<u64, Device>,
    pub(crate) owner: P::Cells<u64, Device>,
    pub(crate) hand: P::Cell<u32, Device>,
    order: ReadOrder,
    zero: u64,
}

/// How the fetch ended that a reader waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The line is resident; the word is as good as one from [`LineTable::open`].
    Ready(Meta),
    /// The fetch failed.
    Failed(Failure),
    /// The line went on to something else meanwhile: look again.
    Changed,
}

impl<P: Platform> LineTable<P> {
    /// Takes the words of a cache, all of them zero at first.
    ///
    /// `meta`: one word a line of the backing store. `owner`: one word a slot, at most
    /// [`MAX_SLOTS`]; with none, nothing is ever resident. `hand`: the clock's.
    /// `zero` is 0, and comes from memory or a kernel parameter, so that the compiler cannot
    /// know it and fold the dependency of [`ReadOrder::Dependency`] away.
    #[inline(always)]
    pub fn new(
        meta: P::Cells<u64, Device>,
        owner: P::Cells<u64, Device>,
        hand: P::Cell<u32, Device>,
        order: ReadOrder,
        zero: u64,
    ) -> Self {
        debug_assert!(
            owner.len() <= u64::from(MAX_SLOTS),
            "a slot index has 28 bits"
        );
        debug_assert!(zero == 0, "`zero` shifts the table's index");
        Self {
            meta,
            owner,
            hand,
            order,
            zero,
        }
    }

    /// Number of lines.
    #[inline(always)]
    pub fn lines(self) -> u64 {
        self.meta.len()
    }

    /// Number of slots.
    #[inline(always)]
    pub fn slots(self) -> u32 {
        self.owner.len() as u32
    }

    /// What the line is doing, by one relaxed load: enough to decide, not to read the bytes.
    #[inline(always)]
    pub fn look(self, line: u64) -> Look {
        self.peek(line).look()
    }

    /// The line's word, by one relaxed load.
    #[inline(always)]
    pub fn peek(self, line: u64) -> Meta {
        // Ordering: relaxed; whoever goes on to the bytes opens, pins or waits.
        Meta::from_bits(self.meta.at(line).load(Order::Relaxed))
    }

    /// Begins an optimistic read: returns the line's word. If it is a hit, load what you need
    /// from its slot, relaxed, and believe it only if [`LineTable::validate`] says so.
    #[inline(always)]
    pub fn open(self, line: u64) -> Meta {
        // Ordering: [LC-1] pairs with the release of `publish`; [HW-1] on the other path,
        // where the slot's address depends on this load.
        let order = if self.is_strict() {
            Order::Acquire
        } else {
            Order::Relaxed
        };
        Meta::from_bits(self.meta.at(line).load(order))
    }

    /// Ends an optimistic read: true if the slot held the bytes of `opened` all along.
    ///
    /// `bits` has to depend on everything that was loaded, for instance the values or-ed
    /// together; it carries the dependency of [`ReadOrder::Dependency`].
    #[inline(always)]
    pub fn validate(self, line: u64, opened: Meta, bits: u64) -> bool {
        let again = if self.is_strict() {
            // Ordering: [LC-2] pairs with the fence between an eviction and the overwriting.
            P::fence::<Device>(Order::Acquire);
            line
        } else {
            // Ordering: [HW-1] the load cannot issue before its address is known.
            line.wrapping_add(bits & self.zero)
        };
        opened.same_bytes(Meta::from_bits(self.meta.at(again).load(Order::Relaxed)))
    }

    /// Notes that the line was read. `meta` is the word already loaded: if the note is there,
    /// nothing is done, so a hot line costs no atomic.
    #[inline(always)]
    pub fn touch(self, line: u64, meta: Meta) {
        if !meta.is_referenced() {
            // Ordering: [LC-9] relaxed; whatever the line has become, REF is only a hint.
            self.meta.at(line).fetch_or(REF, Order::Relaxed);
        }
    }

    /// Polls for the end of the fetch that the line was found BUSY with, in version `version`.
    /// None: still fetching. The caller pauses, drains and keeps the deadline.
    ///
    /// A reader that slept through a failure and a new claim waits for the new fetch, and gets
    /// its outcome.
    #[inline(always)]
    pub fn settled(self, line: u64, version: u16) -> Option<Outcome> {
        // Ordering: relaxed, as every acquire empties the SM's L1; ordered below, once.
        let meta = Meta::from_bits(self.meta.at(line).load(Order::Relaxed));
        if meta.version() != version {
            return Some(Outcome::Changed);
        }
        match meta.state() {
            State::Busy => None,
            State::Valid => {
                // Ordering: [LC-1] with the load above, pairs with `publish`.
                P::fence::<Device>(Order::Acquire);
                Some(Outcome::Ready(meta))
            }
            State::Failed => Some(Outcome::Failed(meta.failure())),
            State::Invalid => Some(Outcome::Changed),
        }
    }

    /// Only the GPU may rely on `[HW-1]`: compilers and other machines promise nothing.
    #[inline(always)]
    fn is_strict(self) -> bool {
        !cfg!(target_arch = "nvptx64") || self.order == ReadOrder::Strict
    }
}
