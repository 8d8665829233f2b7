//! One lane's access on its way through the cold path: what it knows, and how it looks again.

use line_cache::{Claim, Cleaning, Failure, Fetch, Look, Meta, NotPinned, Outcome};
use nvme_wire::Status;
use warpstore_simt::Team;

use crate::error::{ErrorKind, IoError};
use crate::finish::Finisher;
use crate::plan::{by_queue, kind_of};
use crate::store::Store;

/// Commands of an access that may fail with a retryable status before it believes it.
pub(crate) const FAILURES_BEFORE_ERROR: u32 = 4;

/// How a cold access ends: an error (`error` is not 0; `high` is then 1 if a write beside the cache
/// may have been under way), or two words, whose meaning is the access's: see the functions of
/// `fetch.rs` and `change.rs`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chunk {
    pub error: u64,
    pub low: u64,
    pub high: u64,
}

/// One lane's access on its way.
pub(crate) struct Access {
    pub store: Store,
    pub line: u64,
    /// The line's word when this lane last looked.
    pub meta: Meta,
    /// Byte of the line.
    pub offset: u64,
    /// SSD of the line, for this warp.
    pub ssd: u32,
    /// Queue that its own commands go to: this warp's, or another of that SSD once that is dead. It
    /// stays as long as one of them is in flight.
    pub queue: u32,
    pub chunk: Chunk,
    pub done: bool,
    /// Version of the fetch that this access waits for: its failure is our failure.
    pub fetching: Option<u16>,
    /// Slot + 1 of that fetch if this lane submitted it, or 0.
    pub own_slot: u32,
    /// Fetches begun for this access, by this lane or by its group's leader.
    pub fetches: u32,
    /// Commands that this access waited for and that failed, with a status that may pass.
    pub failures: u32,
    /// A search for a slot was in vain: the access goes round the cache.
    pub beside: bool,
    /// Bounce buffer + 1 that the group waits for, or 0.
    pub bounce: u64,
    /// The lanes that share the bounce buffer.
    pub group: u32,
    /// The line that this lane has written back to get its slot.
    pub cleaning: Option<Cleaning>,
    /// How many lines it has.
    pub cleaned: u32,
    /// Slot + 1 that the clock comes to later, to be cleaned ahead of need, or 0.
    pub ahead: u32,
    /// The right to the line while a write goes round the cache.
    pub claim: Option<Claim>,
    /// The bytes in the bounce buffer are changed, and on their way back to the SSD.
    pub writes_back: bool,
    /// When the access ends; later after a late submission.
    pub deadline_ns: u64,
}

impl Access {
    #[inline(always)]
    pub(crate) fn new(store: Store, line: u64, offset: u64) -> Self {
        let ssd = store.route(line).ssd;
        Self {
            store,
            line,
            meta: Meta::from_bits(0),
            offset,
            ssd,
            queue: store.home_queue(ssd),
            chunk: Chunk::default(),
            done: false,
            fetching: None,
            own_slot: 0,
            fetches: 0,
            failures: 0,
            beside: false,
            bounce: 0,
            group: 0,
            cleaning: None,
            cleaned: 0,
            ahead: 0,
            claim: None,
            writes_back: false,
            deadline_ns: store.patience().deadline_ns,
        }
    }

    /// A command of this access has been submitted: it gets some time, however late it was.
    #[inline(always)]
    pub(crate) fn submitted(&mut self) {
        self.deadline_ns = self.store.patience_to_submit(self.deadline_ns).deadline_ns;
    }

    /// What the line is doing, for an access that is not waiting for anything else: the end of
    /// the fetch that it waited for comes first. None: nothing to do in this turn.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Option<Look> {
        if self.done || self.bounce != 0 {
            return None;
        }
        let desc = self.store.desc();
        if let Some(version) = self.fetching {
            match desc.table.settled(self.line, version) {
                None => return None,
                Some(Outcome::Failed(failure)) if !self.may_retry(failure) => {
                    self.fail(failure.kind(), Status::from_bits(failure.status()));
                    return None;
                }
                Some(_) => self.forget_fetch(),
            }
        }
        Some(desc.table.look(self.line))
    }

    /// Notes what a lookup found other than a hit. True if this lane wants a command submitted.
    #[inline(always)]
    pub(crate) fn note(&mut self, look: Look) -> bool {
        match look {
            Look::Hit(_) => false,
            Look::Busy(meta) => {
                self.fetching = Some(meta.version());
                false
            }
            // A failure that we did not wait for is somebody else's: try again.
            Look::Failed(meta) | Look::Absent(meta) => {
                self.meta = meta;
                true
            }
        }
    }

    /// Whether the fetch that this access waits for is still on its way.
    #[inline(always)]
    fn is_fetching(&self) -> bool {
        let table = self.store.desc().table;
        self.fetching
            .is_some_and(|version| table.settled(self.line, version).is_none())
    }

    /// The fetch that was waited for has ended, one way or another.
    #[inline(always)]
    pub(crate) fn forget_fetch(&mut self) {
        self.fetching = None;
        self.own_slot = 0;
        self.ahead = 0;
    }

    /// Whether a fetch that failed so is worth another command.
    #[inline(always)]
    pub(crate) fn may_retry(&mut self, failure: Failure) -> bool {
        self.may_repeat(Status::from_bits(failure.status()))
    }

    /// Notes that a command failed with `status`; whether it is worth another one.
    #[inline(always)]
    pub(crate) fn may_repeat(&mut self, status: Status) -> bool {
        self.failures += 1;
        status.is_retryable() && self.failures < FAILURES_BEFORE_ERROR
    }

    /// One pin for the whole team, if the line is resident; else what the line is doing. A
    /// line that cannot be pinned just now counts as busy.
    #[inline(always)]
    pub(crate) fn pin<T: Team>(&self, team: T) -> Look {
        let mut word = 0;
        if team.leads() {
            word = self.pin_alone().bits();
        }
        // The barrier passes the leader's acquire on to the lanes that read the bytes.
        team.sync();
        Meta::from_bits(team.broadcast(word)).look()
    }

    /// The line's word, pinned by this lane if it says VALID.
    #[inline(always)]
    pub(crate) fn pin_alone(&self) -> Meta {
        match self.store.desc().table.pin(self.line) {
            Ok(meta) => meta,
            Err(NotPinned::Look(
                Look::Hit(meta) | Look::Busy(meta) | Look::Failed(meta) | Look::Absent(meta),
            )) => meta,
            Err(NotPinned::Full) => Meta::BUSY,
        }
    }

    /// Finishes some completions: of the queue that this warp submits to, and in every other
    /// turn of some queue, so that nobody waits for a command that only others could see.
    #[inline(always)]
    pub(crate) fn drain<T: Team>(&self, team: T, turn: u32) {
        let queue = if turn.is_multiple_of(2) {
            self.queue
        } else {
            self.store.any_queue(turn / 2)
        };
        let finisher = Finisher {
            store: self.store,
            queue,
        };
        by_queue(team, queue, |peers| {
            self.store.queue(queue).drain(peers, &finisher);
        });
    }

    /// 0, or the kind of error that the wait ends with, because the deadline of every lane has passed
    /// or the host said stop. The whole team ends in the same turn, since those that share a bounce
    /// buffer must stay together.
    #[inline(always)]
    pub(crate) fn ended<T: Team>(&self, team: T) -> u16 {
        let patience = self.store.patience_until(self.deadline_ns);
        let kind = patience.exhausted().map_or(0, kind_of);
        let last = team.all(self.done || kind != 0);
        let kind = team.max(u32::from(kind)) as u16;
        if last { kind } else { 0 }
    }

    /// Ends the access with an error, unless it is done.
    #[inline(always)]
    pub(crate) fn give_up(&mut self, kind: u16) {
        if self.done {
            return;
        }
        // A command of this lane's own that does not come back: its queue is given up, its slot or
        // buffer stays taken, and its line is nobody's, so that others may try another queue.
        if self.bounce != 0 || self.own_slot != 0 && self.is_fetching() {
            self.store.queue(self.queue).kill();
        }
        self.lose(kind);
        self.fail(kind, Status::from_bits(0));
    }

    /// Gives up this lane's own read of the line, whose command may still be about.
    ///
    /// A write that may still be about is another matter: it could overwrite what somebody writes
    /// later. So its line stays BUSY, and those who want it run into their deadlines ([WB-5]).
    #[inline(always)]
    pub(crate) fn lose(&mut self, kind: u16) {
        let fetch = |version, slot| Fetch {
            line: self.line,
            slot,
            version,
        };
        let lost = match (self.fetching, self.own_slot, &self.claim) {
            (Some(version), 1.., _) => fetch(version, self.own_slot - 1),
            (_, _, Some(claim)) if !self.writes_back => fetch(claim.version(), 0),
            _ => return,
        };
        let table = self.store.desc().table;
        table.lose(lost, Failure::new(kind, 0));
    }

    #[inline(always)]
    pub(crate) fn finish(&mut self, low: u64, high: u64) {
        self.chunk = Chunk {
            error: 0,
            low,
            high,
        };
        self.done = true;
    }

    #[inline(always)]
    pub(crate) fn fail(&mut self, kind: u16, status: Status) {
        let error = IoError::new(ErrorKind::from_code(kind), status, self.queue, self.line);
        self.chunk = Chunk {
            error: error.to_bits(),
            low: 0,
            high: u64::from(self.writes_back),
        };
        self.done = true;
    }
}
