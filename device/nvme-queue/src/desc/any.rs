//! A queue pair from its description, with whichever protocol it was made for.

use core::marker::PhantomData;

use nvme_wire::Sqe;
use warpstore_simt::{Cell, Device, Native, NativeCell, Order, Team};

use super::{DEAD, Memory, QueueDesc};
use crate::{Bam, Finish, Locked, Patience, Protocol, Queue, QueueError, Reason, Ticket, Wide};

/// A queue pair of a session, whose protocol the host chose.
///
/// The functions are those of [`Queue`]. Its code is inlined; that of the baselines is called, so that
/// each is there once.
#[derive(Clone, Copy)]
pub struct AnyQueue<'desc, W: Ticket = Wide> {
    desc: &'desc QueueDesc,
    width: PhantomData<W>,
}

impl<'desc, W: Ticket> AnyQueue<'desc, W> {
    /// The queue pair that `desc` describes.
    ///
    /// # Safety
    /// As [`Queue::from_desc`], for every protocol.
    #[inline(always)]
    pub unsafe fn from_desc(desc: &'desc QueueDesc) -> Self {
        Self {
            desc,
            width: PhantomData,
        }
    }

    /// Submits one command for every lane of `team`, as [`Queue::submit`] does. With
    /// [`Protocol::Bam`] it has also been finished when the call returns.
    ///
    /// # Errors
    /// As [`Queue::submit`], the same for all lanes.
    #[inline(always)]
    pub fn submit<T: Team, F: Finish + Copy>(
        self,
        team: T,
        sqe: Sqe,
        tag: u64,
        finish: &F,
        patience: &Patience<Native>,
    ) -> Result<(), QueueError> {
        let result = self.submit_each(team, sqe, tag, finish, patience);
        if self.protocol() == Protocol::Hop {
            return result;
        }
        Reason::of_any(team, result.map_err(|error| error.reason), self.id())
    }

    /// As [`AnyQueue::submit`], for callers that need no uniform result: with the baselines each lane
    /// gets its own, and each may be at a queue of its own ([`Protocol::is_per_lane`]).
    ///
    /// # Errors
    /// As [`Queue::submit`].
    #[inline(always)]
    pub fn submit_each<T: Team, F: Finish + Copy>(
        self,
        team: T,
        sqe: Sqe,
        tag: u64,
        finish: &F,
        patience: &Patience<Native>,
    ) -> Result<(), QueueError> {
        if self.protocol() == Protocol::Hop {
            return self.hop().submit(team, sqe, tag, finish, patience);
        }
        let code = submit_alone::<W, F>(self.desc, sqe.to_words(), tag, *finish, *patience);
        // The lanes go on together, as they came.
        team.sync();
        match Reason::from_code(code) {
            None => Ok(()),
            Some(reason) => Err(QueueError {
                queue: self.id(),
                reason,
            }),
        }
    }

    /// Takes CQEs that have arrived, as [`Queue::drain`] does; with [`Protocol::Bam`] none, since
    /// every thread takes its own.
    #[inline(always)]
    pub fn drain<T: Team, F: Finish + Copy>(self, team: T, finish: &F) -> u32 {
        match self.protocol() {
            Protocol::Hop => self.hop().drain(team, finish),
            Protocol::Bam => 0,
            Protocol::Lock => {
                let took = drain_alone::<W, F>(self.desc, *finish);
                team.ballot(took != 0).count_ones()
            }
        }
    }

    /// Identifier of the submission queue.
    #[inline(always)]
    pub fn id(self) -> u16 {
        self.desc.id
    }

    /// How commands enter it.
    #[inline(always)]
    pub fn protocol(self) -> Protocol {
        Protocol::from_code(self.desc.protocol)
    }

    /// Gives the queue up: all waits for it end, and no later submission succeeds.
    #[inline(always)]
    pub fn kill(self) {
        // Ordering: [SQ-8] the word carries no data.
        self.dead().store(1, Order::Relaxed);
    }

    /// True once the queue has been given up.
    #[inline(always)]
    pub fn is_dead(self) -> bool {
        // Ordering: [SQ-8] the word carries no data.
        self.dead().load(Order::Relaxed) != 0
    }

    /// In the same place for every protocol.
    #[inline(always)]
    fn dead(self) -> NativeCell<u32, Device> {
        Memory(()).cell(self.desc.words + DEAD * 8)
    }

    #[inline(always)]
    fn hop(self) -> Queue<Native, W> {
        // SAFETY: the caller of `from_desc` vouched for the description.
        unsafe { Queue::from_desc(self.desc) }
    }
}

/// 0, or the reason why the command was not submitted.
#[cold]
#[inline(never)]
fn submit_alone<W: Ticket, F: Finish>(
    desc: &QueueDesc,
    sqe: [u64; 8],
    tag: u64,
    finish: F,
    patience: Patience<Native>,
) -> u32 {
    let sqe = Sqe::from_words(sqe);
    let result = if Protocol::from_code(desc.protocol) == Protocol::Bam {
        // SAFETY: only `AnyQueue` calls this, with its description.
        let queue = unsafe { Bam::<Native, W>::from_desc(desc) };
        queue.submit_alone(sqe, tag, &finish, &patience)
    } else {
        // SAFETY: as above.
        let queue = unsafe { Locked::<Native, W>::from_desc(desc) };
        queue.submit_alone(sqe, tag, &finish, &patience)
    };
    match result {
        Ok(()) => 0,
        Err(reason) => reason as u32,
    }
}

/// Whether a lane took a CQE under the lock.
#[cold]
#[inline(never)]
fn drain_alone<W: Ticket, F: Finish>(desc: &QueueDesc, finish: F) -> u32 {
    // SAFETY: only `AnyQueue` calls this, with its description.
    let queue = unsafe { Locked::<Native, W>::from_desc(desc) };
    u32::from(queue.drain_alone(&finish))
}
