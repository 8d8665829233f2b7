//! Submission and completion rings as the submitter sees them.
//!
//! ```text
//!  a warp                     words in GPU memory                    rings, doorbells
//!  submit ── fetch_add k ───► ticket
//!     │  wait: slot free, ──► state[slot]   2·lap free, 2·lap+1 in flight
//!     │  t − cap done
//!     ├─ tag, state, SQE ───► tag[slot], state[slot] ───────────────► SQ[slot]
//!     └─ hop: tail = mine? ─► tail
//!          no:  mark ───────► mark[slot of my first] = my end
//!          yes: take the marks of all groups behind me, fence ──────► SQ tail doorbell
//!  drain ── phase of 32 CQEs ◄─────────────────────────────────────── CQ[head..]
//!     ├─ try-lock ──────────► head<<1 | lock;   fence, read ◄──────── CQ[head..]
//!     ├─ head += n ─────────► unlock;           at the cadence ─────► CQ head doorbell
//!     └─ compare-exchange ──► state[slot] 2·lap+1 → 2·lap+2, then finish(tag, status)
//! ```
//!
//! Every command has a virtual index `t`, its ticket, which never repeats (64 bits). Its slot is
//! `t mod depth`, its lap `t / depth`, and its CID the slot with the low bits of the lap, the
//! *generation*, above it. `state[slot]` counts the half laps of one slot, starting from 0:
//! ticket `t` alone takes it from `2·lap(t)` to `2·lap(t)+1`, and the one CQE that is accepted
//! for `t` takes it on to `2·lap(t)+2`, which is free for the next lap.
//!
//! # What holds, and why
//!
//! **Done.** Command `j` is done exactly if `state[j mod depth]` has passed `2·lap(j)+1`. Whoever
//! holds a ticket `t`, where `j = t − cap`, and has not yet published, can find only two values
//! that are past it: `2·lap(j)+2`, or `2·lap(j)+3` when ticket `j + depth` is already in flight.
//! (It may be: `j + depth > t`, but its own wait does not involve `t`.) A third is out of reach,
//! because `j + depth` completes only after it was published, and it is published only after `t`.
//! So the test is for these two values, and no comparison of wrapping counters is needed.
//!
//! **In flight ≤ cap.** `tail` passes ticket `t` only if the owner of `t` saw `t − cap` done. So
//! for every `j < tail − cap`, ticket `j + cap` was published and its owner had seen `j` done:
//! at most `cap` of the commands below `tail` are not done. Groups are never larger than `cap`,
//! so nobody waits for a lane of its own group.
//!
//! **No ring overruns.** `cap + slack ≤ depth − 1`, where `slack` is the number of CQEs that may
//! be taken before the CQ doorbell says so. A command counts as in flight until after its CQE was
//! taken; so entries that the controller holds, posted or still to come, are at most `cap`, and
//! entries taken but not yet given back fewer than `slack`: together below `depth`. The SQ has
//! fewer than `depth` entries between head and tail likewise.
//!
//! **Publication loses nobody.** Only the group that starts at `tail` may advance it, so there is
//! no lock. A group marks before it looks at `tail` again: either the publisher before it took
//! the mark and carried `tail` over it, or it finds `tail` at its own start and publishes
//! itself. Whoever takes a mark clears it, and a group that turns publisher clears its own; so
//! at any time a mark that is not `EMPTY` belongs to a group that waits now, and no mark of an
//! earlier lap can publish an SQE that is not written. Marks of waiting groups do not collide:
//! their first slots are free for their laps, so they lie less than `depth` beyond the last
//! doorbell. `tail` may lie further back, since it is stored after the doorbell, and the commands
//! in between may be done by then. So a group counts as published when `tail` has passed it, and
//! in no other case.
//!
//! **Nobody waits for an owner.** Whoever drains finishes: the tag says what to do, and every
//! turn of every wait drains. After the ticket there are two exits: published, or the queue is
//! dead, which is final and which all see. Every wait has a deadline and an abort word.
//!
//! The ordering of each access is in `docs/memory-model.md`, section "Queues"; the IDs in
//! `// Ordering:` comments refer to it.
//!
//! # Other protocols
//!
//! The above is [`Protocol::Hop`]. Two baselines stand beside it: [`Bam`] and [`Locked`]. [`AnyQueue`] is a
//! queue pair with the protocol that its description names.
//!
//! # What this crate does not do
//!
//! It does not interpret commands, tags or statuses, retry, or choose a queue. It allocates
//! nothing: [`Layout`] says what the CPU must provide, [`QueueDesc`] brings it to the GPU.
#![no_std]

#[cfg(test)]
extern crate std;

mod bam;
mod cq;
mod desc;
mod lock;
mod patience;
mod protocol;
mod queue;
mod ring;
mod sq;

pub use bam::{BAM_CIDS, BAM_STRIDE, Bam, BamWords};
pub use cq::{Completion, Faults, Finish};
pub use desc::{AnyQueue, Layout, QueueDesc, RingAddresses};
pub use lock::Locked;
pub use patience::{Patience, QueueError, Reason};
pub use protocol::Protocol;
pub use queue::{EMPTY, FAULT_WORDS, Queue, Words};
pub use ring::{DepthError, Narrow, Shape, Ticket, Wide};
