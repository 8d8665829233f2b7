//! How long a submitter waits, and what it reports when it stops.

use core::fmt;

use warpstore_simt::{Cell, Order, Platform, System, Team};

/// Bounds of every wait of one call. The deadline is a time of [`Platform::now_ns`]; the host
/// aborts all waits by storing a value other than 0.
#[derive(Clone, Copy)]
pub struct Patience<P: Platform> {
    /// Time at which waiting ends, nanoseconds.
    pub deadline_ns: u64,
    /// Not 0: stop waiting now.
    pub abort: P::Cell<u32, System>,
}

impl<P: Platform> Patience<P> {
    /// Why waiting should end now, if it should.
    #[inline(always)]
    pub fn exhausted(&self) -> Option<Reason> {
        // Ordering: [SQ-8] the word carries no data.
        if self.abort.load(Order::Relaxed) != 0 {
            Some(Reason::Aborted)
        } else if P::now_ns() >= self.deadline_ns {
            Some(Reason::Expired)
        } else {
            None
        }
    }
}

/// Why a command was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The queue had been given up before.
    Dead = 1,
    /// The deadline passed: no slot came free, or a predecessor never published.
    Expired = 2,
    /// The host aborted the run.
    Aborted = 3,
}

impl Reason {
    /// From the number that lanes exchange; 0 and unknown numbers are none.
    #[inline(always)]
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Dead),
            2 => Some(Self::Expired),
            3 => Some(Self::Aborted),
            _ => None,
        }
    }

    /// The end of what each lane of `team` did for itself, the same for all: an error if one of them
    /// failed. Collective.
    #[inline(always)]
    pub(crate) fn of_any<T: Team>(
        team: T,
        result: Result<(), Self>,
        queue: u16,
    ) -> Result<(), QueueError> {
        let code = match result {
            Ok(()) => 0,
            Err(reason) => reason as u32,
        };
        match Self::from_code(team.max(code)) {
            None => Ok(()),
            Some(reason) => Err(QueueError { queue, reason }),
        }
    }
}

/// A submission that failed. The queue is dead from then on: of the caller's commands and of
/// those that others submit meanwhile some may still reach the controller, so their buffers
/// stay quarantined until the queue has been deleted or the controller reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueError {
    /// Identifier of the submission queue.
    pub queue: u16,
    /// What ended the wait.
    pub reason: Reason,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.queue;
        match self.reason {
            Reason::Dead => write!(
                f,
                "submission queue {queue} is dead: delete it or reset its controller"
            ),
            Reason::Expired => write!(
                f,
                "submission queue {queue} gave no slot before the deadline: is its controller alive, \
                 and does CSTS.CFS stay 0? The queue is dead now"
            ),
            Reason::Aborted => write!(
                f,
                "submission to queue {queue} was aborted by the host; the queue is dead now"
            ),
        }
    }
}

impl core::error::Error for QueueError {}
