//! The cold path: what happens when a line is not resident.
//!
//! Each turn of an access is uniform over its team: look again; let one lane for each distinct
//! line claim it, find a slot and submit (or submit into a bounce buffer); see whose data has
//! come; drain completions, one's own and others'; check the deadline. No lane waits for another
//! while it holds anything but its own command: rule [DL-1].
//!
//! The team is the whole warp if all of it misses together, else the lane alone ([HW-2]): lanes
//! that came at different times must not share a mask.

use core::hint::black_box;

use line_cache::{Failure, Fetch, Look, Meta, NotPinned, Outcome};
use nvme_queue::Patience;
use nvme_wire::Status;
use warpstore_simt::{Cell, Cells, Lanes, Native, Order, Platform, Solo, Team, warp};

use crate::bounce;
use crate::error::{ErrorKind, IoError};
use crate::finish::Finisher;
use crate::plan::{Plan, WHOLE_LINE, by_queue, kind_of, submit};
use crate::store::{CacheMode, Store};

/// Fetches through the cache that an access begins before it goes round it: with fewer slots
/// than readers, lines leave before their readers have come.
const FETCHES_BEFORE_BOUNCE: u32 = 2;
/// Commands that an access submits before it believes a retryable status.
const COMMANDS_BEFORE_FAILURE: u32 = 4;
/// Steps of the clock that one turn takes at most.
const CLOCK_STEPS: u32 = 64;

/// How a cold access ends: an error (`error` is not 0), or two words.
///
/// [`read_chunk`]: the 16 bytes. [`hold`]: in `low` the piece that holds the line, in `high` 0 if
/// that is a cache slot, which is now pinned, or 1 if it is a bounce buffer, now the caller's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chunk {
    pub error: u64,
    pub low: u64,
    pub high: u64,
}

/// One lane's access on its way.
struct Access {
    store: Store,
    line: u64,
    /// The line's word when this lane last looked.
    meta: Meta,
    /// Byte of the line, a multiple of 16.
    offset: u64,
    /// SSD of the line, for this warp.
    ssd: u32,
    chunk: Chunk,
    done: bool,
    /// Version of the fetch that this access waits for: its failure is our failure.
    fetching: Option<u16>,
    /// Slot + 1 of that fetch if this lane submitted it, or 0.
    own_slot: u32,
    /// Commands submitted for this access, by this lane or by its group's leader.
    commands: u32,
    /// A search for a slot was in vain: the access goes round the cache.
    beside: bool,
    /// Bounce buffer + 1 that the group waits for, or 0.
    bounce: u64,
    /// The lanes that share the bounce buffer.
    group: u32,
}

/// Reads the 16 bytes at `offset` (a multiple of 16) of `line`. Any lanes may call; a whole warp
/// that comes together works together.
#[inline(always)]
pub(crate) fn read_chunk(store: Store, line: u64, offset: u64) -> Chunk {
    let miss: fn(Store, u64, u64) -> Chunk = miss;
    // Called by its address, so that caller and callee keep to the ABI, which leaves registers to
    // the caller. Where ptxas knows the callee it shares all registers out between them, and then
    // spills in the caller's loop, hits included.
    black_box(miss)(store, line, offset)
}

#[cold]
#[inline(never)]
fn miss(store: Store, line: u64, offset: u64) -> Chunk {
    let access = Access::new(store, line, offset);
    if warp::active_mask() == Lanes::WARP.0 {
        run::<Lanes, false>(Lanes::WARP, access)
    } else {
        run::<Solo, false>(Solo, access)
    }
}

/// Makes `line` stay, in a slot or in a bounce buffer, until [`let_go`]. Collective over `team`,
/// all lanes with the same line.
#[inline(always)]
pub(crate) fn hold<T: Team>(store: Store, line: u64, team: T) -> Chunk {
    run::<T, true>(team, Access::new(store, line, 0))
}

/// Ends what [`hold`] began: called by one lane, after all have read.
#[inline(always)]
pub(crate) fn let_go(store: Store, line: u64, held: Chunk) {
    if held.high == 0 {
        store.desc().table.unpin(line);
    } else {
        bounce::put_back(store.desc().bounce_words, held.low);
    }
}

/// The turns of an access; `HOLD` says which of the two kinds.
#[inline(always)]
fn run<T: Team, const HOLD: bool>(team: T, mut access: Access) -> Chunk {
    let patience = access.store.patience();
    let mut turn = 0;
    loop {
        let wants = if HOLD {
            access.look_and_pin(team)
        } else {
            access.look()
        };
        let wanting = team.ballot(wants);
        if wants {
            access.start::<T, HOLD>(team.part(wanting), &patience, turn);
        }
        access.collect_bounce::<T, HOLD>(team);
        if team.all(access.done) {
            return access.chunk;
        }
        access.drain(team, turn);
        access.check(team, &patience);
        Native::pause(turn);
        turn = turn.wrapping_add(1);
    }
}

impl Access {
    #[inline(always)]
    fn new(store: Store, line: u64, offset: u64) -> Self {
        Self {
            store,
            line,
            meta: Meta::from_bits(0),
            offset,
            ssd: store.route(line).ssd,
            chunk: Chunk::default(),
            done: false,
            fetching: None,
            own_slot: 0,
            commands: 0,
            beside: false,
            bounce: 0,
            group: 0,
        }
    }

    /// Tries the cache. True if this lane wants a command submitted.
    #[inline(always)]
    fn look(&mut self) -> bool {
        if self.done || self.bounce != 0 {
            return false;
        }
        let desc = self.store.desc();
        if let Some(version) = self.fetching {
            match desc.table.settled(self.line, version) {
                None => return false,
                Some(Outcome::Failed(failure)) if !self.may_retry(failure) => {
                    self.fail(failure.kind(), Status::from_bits(failure.status()));
                    return false;
                }
                Some(_) => self.forget_fetch(),
            }
        }
        match desc.table.look(self.line) {
            Look::Hit(_) => {
                self.read_hit();
                false
            }
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

    /// As [`Access::look`], for an access that holds its line. The whole team finds the same.
    #[inline(always)]
    fn look_and_pin<T: Team>(&mut self, team: T) -> bool {
        if self.done || self.bounce != 0 {
            return false;
        }
        match self.pin(team) {
            Look::Hit(meta) => {
                self.finish(u64::from(meta.slot()), 0);
                false
            }
            Look::Busy(meta) => {
                if self.fetching != Some(meta.version()) {
                    self.forget_fetch();
                    self.fetching = Some(meta.version());
                }
                false
            }
            Look::Failed(meta) | Look::Absent(meta) => {
                let failure = meta.failure();
                let waited = self.fetching == Some(meta.version());
                self.forget_fetch();
                let failed = matches!(meta.look(), Look::Failed(_));
                if failed && waited && !self.may_retry(failure) {
                    self.fail(failure.kind(), Status::from_bits(failure.status()));
                    return false;
                }
                self.meta = meta;
                true
            }
        }
    }

    /// The fetch that was waited for has ended, one way or another.
    #[inline(always)]
    fn forget_fetch(&mut self) {
        self.fetching = None;
        self.own_slot = 0;
    }

    /// Whether a fetch that failed so is worth another command.
    #[inline(always)]
    fn may_retry(&self, failure: Failure) -> bool {
        Status::from_bits(failure.status()).is_retryable()
            && self.commands < COMMANDS_BEFORE_FAILURE
    }

    /// The optimistic read, as a hit does it.
    #[inline(always)]
    fn read_hit(&mut self) {
        let desc = self.store.desc();
        if let Look::Hit(meta) = desc.table.open(self.line).look() {
            let [low, high] = desc.slots.load_chunk(u64::from(meta.slot()), self.offset);
            if desc.table.validate(self.line, meta, low | high) {
                self.finish(low, high);
            }
        }
    }

    /// One pin for the whole team, if the line is resident; else what the line is doing. A
    /// line that cannot be pinned just now counts as busy.
    #[inline(always)]
    fn pin<T: Team>(&self, team: T) -> Look {
        let mut word = 0;
        if team.leads() {
            let table = self.store.desc().table;
            word = match table.pin(self.line) {
                Ok(meta) => meta.bits(),
                Err(NotPinned::Look(
                    Look::Hit(meta) | Look::Busy(meta) | Look::Failed(meta) | Look::Absent(meta),
                )) => meta.bits(),
                Err(NotPinned::Full | NotPinned::Contended) => Meta::BUSY.bits(),
            };
        }
        // The barrier passes the leader's acquire on to the lanes that read the bytes.
        team.sync();
        Meta::from_bits(team.broadcast(word)).look()
    }

    /// One command for each distinct line among the lanes of `wanting`. Collective over it.
    #[inline(always)]
    fn start<T: Team, const HOLD: bool>(
        &mut self,
        wanting: T,
        patience: &Patience<Native>,
        turn: u32,
    ) {
        let lane = warp::lane_id();
        let coalesce = HOLD || self.store.desc().mode != CacheMode::None;
        // Without coalescing every lane is told apart by its number.
        let key = if coalesce { self.line } else { u64::from(lane) };
        let group = wanting.matching(key);
        let leader = warp::leader(group);
        let plan = if leader == lane {
            self.plan(turn)
        } else {
            Plan::Nothing
        };
        let submits = matches!(plan, Plan::Fetch(_) | Plan::Bounce(_));
        let mut plan = plan.to_word();
        let submitting = wanting.ballot(submits);
        if submits {
            let queue = self.store.home_queue(self.ssd);
            // A lane alone needs one LBA beside the cache; those that share a buffer, the line.
            let alone = !HOLD && group == 1 << lane;
            let part = if alone { self.offset } else { WHOLE_LINE };
            by_queue(wanting.part(submitting), queue, |peers| {
                let (store, line, version) = (self.store, self.line, self.meta.version());
                plan = submit(
                    peers,
                    store,
                    line,
                    version,
                    part,
                    plan,
                    patience.deadline_ns,
                );
            });
        }
        match Plan::from_word(wanting.shuffle(plan, leader)) {
            Plan::Nothing => {}
            Plan::Fetch(slot) => {
                self.fetching = Some(self.meta.version());
                self.own_slot = if leader == lane { slot as u32 + 1 } else { 0 };
                self.commands += 1;
            }
            Plan::Bounce(buffer) => {
                self.bounce = buffer + 1;
                self.group = group;
                self.commands += 1;
            }
            Plan::Error(kind) => self.fail(kind, Status::from_bits(0)),
        }
    }

    /// What this lane does for its group: claim the line and a slot for it, or take a bounce
    /// buffer.
    #[inline(always)]
    fn plan(&mut self, turn: u32) -> Plan {
        let desc = self.store.desc();
        if self.store.queue(self.store.home_queue(self.ssd)).is_dead() {
            return Plan::Error(ErrorKind::QueueDead as u16);
        }
        let cached = desc.mode != CacheMode::None && !self.beside;
        if cached && self.commands < FETCHES_BEFORE_BOUNCE {
            let Some(claim) = desc.table.claim(self.line, self.meta) else {
                return Plan::Nothing;
            };
            if let Some(slot) = desc.table.victim(CLOCK_STEPS) {
                return Plan::Fetch(u64::from(desc.table.attach(claim, slot).slot));
            }
            desc.table.release_claim(claim);
            // Every slot is in use: a search in each turn would only slow those that use them.
            self.beside = true;
        }
        match bounce::take(desc.bounce_words, desc.bounce.count, turn) {
            Some(buffer) => Plan::Bounce(buffer),
            None => Plan::Nothing,
        }
    }

    /// Takes the bytes out of the bounce buffer once they are there. Collective over `team`; the
    /// lanes that share a buffer act in the same turn.
    #[inline(always)]
    fn collect_bounce<T: Team, const HOLD: bool>(&mut self, team: T) {
        let desc = self.store.desc();
        let waits = self.bounce != 0 && !self.done;
        let buffer = self.bounce.wrapping_sub(1);
        let mut status = None;
        if waits {
            // Ordering: [BB-2] acquire pairs with the finisher's release; each lane loads for
            // itself, since a vote orders no memory.
            status = bounce::status_of(desc.bounce_words.at(buffer).load(Order::Acquire));
        }
        let settled = team.ballot(status.is_some());
        let collects = waits && self.group & !settled == 0;
        let mut keeps = false;
        if collects && let Some(status) = status {
            keeps = HOLD && status.is_success();
            if keeps {
                self.finish(buffer, 1);
            } else if status.is_success() {
                let [low, high] = desc.bounce.load_chunk(buffer, self.offset);
                self.finish(low, high);
            } else if !status.is_retryable() || self.commands >= COMMANDS_BEFORE_FAILURE {
                self.fail(ErrorKind::Status as u16, status);
            }
            self.bounce = 0;
        }
        // All have read before the leader gives the buffer back.
        team.sync();
        if collects && !keeps && warp::leader(self.group) == warp::lane_id() {
            bounce::put_back(desc.bounce_words, buffer);
        }
    }

    /// Finishes some completions: of the queue that this warp submits to, and in every other
    /// turn of some queue, so that nobody waits for a command that only others could see.
    #[inline(always)]
    fn drain<T: Team>(&self, team: T, turn: u32) {
        let queue = if turn.is_multiple_of(2) {
            self.store.home_queue(self.ssd)
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

    /// Gives up when the deadline has passed or the host said stop. The whole team does so in
    /// the same turn, since those that share a bounce buffer must stay together.
    #[inline(always)]
    fn check<T: Team>(&mut self, team: T, patience: &Patience<Native>) {
        let kind = match patience.exhausted() {
            Some(reason) => kind_of(reason),
            None => 0,
        };
        let kind = team.max(u32::from(kind)) as u16;
        if kind == 0 || self.done {
            return;
        }
        // A command of this lane's own that does not come back: its queue is given up, its slot or
        // buffer stays taken, and its line is nobody's, so that others may try another queue.
        if self.bounce != 0 || self.own_slot != 0 {
            self.store.queue(self.store.home_queue(self.ssd)).kill();
        }
        if let (Some(version), 1..) = (self.fetching, self.own_slot) {
            let fetch = Fetch {
                line: self.line,
                slot: self.own_slot - 1,
                version,
            };
            let table = self.store.desc().table;
            table.lose(fetch, Failure::new(kind, 0));
        }
        self.fail(kind, Status::from_bits(0));
    }

    #[inline(always)]
    fn finish(&mut self, low: u64, high: u64) {
        self.chunk = Chunk {
            error: 0,
            low,
            high,
        };
        self.done = true;
    }

    #[inline(always)]
    fn fail(&mut self, kind: u16, status: Status) {
        let queue = self.store.home_queue(self.ssd);
        let error = IoError::new(ErrorKind::from_code(kind), status, queue, self.line);
        self.chunk = Chunk {
            error: error.to_bits(),
            low: 0,
            high: 0,
        };
        self.done = true;
    }
}
