//! Injected faults: a decorator between fetching and carrying out, and one around posting.
//!
//! ```text
//! fetch ─► strike ─► carry out ─► pending entry with marks ─ due ─► aim ───────────────────► post
//!             └─ late command, beside its pending entry ──── due ─► aim ─► carry out ────────┘
//! ```
//!
//! [`Turn::strike`] looks for a rule that hits a command, and changes its status, its due time or
//! the marks of its pending entry; or stops the controller. [`Turn::aim`] turns the marks into
//! what is posted. Without rules the first is one look at a word, the second a comparison.

use warpstore_simt::{Cell, Order, warp};

use super::pair::{Pair, Turn};
use crate::command::{Command, Kind};
use crate::layout::{fault, fault_rule, header, manner, mode};
use crate::memory::{Image, Span};
use crate::random::hash;

/// Marks of a pending entry, beside CID and status: bits 32 to 34.
const DROPPED: u64 = 1 << 32;
const WRONG_PHASE: u64 = 2 << 32;
/// A completion with the CID in bits 48 and above comes first.
const LED: u64 = 3 << 32;
/// The command is still to be carried out.
const LATE: u64 = 4 << 32;
const MARKS: u64 = 7 << 32;

/// CID that no command has (Base 3.3.3.1).
const NO_CID: u64 = 0xffff;

/// What happens to a command besides its status.
#[derive(Clone, Copy)]
pub(super) struct Strike {
    /// Added to the pending entry.
    pub(super) marks: u64,
    /// Added to the due time.
    pub(super) delay: u64,
}

/// Where a command stands in its queue.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Commands that its queue fetched before.
    pub(super) before: u32,
    /// CID that its entry of the submission ring held a lap ago.
    pub(super) stale_cid: Option<u16>,
}

/// What a lane does with its pending entry.
pub(super) struct Aim {
    /// Posts a CQE.
    pub(super) posts: bool,
    /// Carries the command out first.
    pub(super) carries_out: bool,
    pub(super) cid: u16,
    pub(super) wrong_phase: bool,
    /// Done with the entry.
    pub(super) done: bool,
    /// Keeps the entry, with this in it.
    pub(super) rest: Option<u64>,
}

impl Strike {
    pub(super) const NONE: Self = Self { marks: 0, delay: 0 };

    /// True if the command is not carried out before it is due.
    #[inline(always)]
    pub(super) fn is_late(&self) -> bool {
        self.marks == LATE
    }
}

impl Turn {
    /// True if the controller has fault rules. The same on all lanes.
    #[inline(always)]
    pub(super) fn is_faulty(&self) -> bool {
        self.image.read(header::FAULTS) != 0
    }

    /// Lets the first rule that hits happen to the lane's command; `None` if one of the warp's
    /// stopped the controller. Collective.
    #[inline(always)]
    pub(super) fn strike(
        &self,
        pair: &Pair,
        command: &mut Command,
        place: Place,
    ) -> Option<Strike> {
        let mut strike = Strike::NONE;
        let mut stop = 0;
        if let Some(rule) = self.rule(pair.sqid, command, place) {
            let what = self.image.read(rule + fault::WHAT);
            strike.delay = self.image.read(rule + fault::DELAY);
            match what & 0xff {
                manner::STATUS => {
                    command.status = nvme_wire::Status::from_bits((what >> 16) as u16);
                    command.media = Span::EMPTY;
                }
                manner::DROP => strike.marks = DROPPED,
                manner::DUPLICATE => strike.marks = LED | (command.cid as u64) << 48,
                manner::UNKNOWN_CID => strike.marks = LED | NO_CID << 48,
                manner::STALE_CID => {
                    strike.marks = LED | (place.stale_cid.unwrap_or(0) as u64) << 48;
                }
                manner::LATE => strike.marks = LATE,
                manner::WRONG_PHASE => strike.marks = WRONG_PHASE,
                manner::FATAL => stop = mode::FATAL,
                manner::REMOVAL => stop = mode::GONE,
                _ => {}
            }
        }
        if warp::ballot_sync(self.mask, stop != 0) == 0 {
            return Some(strike);
        }
        if stop != 0 {
            self.image.word(header::MODE).fetch_or(stop, Order::Relaxed);
        }
        None
    }

    /// The first rule that hits.
    #[inline(always)]
    fn rule(&self, sqid: u16, command: &Command, place: Place) -> Option<u64> {
        let rules = self.image.read(header::FAULTS);
        let mut index = 0;
        while index < rules {
            let rule = fault_rule(index);
            let random = hash(
                self.image.read(header::FAULT_SEED).wrapping_add(index),
                (sqid as u64) << 32 | place.before as u64,
            );
            if applies(self.image, rule, sqid, command, place, random) {
                let limit = self.image.read(rule + fault::LIMIT);
                let hits = self.image.word(rule + fault::HITS);
                if hits.fetch_add(1, Order::Relaxed) < limit {
                    return Some(rule);
                }
            }
            index += 1;
        }
        None
    }

    /// What the marks of a pending entry make of its completion. Collective.
    ///
    /// A completion that another one leads takes two CQEs and has reserved one, so each waits for
    /// a free slot.
    #[inline(always)]
    pub(super) fn aim(&self, pair: &Pair, ready: bool, completion: u64) -> Aim {
        let group = warp::ballot_sync(self.mask, ready);
        let before = (group & ((1 << self.lane) - 1)).count_ones();
        let ready = ready && before < pair.free();
        let marks = completion & MARKS;
        let led = marks == LED;
        Aim {
            posts: ready && marks != DROPPED,
            carries_out: ready && marks == LATE,
            cid: if led {
                (completion >> 48) as u16
            } else {
                completion as u16
            },
            wrong_phase: marks == WRONG_PHASE,
            done: ready && !led,
            rest: if ready && led {
                Some(completion & u32::MAX as u64)
            } else {
                None
            },
        }
    }
}

/// True if the rule is one for this command and chance is with it.
#[inline(always)]
fn applies(
    image: Image,
    rule: u64,
    sqid: u16,
    command: &Command,
    place: Place,
    random: u64,
) -> bool {
    let [what, nth] = image.read_pair(rule + fault::WHAT);
    let [first, last] = image.read_pair(rule + fault::FIRST_LBA);
    let kind = match command.kind {
        Kind::None => 0,
        Kind::Read => fault::READS,
        Kind::Write => fault::WRITES,
        Kind::Flush => fault::FLUSHES,
    };
    let queue = (what >> 32) as u16;
    // A flush has no LBAs, and only rules for any.
    let end = command.slba + command.blocks as u64;
    let touches = command.slba <= last && (end > first || command.blocks == 0);
    let has_cid = what & 0xff != manner::STALE_CID || place.stale_cid.is_some();
    (what >> 8) & kind != 0
        && (queue == 0 || queue == sqid)
        && (nth == 0 || nth == place.before as u64 + 1)
        && touches
        && has_cid
        && random <= image.read(rule + fault::CHANCE)
}
