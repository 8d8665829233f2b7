//! Reading by reference counts: the baselines that the optimistic read is measured against.
//!
//! ```text
//!  naive       count in ─ load ─ count out                        each lane, for its own access
//!  bam         the lanes of a whole warp that want one line: one of them counts in for all, and out
//!  bam+reuse   the same, but each lane's last line stays counted until the lane wants another one
//! ```
//!
//! BaM (ASPLOS '23) reads so: a naive cache, the coalescer, and the kept reference of its "optimized"
//! kernels. A count is one addition to the line's word, made before looking ([RC-1]). Lanes coalesce
//! only as a whole warp, whose mask needs no care ([HW-2]); a lane without its warp is as in `naive`. There are no
//! counters of hits and misses, which cost BaM most of its speed.
//!
//! A kernel that is measured in every cache mode has one body, generic over [`Reader`], and an
//! entry for each mode, so that a hit is inlined in each. Misses, and whatever writes, are the same code as
//! everywhere; there `naive` differs in that lanes which miss one line do not share the work for it
//! ([`CacheMode`](crate::CacheMode)).

use core::marker::PhantomData;

use line_cache::{Look, Meta};
use warpstore_simt::{Device, Lanes, NativeBytes, Solo, Team, warp};

use crate::array::{Array, Element};
use crate::bytes;
use crate::error::IoError;
use crate::range::Range;

/// A way to read the elements of an array. Per lane; a reader is a lane's own.
pub trait Reader<T: Element> {
    /// Number of elements.
    fn len(&self) -> u64;

    /// True if there is no element.
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads element `index`.
    ///
    /// # Errors
    /// As [`Array::get`].
    fn get(&mut self, index: u64) -> Result<T, IoError>;

    /// The 16 bytes around element `index`, which is in range.
    ///
    /// # Errors
    /// As [`Array::get`].
    fn chunk(&mut self, index: u64) -> Result<[u64; 2], IoError>;

    /// The elements at `indices`, as [`Array::range`].
    #[inline(always)]
    fn range(&mut self, indices: core::ops::Range<u64>) -> Range<T, &mut Self>
    where
        Self: Sized,
    {
        Range::new(self, indices)
    }
}

impl<T: Element> Reader<T> for Array<T> {
    #[inline(always)]
    fn len(&self) -> u64 {
        Array::len(self)
    }

    #[inline(always)]
    fn get(&mut self, index: u64) -> Result<T, IoError> {
        Array::get(self, index)
    }

    #[inline(always)]
    fn chunk(&mut self, index: u64) -> Result<[u64; 2], IoError> {
        Array::chunk(self, index)
    }
}

impl<T: Element, R: Reader<T>> Reader<T> for &mut R {
    #[inline(always)]
    fn len(&self) -> u64 {
        R::len(self)
    }

    #[inline(always)]
    fn get(&mut self, index: u64) -> Result<T, IoError> {
        R::get(self, index)
    }

    #[inline(always)]
    fn chunk(&mut self, index: u64) -> Result<[u64; 2], IoError> {
        R::chunk(self, index)
    }
}

/// A baseline's manner of counting.
pub trait Counting {
    /// Lanes of a whole warp that want one line count once.
    const COALESCES: bool;
    /// A lane's last line stays counted.
    const KEEPS: bool;
}

/// `naive`.
#[derive(Clone, Copy, Debug)]
pub struct Naive;
/// `bam`.
#[derive(Clone, Copy, Debug)]
pub struct Bam;
/// `bam+reuse`.
#[derive(Clone, Copy, Debug)]
pub struct BamReuse;

impl Counting for Naive {
    const COALESCES: bool = false;
    const KEEPS: bool = false;
}
impl Counting for Bam {
    const COALESCES: bool = true;
    const KEEPS: bool = false;
}
impl Counting for BamReuse {
    const COALESCES: bool = true;
    const KEEPS: bool = true;
}

/// No line.
const NONE: u64 = u64::MAX;

/// Reads an array by reference counts, in the manner of `M`.
pub struct Counted<T: Element, M: Counting> {
    array: Array<T>,
    /// The line that this lane has counted in for and keeps, or [`NONE`].
    kept: u64,
    /// Byte at which its slot begins.
    start: u64,
    manner: PhantomData<M>,
}

impl<T: Element, M: Counting> Counted<T, M> {
    /// A reader of `array` for this lane.
    #[inline(always)]
    pub fn of(array: Array<T>) -> Self {
        Self {
            array,
            kept: NONE,
            start: 0,
            manner: PhantomData,
        }
    }

    /// What `load` makes of the slots and the byte at which `line`'s begins, or None on a miss: then
    /// this lane has no line counted.
    #[inline(always)]
    fn hit(
        &mut self,
        line: u64,
        load: impl Fn(NativeBytes<Device>, u64) -> [u64; 2],
    ) -> Option<[u64; 2]> {
        if M::KEEPS && self.kept == line {
            return Some(load(self.array.slots, self.start));
        }
        // Lanes that want a kept line are not here, so what is left may be no whole warp.
        if M::COALESCES && warp::active_mask() == Lanes::WARP.0 {
            self.hit_with(Lanes::WARP, line, load)
        } else {
            self.hit_with(Solo, line, load)
        }
    }

    /// As `hit`, for lanes that came together. Collective over `team`.
    #[inline(always)]
    fn hit_with<L: Team>(
        &mut self,
        team: L,
        line: u64,
        load: impl Fn(NativeBytes<Device>, u64) -> [u64; 2],
    ) -> Option<[u64; 2]> {
        if M::KEEPS {
            self.let_go(team);
        }
        let (table, group) = (self.array.table, team.matching(line));
        let leader = warp::leader(group);
        let leads = leader == warp::lane_id();
        let mut word = 0;
        if leads && let Some(meta) = table.count_in(line, group.count_ones()) {
            word = meta.bits();
            table.touch(line, meta);
        }
        // [RC-3] The barrier passes the leader's acquire on to the lanes that read the bytes.
        team.sync();
        let meta = Meta::from_bits(team.shuffle(word, leader));
        let mut bits = None;
        if let Look::Hit(meta) = meta.look() {
            self.start = self.array.slot_byte(meta);
            bits = Some(load(self.array.slots, self.start));
        }
        if M::KEEPS {
            self.kept = if bits.is_some() { line } else { NONE };
            return bits;
        }
        // [RC-3] All have read before the leader counts out for all.
        team.sync();
        if leads && bits.is_some() {
            table.count_out(line, group.count_ones());
        }
        bits
    }

    /// Counts out of the kept line: [RC-4]. Collective over `team`.
    #[inline(always)]
    fn let_go<L: Team>(&mut self, team: L) {
        let group = team.matching(self.kept);
        // [RC-3] All have read before the leader counts out for all.
        team.sync();
        if self.kept != NONE && warp::leader(group) == warp::lane_id() {
            self.array.table.count_out(self.kept, group.count_ones());
        }
        self.kept = NONE;
    }
}

impl<T: Element, M: Counting> Reader<T> for Counted<T, M> {
    #[inline(always)]
    fn len(&self) -> u64 {
        self.array.len()
    }

    #[inline(always)]
    fn get(&mut self, index: u64) -> Result<T, IoError> {
        if index >= self.array.len() {
            return Err(IoError::out_of_range(index));
        }
        let place = self.array.place(index);
        let load = |slots, start| bytes::load::<T>(slots, start + place.offset);
        match self.hit(place.line, load) {
            Some(bits) => Ok(bytes::from_bits(bits)),
            None => self.array.miss(place),
        }
    }

    #[inline(always)]
    fn chunk(&mut self, index: u64) -> Result<[u64; 2], IoError> {
        let place = self.array.place(index);
        let offset = place.offset & !15;
        let load = |slots: NativeBytes<Device>, start| slots.load_u128(start + offset);
        match self.hit(place.line, load) {
            Some(chunk) => Ok(chunk),
            None => self.array.miss_chunk(place.line, offset),
        }
    }
}

impl<T: Element, M: Counting> Drop for Counted<T, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // [RC-4] Wherever the lane leaves its kernel, its warp may be elsewhere.
        if M::KEEPS {
            self.let_go(Solo);
        }
    }
}
