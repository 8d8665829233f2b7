//! A whole line, held while a warp changes it, and whole lines that are written without being read.

use core::cell::Cell as Flag;
use core::ops::Deref;

use warpstore_simt::{Lanes, Native, Platform, Team, warp};

use crate::access::Chunk;
use crate::array::Element;
use crate::array_mut::ArrayMut;
use crate::bounce::{self, Share};
use crate::bytes;
use crate::change::overwrite;
use crate::error::{ErrorKind, IoError};
use crate::finish::Finisher;
use crate::line::{ForLine, Line};
use crate::plan::{by_queue, kind_of};

/// The elements of one line, while the closure of [`ArrayMut::line_mut`] runs. It cannot leave it.
pub struct LineMut<'held, T> {
    line: Line<'held, T>,
    array: ArrayMut<T>,
    /// Whether the line is a buffer beside the cache, and not the slot that everybody sees.
    is_copy: bool,
    /// Whether this lane has changed the slot.
    changed: Flag<bool>,
}

impl<'held, T> Deref for LineMut<'held, T> {
    type Target = Line<'held, T>;
    #[inline(always)]
    fn deref(&self) -> &Line<'held, T> {
        &self.line
    }
}

impl<T: Element> LineMut<'_, T> {
    /// Writes the element at `index` of the array. Per lane.
    ///
    /// # Errors
    /// `index` lies in another line; or the line found no room in the cache, so that each write of
    /// it is one of the SSD, and that failed.
    #[inline(always)]
    pub fn set(&self, index: u64, value: T) -> Result<(), IoError> {
        if !self.line.store(index, value) {
            return Err(IoError::out_of_range(index));
        }
        if self.is_copy {
            return self.array.set(index, value);
        }
        self.changed.set(true);
        Ok(())
    }
}

impl<T: Element> ArrayMut<T> {
    /// Holds the line of element `index` while `body` reads and writes it: as
    /// [`Array::line`](crate::Array::line), whose documentation says who takes part and when.
    ///
    /// The line is not locked: other lanes see each [`LineMut::set`] at once, and theirs are seen
    /// here; a line that found no room in the cache is read once, at the beginning. Inside, take no
    /// second line: each uses one of the buffers that lines without room need, and lanes that wait
    /// for one another's run into their deadlines.
    ///
    /// # Errors
    /// `index` is outside the array, or the SSD or its queue failed. `body` has not run then.
    #[inline(always)]
    pub fn line_mut<R>(
        &self,
        index: u64,
        body: impl FnOnce(&LineMut<'_, T>) -> R,
    ) -> Result<R, IoError> {
        let array = *self;
        self.each_line(index, HeldMut { array, index, body })
    }

    /// Writes every element of the line of element `index`, without reading it from the SSD:
    /// `values` gives the element for each index. A line that is not resident is written straight
    /// to the SSD. Collective over the whole warp, whose lanes share the elements among them; the
    /// line is that of lane 0. `values` may read arrays.
    ///
    /// # Errors
    /// Warp-uniform: `index` is outside the array, `values` returned an error in some lane (nothing
    /// is written then), or the SSD or its queue failed.
    #[inline(always)]
    pub fn write_line(
        &self,
        index: u64,
        values: impl Fn(u64) -> Result<T, IoError>,
    ) -> Result<(), IoError> {
        let team = Lanes::WARP;
        let index = team.broadcast(index);
        if index >= self.len() {
            return Err(IoError::out_of_range(index));
        }
        let (store, line) = (self.store(), self.line_of(index));
        let buffer = self.take_buffer(team, line)?;
        let filled = self.fill(team, buffer, index, &values);
        // One lane's error is everybody's: the line is written whole or not at all.
        let failed = team.ballot(filled.is_err());
        // [WB-1] All have filled their part before it is copied or written.
        team.sync();
        let ended = if failed != 0 {
            let error = filled.map_or_else(IoError::to_bits, |()| 0);
            let error = team.shuffle(error, warp::leader(failed));
            Chunk {
                error,
                ..Chunk::default()
            }
        } else {
            overwrite(store, line, buffer, team)
        };
        let error = IoError::from_bits(ended.error);
        // A write that was under way and never came back may still read the buffer.
        let is_over = matches!(error.map(IoError::kind), None | Some(ErrorKind::Status));
        if (is_over || ended.high == 0) && team.leads() {
            bounce::put_back(store.desc().bounce_words, buffer);
        }
        error.map_or(Ok(()), Err)
    }

    /// Waits for a buffer. Collective over `team`.
    #[inline(always)]
    fn take_buffer<L: Team>(&self, team: L, line: u64) -> Result<u64, IoError> {
        let store = self.store();
        let desc = store.desc();
        let share = Share::of(desc.bounce.count, true);
        let patience = store.patience();
        let mut turn = 0;
        loop {
            let mut taken = 0;
            if team.leads() {
                taken = bounce::take(desc.bounce_words, share, turn).map_or(0, |b| b + 1);
            }
            let taken = team.broadcast(taken);
            if taken != 0 {
                return Ok(taken - 1);
            }
            let queue = store.any_queue(turn);
            by_queue(team, queue, |peers| {
                store.queue(queue).drain(peers, &Finisher { store, queue });
            });
            let ended = patience.exhausted().map_or(0, kind_of);
            let ended = team.max(u32::from(ended)) as u16;
            if ended != 0 {
                let (kind, status) = (ErrorKind::from_code(ended), nvme_wire::Status::SUCCESS);
                let own = store.home_queue(store.route(line).ssd);
                return Err(IoError::new(kind, status, own, line));
            }
            Native::pause(turn);
            turn = turn.wrapping_add(1);
        }
    }

    /// Fills the buffer, each lane its share of the elements; zeros behind the array's end.
    #[inline(always)]
    fn fill<L: Team>(
        &self,
        team: L,
        buffer: u64,
        index: u64,
        values: &impl Fn(u64) -> Result<T, IoError>,
    ) -> Result<(), IoError> {
        let pool = &self.store().desc().bounce;
        let first = self.first_index_of_line(index);
        let elements = (1u64 << pool.shift) / size_of::<T>() as u64;
        let mut nth = u64::from(team.rank());
        while nth < elements {
            let index = first + nth;
            let value = if index < self.len() {
                bytes::to_bits(values(index)?)
            } else {
                [0; 2]
            };
            let at = (buffer << pool.shift) + nth * size_of::<T>() as u64;
            bytes::store::<T>(pool.memory, at, value);
            nth += u64::from(team.size());
        }
        Ok(())
    }
}

/// To run a closure on a line that it may change.
struct HeldMut<T, F> {
    array: ArrayMut<T>,
    index: u64,
    body: F,
}

impl<T: Element, R, F: FnOnce(&LineMut<'_, T>) -> R> ForLine<R> for HeldMut<T, F> {
    #[inline(always)]
    fn run<L: Team>(self, team: L, line: u64) -> Result<R, IoError> {
        let Self { array, index, body } = self;
        array.with_line::<L, R, true>(team, line, index, |held, is_copy| {
            let line = LineMut {
                line: held,
                array,
                is_copy,
                changed: Flag::new(false),
            };
            let result = body(&line);
            (result, line.changed.get())
        })
    }
}
