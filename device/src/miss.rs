//! What an access does about a line that is not there: one lane of each group claims it and finds
//! a slot, writes another line back to get one, or takes a buffer beside the cache.

use core::num::NonZeroU32;

use line_cache::{Claim, Found};
use nvme_wire::Status;
use warpstore_simt::{Native, Platform, Team, warp};

use crate::access::Access;
use crate::bounce;
use crate::error::ErrorKind;
use crate::fetch::Aim;
use crate::plan::{Plan, WHOLE_LINE, by_queue, submit};

/// Fetches through the cache that an access begins before it goes round it: with fewer slots
/// than readers, lines leave before their readers have come.
const FETCHES_BEFORE_BOUNCE: u32 = 2;
/// Lines that an access writes back for a slot before it goes round the cache.
const CLEANINGS_BEFORE_BOUNCE: u32 = 4;
/// Steps of the clock that one turn takes at most.
const CLOCK_STEPS: u32 = 64;
/// Who has taken a slot cleans the one that the hand comes to after this part of the cache.
const AHEAD_PART: u32 = 4;

impl Access {
    /// One command for each distinct line among the lanes of `wanting`. Collective over it.
    #[inline(always)]
    pub(crate) fn start<T: Team, A: Aim>(&mut self, aim: A, wanting: T, turn: u32) {
        let lane = warp::lane_id();
        let coalesce = A::SHARES || self.store.coalesces();
        // Without coalescing every lane is told apart by its number.
        let key = if coalesce { self.line } else { u64::from(lane) };
        let group = wanting.matching(key);
        let leader = warp::leader(group);
        let plan = if leader == lane {
            self.plan(aim, turn)
        } else {
            Plan::Nothing
        };
        let (submits, cleans, queue) = match plan {
            Plan::Nothing | Plan::Error(_) => (false, false, self.queue),
            Plan::Fetch(_) | Plan::Bounce(_) | Plan::WriteBack(_) => (true, false, self.queue),
            Plan::Clean(line) => (true, true, self.queue_of(line)),
        };
        let mut plan = plan.to_word();
        let submitting = wanting.ballot(submits);
        if submits {
            let company = self.store.company(queue);
            let part = self.part::<A>(group);
            by_queue(wanting.part(submitting), company, |peers| {
                let (store, line, version) = (self.store, self.line, self.meta.version());
                plan = submit(
                    peers,
                    store,
                    queue,
                    line,
                    version,
                    part,
                    plan,
                    self.deadline_ns,
                );
            });
        }
        if cleans && matches!(Plan::from_word(plan), Plan::Nothing) {
            // That line's queue is dead. Ours may not be.
            self.cleaning = None;
            self.beside = true;
        }
        let plan = Plan::from_word(wanting.shuffle(plan, leader));
        let queue = wanting.shuffle(self.queue, leader);
        self.follow(plan, queue, group, leader == lane);
    }

    /// What an access beside the cache moves: a lane alone needs one LBA, those that share a
    /// buffer, or hold it, the line.
    #[inline(always)]
    pub(crate) fn part<A: Aim>(&self, group: u32) -> u64 {
        let alone = !A::HOLDS && group == 1 << warp::lane_id();
        if alone { self.offset } else { WHOLE_LINE }
    }

    /// Notes what the group's leader has done.
    #[inline(always)]
    fn follow(&mut self, plan: Plan, queue: u32, group: u32, leads: bool) {
        if !matches!(plan, Plan::Nothing | Plan::Clean(_)) {
            self.queue = queue;
        }
        match plan {
            Plan::Nothing | Plan::Clean(_) => {}
            Plan::Fetch(slot) => {
                self.submitted();
                self.fetching = Some(self.meta.version());
                if leads {
                    self.own_slot = slot as u32 + 1;
                    self.ahead = self.slot_ahead(slot as u32);
                }
                self.fetches += 1;
            }
            Plan::Bounce(buffer) | Plan::WriteBack(buffer) => {
                self.submitted();
                self.bounce = buffer + 1;
                self.group = group;
                self.writes_back = matches!(plan, Plan::WriteBack(_));
            }
            Plan::Error(kind) => {
                self.lose(kind);
                self.fail(kind, Status::from_bits(0));
            }
        }
    }

    /// What this lane does for its group: claim the line and a slot for it, write another line
    /// back, or go round the cache.
    #[inline(always)]
    fn plan<A: Aim>(&mut self, aim: A, turn: u32) -> Plan {
        if self.ahead != 0 {
            return self.clean_ahead();
        }
        let table = self.store.desc().table;
        if self.store.queue(self.queue).is_dead() {
            // Nothing of this access is in flight there. The SSD may have others.
            self.queue = self.store.living_queue(self.ssd);
            if self.store.queue(self.queue).is_dead() {
                return Plan::Error(ErrorKind::QueueDead as u16);
            }
        }
        if let Some(cleaning) = self.cleaning
            && table.is_cleaning(cleaning)
        {
            // Another SSD's trouble is not ours: half of the time is left to go round the cache.
            let half = self
                .deadline_ns
                .saturating_sub(self.store.desc().timeout_ns / 2);
            if self.can_write(cleaning.line) && Native::now_ns() < half {
                return Plan::Nothing;
            }
            self.cleaning = None;
            self.beside = true;
        }
        let cached = self.store.caches() && !self.beside && aim.brings().is_none();
        if cached && self.fetches < FETCHES_BEFORE_BOUNCE {
            let Some(claim) = table.claim(self.line, self.meta) else {
                return Plan::Nothing;
            };
            match self.find_slot() {
                Found::Slot(slot) => {
                    return Plan::Fetch(u64::from(table.attach(claim, slot).slot));
                }
                Found::Dirty(cleaning) if self.can_write(cleaning.line) => {
                    table.release_claim(claim);
                    self.cleaning = Some(cleaning);
                    self.cleaned += 1;
                    return Plan::Clean(cleaning.line);
                }
                Found::Dirty(cleaning) => {
                    table.clean_failed(cleaning.line);
                    table.release_claim(claim);
                }
                Found::Nothing => table.release_claim(claim),
            }
            // Every slot is in use: a search in each turn would only slow those that use them.
            self.beside = true;
        }
        self.plan_beside(aim, turn)
    }

    /// The queue that this warp would write `line` through.
    #[inline(always)]
    fn queue_of(&self, line: u64) -> u32 {
        self.store.living_queue(self.store.route(line).ssd)
    }

    /// Whether that is alive.
    #[inline(always)]
    fn can_write(&self, line: u64) -> bool {
        !self.store.queue(self.queue_of(line)).is_dead()
    }

    /// A slot: that of the line that was written back for this access, or what the clock finds.
    #[inline(always)]
    fn find_slot(&mut self) -> Found {
        let table = self.store.desc().table;
        if let Some(cleaning) = self.cleaning.take()
            && let Some(slot) = table.take_cleaned(cleaning)
        {
            return Found::Slot(slot);
        }
        if self.cleaned >= CLEANINGS_BEFORE_BOUNCE {
            return Found::Nothing;
        }
        table.victim(CLOCK_STEPS)
    }

    /// Round the cache: into a buffer, with the line claimed if it is to be changed there ([WB-5]).
    #[inline(always)]
    fn plan_beside<A: Aim>(&mut self, aim: A, turn: u32) -> Plan {
        let desc = self.store.desc();
        let claim = if A::CLAIMS {
            let Some(claim) = desc.table.claim(self.line, self.meta) else {
                return Plan::Nothing;
            };
            Some(claim)
        } else {
            None
        };
        if let Some(buffer) = aim.brings() {
            self.claim = claim;
            // From here on, whatever becomes of the submission, the write may be about.
            self.writes_back = true;
            return Plan::WriteBack(buffer);
        }
        let share = bounce::Share::of(desc.bounce.count, A::HOLDS);
        match bounce::take(desc.bounce_words, share, turn) {
            Some(buffer) => {
                self.claim = claim;
                Plan::Bounce(buffer)
            }
            None => {
                self.give_up_claim(claim);
                Plan::Nothing
            }
        }
    }

    #[inline(always)]
    pub(crate) fn give_up_claim(&self, claim: Option<Claim>) {
        if let Some(claim) = claim {
            self.store.desc().table.release_claim(claim);
        }
    }

    /// Slot + 1 that the hand comes to a while after `slot`; 0 in a cache too small for that.
    #[inline(always)]
    fn slot_ahead(&self, slot: u32) -> u32 {
        match NonZeroU32::new(self.store.desc().table.slots()) {
            Some(slots) if slots.get() >= 2 * AHEAD_PART => {
                slot.wrapping_add(slots.get() / AHEAD_PART) % slots + 1
            }
            _ => 0,
        }
    }

    /// Writes back a line that the clock would stop at later, if it is dirty and not in use.
    #[inline(always)]
    fn clean_ahead(&mut self) -> Plan {
        let table = self.store.desc().table;
        let slot = self.ahead - 1;
        self.ahead = 0;
        let Some(line) = table.occupant_of(slot) else {
            return Plan::Nothing;
        };
        let meta = table.peek(line);
        if meta.is_referenced() || meta.slot() != slot || !self.can_write(line) {
            return Plan::Nothing;
        }
        match table.begin_clean(line, meta) {
            Some(cleaning) => Plan::Clean(cleaning.line),
            None => Plan::Nothing,
        }
    }
}
