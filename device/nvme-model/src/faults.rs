//! What an emulated drive does wrong, and when: a plan, as plain data.

use std::ops::RangeInclusive;

use nvme_wire::Status;

use crate::layout::{fault, manner};
use crate::random::hash;

/// Faults that a controller injects into its I/O queues.
///
/// A controller with faults completes by way of the pending ring, as one with modelled time does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Decides which commands [`When::OneIn`] hits. The same seed hits the same commands, counted
    /// for each queue; drives that are used together have seeds of their own ([`Faults::of_drive`]).
    pub seed: u64,
    /// At most [`Faults::MAX_RULES`]; the first that hits a command is the one that happens to it.
    pub rules: Vec<Rule>,
}

/// A fault, and the commands it happens to. Commands that are refused anyway are left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What goes wrong.
    pub fault: Fault,
    /// How often.
    pub when: When,
    /// In this submission queue only.
    pub queue: Option<u16>,
    /// For these commands only.
    pub commands: Commands,
    /// For reads and writes only that touch one of these LBAs, of whatever namespace.
    pub lbas: Option<RangeInclusive<u64>>,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The command is not carried out and completes with this status, which is no success.
    Status(Status),
    /// The command is carried out and never completes.
    Drop,
    /// The completion comes this much later. Nanoseconds.
    Delay(u64),
    /// The command is carried out this much later, and then completes: until that moment none of its
    /// data is read or written. Nanoseconds. Only where host threads serve the queues.
    Late(u64),
    /// The completion comes [`Fault::REORDER_NS`] later, so that those of later commands overtake
    /// it.
    Reorder,
    /// The completion comes twice.
    Duplicate,
    /// A completion whose CID is FFFFh, which no command has (Base 3.3.3.1), comes before the
    /// right one.
    UnknownCid,
    /// A completion with the CID that the entry of the submission ring held a lap ago comes before
    /// the right one. In a queue's first lap there is none, and nothing happens.
    StaleCid,
    /// The completion has the phase of the lap before. A submitter that waits for it sees nothing
    /// more of the queue.
    WrongPhase,
    /// The controller stops with CSTS.CFS, before it carries out the command. A reset ends it.
    Fatal,
    /// The controller is gone, before it carries out the command: registers read all-ones.
    Removal,
}

/// How often a rule hits one of its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Each time.
    Always,
    /// The first so many times, counted over all queues.
    First(u64),
    /// By chance, once in so many times.
    OneIn(u64),
    /// The command that is fetched as the so-manieth of its queue since that was created. Counts
    /// from 1, and all commands.
    Command(u32),
}

/// Kinds of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// Reads, writes and flushes.
    All,
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Flushes.
    Flushes,
}

impl Faults {
    /// Most rules of a plan.
    pub const MAX_RULES: usize = crate::layout::MAX_FAULTS as usize;

    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self {
            seed: 0,
            rules: Vec::new(),
        }
    }

    /// The same plan for drive `number` of those that share it, whose chances are its own. With one
    /// seed for all, a place where commands are hit close together would be there in each of them.
    #[must_use]
    pub fn of_drive(self, number: u64) -> Self {
        Self {
            seed: hash(self.seed, number),
            ..self
        }
    }

    /// True if a rule has commands carried out late.
    pub(crate) fn has_late(&self) -> bool {
        let is_late = |rule: &Rule| matches!(rule.fault, Fault::Late(_));
        self.rules.iter().any(is_late)
    }

    /// What is wrong with the plan.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let bad_status =
            |rule: &Rule| matches!(rule.fault, Fault::Status(status) if status.is_success());
        let never = |rule: &Rule| {
            matches!(
                rule.when,
                When::First(0) | When::OneIn(0) | When::Command(0)
            )
        };
        let endless =
            |rule: &Rule| matches!(rule.fault, Fault::Delay(ns) | Fault::Late(ns) if ns >= 1 << 62);
        if self.rules.len() > Self::MAX_RULES {
            Some("more rules than Faults::MAX_RULES")
        } else if self.rules.iter().any(bad_status) {
            Some("a status that is a success")
        } else if self.rules.iter().any(never) {
            Some("a rule that never hits: the number in its `when` is at least 1")
        } else if self.rules.iter().any(endless) {
            Some("a delay of 2^62 ns or more; use Fault::Drop")
        } else {
            None
        }
    }
}

impl Fault {
    /// How much later a reordered completion comes. Nanoseconds.
    pub const REORDER_NS: u64 = 1_000_000;

    /// Manner, delay and status of the rule's words.
    fn words(self) -> (u64, u64, Status) {
        let plain = |manner| (manner, 0, Status::SUCCESS);
        match self {
            Self::Status(status) => (manner::STATUS, 0, status),
            Self::Drop => plain(manner::DROP),
            Self::Delay(ns) => (manner::DELAY, ns, Status::SUCCESS),
            Self::Late(ns) => (manner::LATE, ns, Status::SUCCESS),
            Self::Reorder => (manner::DELAY, Self::REORDER_NS, Status::SUCCESS),
            Self::Duplicate => plain(manner::DUPLICATE),
            Self::UnknownCid => plain(manner::UNKNOWN_CID),
            Self::StaleCid => plain(manner::STALE_CID),
            Self::WrongPhase => plain(manner::WRONG_PHASE),
            Self::Fatal => plain(manner::FATAL),
            Self::Removal => plain(manner::REMOVAL),
        }
    }
}

impl Rule {
    /// Happens to commands of all kinds, queues and LBAs.
    pub fn new(fault: Fault, when: When) -> Self {
        Self {
            fault,
            when,
            queue: None,
            commands: Commands::All,
            lbas: None,
        }
    }

    /// The rule as the service reads it.
    pub(crate) fn to_words(&self) -> [u64; fault::WORDS as usize] {
        let (manner, delay, status) = self.fault.words();
        let data = match self.commands {
            Commands::All => fault::READS | fault::WRITES | fault::FLUSHES,
            Commands::Reads => fault::READS,
            Commands::Writes => fault::WRITES,
            Commands::Flushes => fault::FLUSHES,
        };
        let (first, last) = match &self.lbas {
            Some(lbas) => (*lbas.start(), *lbas.end()),
            None => (0, u64::MAX),
        };
        let kinds = if self.lbas.is_some() {
            data & !fault::FLUSHES
        } else {
            data
        };
        let (limit, chance, place) = match self.when {
            When::Always => (u64::MAX, u64::MAX, 0),
            When::First(count) => (count, u64::MAX, 0),
            When::OneIn(count) => (u64::MAX, u64::MAX / count, 0),
            When::Command(place) => (u64::MAX, u64::MAX, place),
        };
        let mut words = [0; fault::WORDS as usize];
        let queue = self.queue.unwrap_or(0);
        words[fault::WHAT as usize] =
            manner | kinds << 8 | (status.bits() as u64) << 16 | (queue as u64) << 32;
        words[fault::PLACE as usize] = place as u64;
        words[fault::CHANCE as usize] = chance;
        words[fault::LIMIT as usize] = limit;
        words[fault::FIRST_LBA as usize] = first;
        words[fault::LAST_LBA as usize] = last;
        words[fault::DELAY as usize] = delay;
        words
    }
}
