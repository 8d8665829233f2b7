//! Beside the cache: what happens once a bounce buffer's command has ended.

use nvme_wire::Status;
use warpstore_simt::{Cell, Cells, Order, Team, warp};

use crate::access::Access;
use crate::bounce;
use crate::change::Change;
use crate::error::ErrorKind;
use crate::fetch::Aim;
use crate::plan::{Plan, by_queue, submit};

impl Access {
    /// How the command for the bounce buffer of this lane's group ended, if it has. Collective over
    /// `team`: the lanes that share a buffer see it in the same turn.
    #[inline(always)]
    fn bounced<T: Team>(&self, team: T) -> Option<Status> {
        let waits = self.bounce != 0 && !self.done;
        let mut status = None;
        if waits {
            let word = self.store.desc().bounce_words.at(self.bounce - 1);
            // Ordering: [BB-2] acquire pairs with the finisher's release; each lane loads for
            // itself, since a vote orders no memory.
            status = bounce::status_of(word.load(Order::Acquire));
        }
        let settled = team.ballot(status.is_some());
        if waits && self.group & !settled == 0 {
            status
        } else {
            None
        }
    }

    #[inline(always)]
    fn leads_group(&self) -> bool {
        warp::leader(self.group) == warp::lane_id()
    }

    /// Takes the bytes out of the bounce buffer once they are there, or (`HOLD`) the buffer.
    /// Collective over `team`.
    #[inline(always)]
    pub(crate) fn collect_read<T: Team, const HOLD: bool>(&mut self, team: T) {
        let desc = self.store.desc();
        let buffer = self.bounce.wrapping_sub(1);
        let status = self.bounced(team);
        let mut keeps = false;
        if let Some(status) = status {
            keeps = HOLD && status.is_success();
            if keeps {
                self.finish(buffer, 1);
            } else if status.is_success() {
                let [low, high] = desc.bounce.load_chunk(buffer, self.offset);
                self.finish(low, high);
            } else if !self.may_repeat(status) {
                self.fail(ErrorKind::Status as u16, status);
            }
            self.bounce = 0;
        }
        // All have read before the leader gives the buffer back.
        team.sync();
        if status.is_some() && !keeps && self.leads_group() {
            bounce::put_back(desc.bounce_words, buffer);
        }
    }

    /// Changes the bytes in the bounce buffer once they are there, sends them back to the SSD, and
    /// ends when they have arrived. `change` is what to do to them; None if they are the whole line
    /// already. Collective over `team`.
    #[inline(always)]
    pub(crate) fn collect_write<T: Team, A: Aim>(&mut self, team: T, change: Option<Change>) {
        let desc = self.store.desc();
        let buffer = self.bounce.wrapping_sub(1);
        let status = self.bounced(team);
        let (mut submits, mut ends) = (false, false);
        if let Some(status) = status {
            if status.is_success() && self.writes_back {
                self.finish(self.chunk.low, self.chunk.high);
                ends = true;
            } else if status.is_success() {
                if let Some(change) = change {
                    let at = (buffer << desc.bounce.shift) + self.offset;
                    self.chunk.low = change.apply(desc.bounce.memory, at);
                }
                self.writes_back = true;
                // From here on all lanes of the group see the same failures, and decide alike.
                self.failures = 0;
                submits = true;
            } else if self.may_repeat(status) {
                // A write once more, as it is; for a read the line is looked at again.
                submits = self.writes_back;
                ends = !submits;
            } else {
                self.fail(ErrorKind::Status as u16, status);
                ends = true;
            }
        }
        let leads = status.is_some() && self.leads_group();
        if submits && leads {
            // Ordering: [BB-1] relaxed: the buffer is the group's own, and the submission's fence
            // orders the word before the command.
            desc.bounce_words
                .at(buffer)
                .store(bounce::IN_FLIGHT, Order::Relaxed);
        }
        // All have changed the buffer before the leader submits, and nobody looks at its word again
        // before it says in flight.
        team.sync();
        self.write_back::<T, A>(team, submits);
        if ends {
            self.end_beside::<A>(buffer, leads);
        }
    }

    /// Submits the write of each group's buffer. Collective over `team`.
    #[inline(always)]
    fn write_back<T: Team, A: Aim>(&mut self, team: T, submits: bool) {
        let leader = if submits {
            warp::leader(self.group)
        } else {
            warp::lane_id()
        };
        let leads = submits && leader == warp::lane_id();
        let mut plan = Plan::WriteBack(self.bounce.wrapping_sub(1)).to_word();
        let submitting = team.ballot(leads);
        if submitting == 0 {
            return;
        }
        if leads {
            let company = self.store.company(self.queue);
            let part = self.part::<A>(self.group);
            by_queue(team.part(submitting), company, |peers| {
                let (store, queue, line) = (self.store, self.queue, self.line);
                plan = submit(peers, store, queue, line, 0, part, plan, self.deadline_ns);
            });
        }
        let plan = Plan::from_word(team.shuffle(plan, leader));
        if submits {
            self.submitted();
            if let Plan::Error(kind) = plan {
                // The buffer and the line stay taken: the write may be about ([WB-5]).
                self.fail(kind, Status::from_bits(0));
            }
        }
    }

    /// The group is done with the buffer and with the line.
    #[inline(always)]
    fn end_beside<A: Aim>(&mut self, buffer: u64, leads: bool) {
        let claim = self.claim.take();
        self.give_up_claim(claim);
        if leads && !A::HOLDS {
            bounce::put_back(self.store.desc().bounce_words, buffer);
        }
        self.bounce = 0;
        self.writes_back = false;
    }
}
