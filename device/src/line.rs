//! A whole line, held while a warp uses it.

use core::marker::PhantomData;
use core::ops::Range as Indices;

use warpstore_simt::{Device, Lanes, NativeBytes, Solo, Team, warp};

use crate::access::Chunk;
use crate::array::{Array, Element};
use crate::bytes;
use crate::error::IoError;
use crate::fetch;

/// The elements of one line, while the closure of [`Array::line`] runs. It cannot leave it.
pub struct Line<'held, T> {
    memory: NativeBytes<Device>,
    /// Byte of `memory` at which the line begins.
    start: u64,
    indices: Indices<u64>,
    lanes: u32,
    held: PhantomData<&'held T>,
}

impl<T: Element> Line<'_, T> {
    /// The indices of the array's elements that lie in this line.
    #[inline(always)]
    pub fn indices(&self) -> Indices<u64> {
        self.indices.clone()
    }

    /// The lanes that hold the line together: the mask for collectives inside the closure.
    #[inline(always)]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The element at `index` of the array, or `None` if it lies in another line. Per lane.
    #[inline(always)]
    pub fn get(&self, index: u64) -> Option<T> {
        let at = self.byte_of(index)?;
        Some(bytes::from_bits(bytes::load::<T>(self.memory, at)))
    }

    /// Writes the element at `index`; false if it lies in another line.
    #[inline(always)]
    pub(crate) fn store(&self, index: u64, value: T) -> bool {
        let Some(at) = self.byte_of(index) else {
            return false;
        };
        bytes::store::<T>(self.memory, at, bytes::to_bits(value));
        true
    }

    #[inline(always)]
    fn byte_of(&self, index: u64) -> Option<u64> {
        if index < self.indices.start || index >= self.indices.end {
            return None;
        }
        Some(self.start + (index - self.indices.start) * size_of::<T>() as u64)
    }
}

impl<T: Element> Array<T> {
    /// Holds the line of element `index` while `body` uses it. Reads inside need no atomic and no
    /// validation.
    ///
    /// Any lanes may call. If a whole warp comes together, its lanes that want the same line share
    /// one pin and run `body` together ([`Line::lanes`]), and those that want another line take
    /// their turn after them; otherwise each lane is alone. The line is let go when each of its
    /// lanes has left the closure, so an early return inside it leaves nobody waiting. A line
    /// that finds no slot in the cache is held in a buffer beside it.
    ///
    /// # Errors
    /// `index` is outside the array, or the SSD or its queue failed. `body` has not run then.
    #[inline(always)]
    pub fn line<R>(&self, index: u64, body: impl FnOnce(&Line<'_, T>) -> R) -> Result<R, IoError> {
        let array = *self;
        self.each_line(index, Held { array, index, body })
    }

    /// Runs `body` once in every lane, for the line of element `index` and with those that want the
    /// same line: the lanes of a whole warp that comes together, line by line; else each alone.
    #[inline(always)]
    pub(crate) fn each_line<R>(&self, index: u64, body: impl ForLine<R>) -> Result<R, IoError> {
        if index >= self.len() {
            return Err(IoError::out_of_range(index));
        }
        let line = self.line_of(index);
        if warp::active_mask() != Lanes::WARP.0 {
            return body.run(Solo, line);
        }
        let all = Lanes::WARP;
        let (mut left, mut body, mut result) = (all.mask(), Some(body), None);
        while left != 0 {
            let first = all.shuffle(line, warp::leader(left));
            let lanes = all.ballot(line == first);
            if line == first
                && let Some(body) = body.take()
            {
                result = Some(body.run(all.part(lanes), line));
            }
            all.sync();
            left &= !lanes;
        }
        // Every lane has had its turn.
        result.unwrap_or(Err(IoError::out_of_range(index)))
    }

    /// Holds `line` for `team`, which all want it, and runs `body` in each of its lanes: with the
    /// line, and whether that is a copy beside the cache. If (`WRITES`) a lane says that it has
    /// changed the slot, the line gets dirty.
    #[inline(always)]
    pub(crate) fn with_line<L: Team, R, const WRITES: bool>(
        &self,
        team: L,
        line: u64,
        index: u64,
        body: impl FnOnce(Line<'_, T>, bool) -> (R, bool),
    ) -> Result<R, IoError> {
        let held = fetch::hold(self.store(), line, team);
        if let Some(error) = IoError::from_bits(held.error) {
            return Err(error);
        }
        let (result, changed) = body(self.held_line(held, index, team.mask()), held.high != 0);
        // [WB-1] All have written what they write before the leader says so.
        let changed = WRITES && team.any(changed);
        team.sync();
        if team.leads() {
            if changed {
                self.store().desc().table.soil(line);
            }
            fetch::let_go(self.store(), line, held);
        }
        Ok(result)
    }

    #[inline(always)]
    fn held_line(&self, held: Chunk, index: u64, lanes: u32) -> Line<'_, T> {
        let desc = self.store().desc();
        let pool = if held.high == 0 {
            &desc.slots
        } else {
            &desc.bounce
        };
        let first = self.first_index_of_line(index);
        let elements = (1u64 << pool.shift) / size_of::<T>() as u64;
        let end = if first + elements < self.len() {
            first + elements
        } else {
            self.len()
        };
        Line {
            memory: pool.memory,
            start: held.low << pool.shift,
            indices: first..end,
            lanes,
            held: PhantomData,
        }
    }
}

/// What lanes do with a line that they want together.
pub(crate) trait ForLine<R> {
    /// Does it in one lane of `team`, all of which want `line`.
    fn run<L: Team>(self, team: L, line: u64) -> Result<R, IoError>;
}

/// To run a closure on it.
struct Held<T, F> {
    array: Array<T>,
    index: u64,
    body: F,
}

impl<T: Element, R, F: FnOnce(&Line<'_, T>) -> R> ForLine<R> for Held<T, F> {
    #[inline(always)]
    fn run<L: Team>(self, team: L, line: u64) -> Result<R, IoError> {
        let Self { array, index, body } = self;
        array.with_line::<L, R, false>(team, line, index, |held, _| (body(&held), false))
    }
}
