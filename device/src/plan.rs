//! What a miss does about its line: the plan of one lane for its group, and its submission.

use line_cache::{Failure, Fetch};
use nvme_queue::Reason;
use warpstore_simt::{Native, Platform, Team, warp};

use crate::error::ErrorKind;
use crate::finish::{Finisher, Purpose};
use crate::staging;
use crate::store::{Store, Transfer};

/// In place of a byte of the line: all of it.
pub(crate) const WHOLE_LINE: u64 = u64::MAX;

/// Submits the command of a plan to `queue`; an error takes the plan's place. Collective over `peers`, whose
/// lanes keep the same [`Store::company`]. Plans in words and scalars only, since this is a call.
/// `part` is the byte that an access beside the cache is after, or [`WHOLE_LINE`].
///
/// After an error nobody knows whether the controller has the command, so its slot or buffer
/// stays taken until the queue is made anew. That of a cleaning is no error of the access.
#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "a call passes words, no struct")]
pub(crate) fn submit<T: Team>(
    peers: T,
    store: Store,
    queue: u32,
    line: u64,
    version: u16,
    part: u64,
    plan: u64,
    deadline_ns: u64,
) -> u64 {
    let desc = store.desc();
    let route = store.route(match Plan::from_word(plan) {
        Plan::Clean(other) => other,
        _ => line,
    });
    let (command, purpose) = match Plan::from_word(plan) {
        Plan::Bounce(buffer) => {
            let command = store.beside(Transfer::Read, route, buffer, part);
            (command, Purpose::Bounce { buffer })
        }
        Plan::WriteBack(buffer) => {
            let command = store.beside(Transfer::Write, route, buffer, part);
            (command, Purpose::Bounce { buffer })
        }
        Plan::Fetch(slot) => {
            let command = store.line(Transfer::Read, route, &desc.slots, slot);
            (command, Purpose::Fetch { line, version })
        }
        Plan::Clean(line) => {
            // It stays in its slot as long as it is being cleaned.
            let slot = u64::from(desc.table.peek(line).slot());
            let command = store.line(Transfer::Write, route, &desc.slots, slot);
            (command, Purpose::Clean { line })
        }
        Plan::Nothing | Plan::Error(_) => return plan,
    };
    if store.is_staged() {
        let slot = match Plan::from_word(plan) {
            Plan::Clean(line) => Some(u64::from(desc.table.peek(line).slot())),
            _ => None,
        };
        staging::send_out(peers, store, slot);
    }
    let finisher = Finisher { store, queue };
    // A line that gives way may be another SSD's: if that is stuck, half of the time is left.
    let deadline_ns = match Plan::from_word(plan) {
        Plan::Clean(_) => midway(Native::now_ns(), deadline_ns),
        _ => deadline_ns,
    };
    let patience = store.patience_to_submit(deadline_ns);
    let submitted =
        store
            .queue(queue)
            .submit_each(peers, command, purpose.tag(), &finisher, &patience);
    let Err(error) = submitted else {
        return plan;
    };
    let kind = kind_of(error.reason);
    match Plan::from_word(plan) {
        Plan::Fetch(slot) => {
            // Exactly this fetch: it may have ended meanwhile, and the line be somebody else's.
            let fetch = Fetch {
                line,
                slot: slot as u32,
                version,
            };
            desc.table.lose(fetch, Failure::new(kind, 0));
            Plan::Error(kind).to_word()
        }
        // The line stays CLEANING, so that no later write overtakes this one; `flush` reports it.
        Plan::Clean(_) => Plan::Nothing.to_word(),
        _ => Plan::Error(kind).to_word(),
    }
}

/// The moment half-way from `now` to `deadline`.
#[inline(always)]
fn midway(now: u64, deadline: u64) -> u64 {
    now.saturating_add(deadline.saturating_sub(now) / 2)
}

/// Calls `body` for the lanes of each queue in turn. Collective over `team`.
///
/// One queue after the other, not side by side, so that all lanes that are converged have the
/// same mask ([HW-2]).
#[inline(always)]
pub(crate) fn by_queue<T: Team>(team: T, queue: u32, mut body: impl FnMut(T)) {
    let mut left = team.mask();
    while left != 0 {
        let first = team.shuffle(queue, warp::leader(left));
        let peers = team.ballot(queue == first);
        if queue == first {
            body(team.part(peers));
        }
        team.sync();
        left &= !peers;
    }
}

/// What a lane does next for its group.
#[derive(Clone, Copy)]
pub(crate) enum Plan {
    /// Look again in the next turn.
    Nothing,
    /// A fetch into this slot.
    Fetch(u64),
    /// A read into this bounce buffer.
    Bounce(u64),
    /// A write from this bounce buffer.
    WriteBack(u64),
    /// A write of this line, which is being cleaned, from its slot.
    Clean(u64),
    /// The access fails with this kind of error.
    Error(u16),
}

impl Plan {
    /// The plan in one word, for a shuffle.
    #[inline(always)]
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Fetch(slot) => slot << 3 | 1,
            Self::Bounce(buffer) => buffer << 3 | 2,
            Self::WriteBack(buffer) => buffer << 3 | 3,
            Self::Clean(line) => line << 3 | 4,
            Self::Error(kind) => u64::from(kind) << 3 | 5,
        }
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Self {
        match word & 7 {
            0 => Self::Nothing,
            1 => Self::Fetch(word >> 3),
            2 => Self::Bounce(word >> 3),
            3 => Self::WriteBack(word >> 3),
            4 => Self::Clean(word >> 3),
            _ => Self::Error((word >> 3) as u16),
        }
    }
}

/// The kind of error that the end of a wait becomes.
#[inline(always)]
pub(crate) fn kind_of(reason: Reason) -> u16 {
    (match reason {
        Reason::Dead => ErrorKind::QueueDead,
        Reason::Expired => ErrorKind::Timeout,
        Reason::Aborted => ErrorKind::Aborted,
    }) as u16
}
