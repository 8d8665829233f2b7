//! Getting what was written to the SSDs, for good: every dirty line, then a Flush of every SSD.
//!
//! Whole warps alone do this, in kernels of their own: nobody else writes meanwhile. A command's end is
//! watched in the word of a bounce buffer, so that its status reaches the lane that asked.

use line_cache::{Cleaning, Look};
use nvme_wire::{Sqe, Status};
use warpstore_simt::{Cell, Cells, Lanes, Native, Order, Platform, Team};

use crate::access::FAILURES_BEFORE_ERROR;
use crate::bounce::{self, Share};
use crate::error::{ErrorKind, IoError};
use crate::finish::{Finisher, Purpose};
use crate::launch::KernelParam;
use crate::plan::{by_queue, kind_of};
use crate::staging;
use crate::store::{Store, Transfer};

/// Writes a store's dirty lines back, and flushes its SSDs.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Flusher(Store);

#[allow(unsafe_code, reason = "marker impl for a plain handle")]
// UNSAFETY: an `unsafe impl` only; no memory is touched here.
mod parameter {
    use super::{Flusher, KernelParam};
    // SAFETY: repr(transparent) over an address of immutable data.
    unsafe impl KernelParam for Flusher {
        fn memory(&self) -> Option<(u64, u64)> {
            Some(self.0.place())
        }
    }
}

impl Flusher {
    /// The flusher of `store`.
    pub const fn of(store: Store) -> Self {
        Self(store)
    }

    /// Number of slots that may hold dirty lines.
    #[inline(always)]
    pub fn slots(&self) -> u64 {
        u64::from(self.0.desc().table.slots())
    }

    /// Number of SSDs.
    #[inline(always)]
    pub fn ssds(&self) -> u64 {
        u64::from(self.0.desc().map.ssds.get())
    }

    /// Writes the line in `slot` to its SSD if it is dirty, and waits for it. A write of it that is
    /// still in flight from before is waited for too, unless `hurry`: then it counts as timed out.
    /// Collective over the whole warp, each lane with a slot of its own; a slot that is not there
    /// is nothing to do.
    ///
    /// # Errors
    /// Per lane: the SSD or its queues failed. The line stays dirty, except after a time-out or an
    /// abort with its write under way: then no other write of it can follow, since that one may
    /// still come ([WB-2]).
    #[inline(always)]
    pub fn write_back(&self, slot: u64, hurry: bool) -> Result<(), IoError> {
        let task = Task::WriteBack {
            slot: if slot < self.slots() { slot } else { u64::MAX },
            hurry,
        };
        self.run(task)
    }

    /// Makes what was written to SSD `ssd` durable (NVMe Flush), and waits for it. Collective over
    /// the whole warp, each lane with an SSD of its own; one that is not there is nothing to do.
    ///
    /// # Errors
    /// Per lane: the SSD or its queue failed.
    #[inline(always)]
    pub fn flush(&self, ssd: u64) -> Result<(), IoError> {
        let there = ssd < self.ssds();
        let ssd = if there { ssd as u32 } else { u32::MAX };
        self.run(Task::Flush { ssd })
    }

    #[inline(always)]
    fn run(&self, task: Task) -> Result<(), IoError> {
        let mut errand = Errand::new(self.0, task);
        let mut turn = 0;
        loop {
            errand.turn(turn);
            if Lanes::WARP.all(errand.done) {
                return errand.error.map_or(Ok(()), Err);
            }
            Native::pause(turn);
            turn += 1;
        }
    }
}

/// What one lane is to do.
#[derive(Clone, Copy)]
enum Task {
    /// The line in this slot, if there is such a slot.
    WriteBack { slot: u64, hurry: bool },
    /// This SSD, if there is such an SSD.
    Flush { ssd: u32 },
}

/// One lane's task on its way.
struct Errand {
    store: Store,
    task: Task,
    /// The line that is being written, once it is.
    cleaning: Option<Cleaning>,
    /// Bounce buffer + 1 whose word the command settles, or 0.
    buffer: u64,
    in_flight: bool,
    commands: u32,
    queue: u32,
    /// The line in the slot, once it is known.
    line: u64,
    deadline_ns: u64,
    done: bool,
    error: Option<IoError>,
}

impl Errand {
    #[inline(always)]
    fn new(store: Store, task: Task) -> Self {
        let done = match task {
            Task::WriteBack { slot, .. } => slot == u64::MAX,
            Task::Flush { ssd } => ssd == u32::MAX,
        };
        let ssd = match task {
            Task::Flush { ssd } if !done => ssd,
            _ => 0,
        };
        Self {
            store,
            task,
            cleaning: None,
            buffer: 0,
            in_flight: false,
            commands: 0,
            queue: store.living_queue(ssd),
            line: 0,
            deadline_ns: store.patience().deadline_ns,
            done,
            error: None,
        }
    }

    /// One turn. Collective over the warp.
    #[inline(always)]
    fn turn(&mut self, turn: u32) {
        let team = Lanes::WARP;
        let submits = !self.done && !self.in_flight && self.is_ready(turn);
        let submitting = team.ballot(submits);
        if submits {
            let company = self.store.company(self.queue);
            by_queue(team.part(submitting), company, |peers| {
                self.submit(peers);
            });
        }
        for queue in [self.queue, self.store.any_queue(turn)] {
            let store = self.store;
            by_queue(team, queue, |peers| {
                store.queue(queue).drain(peers, &Finisher { store, queue });
            });
        }
        // Before the clock is asked: a submission to another SSD may have taken all of the time.
        self.settle();
        let patience = self.store.patience_until(self.deadline_ns);
        let ended = patience.exhausted().map_or(0, kind_of);
        if ended != 0 && !self.done {
            if self.in_flight {
                self.store.queue(self.queue).kill();
            } else {
                self.abandon();
            }
            self.fail(ended, Status::SUCCESS);
        }
    }

    /// Whether this lane's command can be submitted: its line's cleaning has begun, and it has a
    /// word to watch. A line that needs no writing, or no more, is done.
    #[inline(always)]
    fn is_ready(&mut self, turn: u32) -> bool {
        let desc = self.store.desc();
        if self.buffer == 0 {
            let share = Share::of(desc.bounce.count, false);
            match bounce::take(desc.bounce_words, share, turn) {
                Some(buffer) => self.buffer = buffer + 1,
                None => return false,
            }
        }
        let dead = |queue| self.store.queue(queue).is_dead();
        let Task::WriteBack { slot, hurry } = self.task else {
            return !dead(self.queue) || self.give_up(ErrorKind::QueueDead);
        };
        if self.cleaning.is_some() {
            return true;
        }
        let Some(line) = desc.table.occupant_of(slot as u32) else {
            self.end();
            return false;
        };
        let meta = desc.table.peek(line);
        let there = matches!(meta.look(), Look::Hit(_)) && u64::from(meta.slot()) == slot;
        if !there || !(meta.is_dirty() || meta.is_cleaning()) {
            self.end();
            return false;
        }
        self.line = line;
        self.queue = self.store.living_queue(self.store.route(line).ssd);
        if self.store.queue(self.queue).is_dead() {
            return self.give_up(ErrorKind::QueueDead);
        }
        if meta.is_cleaning() && hurry {
            return self.give_up(ErrorKind::Timeout);
        }
        // A write that an earlier kernel left is waited for first.
        self.cleaning = desc.table.begin_clean(line, meta);
        self.cleaning.is_some()
    }

    /// Nothing of the task is in flight, and it has not ended well: its line is dirty as before.
    #[inline(always)]
    fn abandon(&mut self) {
        if let Some(Cleaning { line, .. }) = self.cleaning {
            self.store.desc().table.clean_failed(line);
        }
        if self.buffer != 0 {
            self.end();
        }
    }

    /// Nothing is submitted, and a dirty line stays dirty.
    #[inline(always)]
    fn give_up(&mut self, kind: ErrorKind) -> bool {
        self.fail(kind as u16, Status::SUCCESS);
        self.end();
        false
    }

    /// The command of this lane.
    #[inline(always)]
    fn command(&self) -> Sqe {
        match (self.task, self.cleaning) {
            (Task::Flush { ssd }, _) => self.store.flush_ssd(ssd),
            (Task::WriteBack { slot, .. }, cleaning) => {
                let line = cleaning.map_or(0, |cleaning| cleaning.line);
                let route = self.store.route(line);
                let slots = &self.store.desc().slots;
                self.store.line(Transfer::Write, route, slots, slot)
            }
        }
    }

    #[inline(always)]
    fn submit<T: Team>(&mut self, peers: T) {
        let (store, queue) = (self.store, self.queue);
        let buffer = self.buffer - 1;
        if store.is_staged() {
            let slot = match self.task {
                Task::WriteBack { slot, .. } => Some(slot),
                Task::Flush { .. } => None,
            };
            staging::send_out(peers, store, slot);
        }
        // Ordering: [BB-1] as for a write beside the cache.
        store
            .desc()
            .bounce_words
            .at(buffer)
            .store(bounce::IN_FLIGHT, Order::Relaxed);
        let tag = Purpose::Bounce { buffer }.tag();
        let finisher = Finisher { store, queue };
        let patience = store.patience_to_submit(self.deadline_ns);
        let submitted =
            store
                .queue(queue)
                .submit_each(peers, self.command(), tag, &finisher, &patience);
        self.commands += 1;
        // However late it was, it gets some time.
        self.deadline_ns = store.patience_to_submit(self.deadline_ns).deadline_ns;
        match submitted {
            Ok(()) => self.in_flight = true,
            Err(refused) => self.fail(kind_of(refused.reason), Status::SUCCESS),
        }
    }

    /// Ends the command if it has been completed.
    #[inline(always)]
    fn settle(&mut self) {
        if self.done || !self.in_flight {
            return;
        }
        let desc = self.store.desc();
        // Ordering: [BB-2].
        let word = desc.bounce_words.at(self.buffer - 1).load(Order::Acquire);
        let Some(status) = bounce::status_of(word) else {
            return;
        };
        self.in_flight = false;
        if status.is_retryable() && self.commands < FAILURES_BEFORE_ERROR {
            return;
        }
        if status.is_success() {
            if let Some(Cleaning { line, .. }) = self.cleaning {
                desc.table.cleaned(line);
            }
            self.end();
        } else {
            self.fail(ErrorKind::Status as u16, status);
            self.abandon();
        }
    }

    /// The task is over and nothing of it is in flight.
    #[inline(always)]
    fn end(&mut self) {
        bounce::put_back(self.store.desc().bounce_words, self.buffer - 1);
        self.done = true;
    }

    #[inline(always)]
    fn fail(&mut self, kind: u16, status: Status) {
        let kind = match self.task {
            Task::WriteBack { .. } => ErrorKind::from_code(kind),
            Task::Flush { .. } => ErrorKind::Flush,
        };
        self.error = Some(IoError::new(kind, status, self.queue, self.line));
        self.done = true;
    }
}
