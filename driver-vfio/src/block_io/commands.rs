//! The commands of one access: submitted, collected in order, aborted when they are late.

use std::borrow::BorrowMut;
use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use nvme_queue::{Completion, Finish};
use nvme_wire::Sqe;
use nvme_wire::sqe::IoOpcode;
use warpstore_simt::{NativeCells, System};

use super::{BlockIo, CHUNK, SLOTS};
use crate::abort::Abort;
use crate::controller::{Controller, Enabled};
use crate::cpu_queue::Stopped;
use crate::error::{BlockRange, Error};

/// A command, whose tag is the slot that its data lies in.
#[derive(Clone, Copy)]
struct Command {
    opcode: IoOpcode,
    range: BlockRange,
    slot: u64,
}

/// How one slot's completion is told.
#[derive(Default)]
struct Done([Cell<Option<Completion>>; SLOTS as usize]);

impl Done {
    fn slot(&self, slot: u64) -> &Cell<Option<Completion>> {
        &self.0[(slot % SLOTS) as usize]
    }
}

impl Finish for Done {
    fn finish(&self, completion: Completion) {
        // The tag comes from the queue's own words.
        self.slot(completion.tag).set(Some(completion));
    }
}

impl<C: BorrowMut<Controller<Enabled>>> BlockIo<C> {
    /// Moves `blocks` blocks from `lba` on, in as many commands as it takes. `fill` is called with
    /// the data of a command and its place in the caller's bytes before it is submitted, `take`
    /// when it has succeeded; both in order.
    pub(super) fn transfer(
        &mut self,
        opcode: IoOpcode,
        lba: u64,
        blocks: u64,
        mut fill: impl FnMut(NativeCells<u64, System>, Range<usize>),
        mut take: impl FnMut(NativeCells<u64, System>, Range<usize>),
    ) -> Result<(), Error> {
        let (nsid, shift) = (self.namespace.nsid, self.namespace.block_shift);
        let most = u64::from(self.namespace.max_blocks).min(CHUNK >> shift);
        let part = |index: u64| {
            let first = index * most;
            let range = BlockRange {
                nsid,
                lba: lba + first,
                blocks: most.min(blocks - first),
            };
            let bytes = (first << shift) as usize..((first + range.blocks) << shift) as usize;
            let slot = index % SLOTS;
            (
                Command {
                    opcode,
                    range,
                    slot,
                },
                bytes,
            )
        };
        // Few enough that none waits to be submitted: one that hangs is met, and aborted, where it
        // is collected.
        let in_flight = SLOTS.min(self.queue().most_in_flight());
        let done = Done::default();
        let mut first_error = None;
        let (commands, mut submitted) = (blocks.div_ceil(most), 0);
        for collected in 0..commands {
            // After an error only what is under way is waited for.
            while first_error.is_none() && submitted < commands.min(collected + in_flight) {
                let (command, bytes) = part(submitted);
                fill(self.data(command.slot, bytes.len() as u64), bytes);
                self.submit(command, &done)?;
                submitted += 1;
            }
            if collected == submitted {
                break;
            }
            let (command, bytes) = part(collected);
            match self.collect(command, &done) {
                Ok(()) => take(self.data(command.slot, bytes.len() as u64), bytes),
                Err(error @ Error::Io { .. }) => {
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Flushes the namespace.
    pub(super) fn flush_all(&mut self) -> Result<(), Error> {
        let command = Command {
            opcode: IoOpcode::FLUSH,
            range: BlockRange {
                nsid: self.namespace.nsid,
                lba: 0,
                blocks: 0,
            },
            slot: 0,
        };
        let done = Done::default();
        self.submit(command, &done)?;
        self.collect(command, &done)
    }

    fn submit(&self, command: Command, done: &Done) -> Result<(), Error> {
        let Command {
            opcode,
            range: BlockRange { nsid, lba, blocks },
            slot,
        } = command;
        done.slot(slot).set(None);
        let (prp1, prp2) = self.prps(slot, blocks << self.namespace.block_shift);
        let sqe = match opcode {
            IoOpcode::WRITE => Sqe::write(nsid, lba, (blocks - 1) as u16, prp1, prp2),
            IoOpcode::READ => Sqe::read(nsid, lba, (blocks - 1) as u16, prp1, prp2),
            _ => Sqe::flush(nsid),
        };
        let begin = Instant::now();
        let submitted = self.queue().submit(sqe, slot, done);
        submitted.map_err(|stopped| self.give_up(command, stopped, begin, Abort::Unsent))
    }

    /// Waits for a command, and aborts it when it is late.
    fn collect(&mut self, command: Command, done: &Done) -> Result<(), Error> {
        let (begin, slot) = (Instant::now(), command.slot);
        let limit = self.queue().watch().deadlines.command;
        let is_done = |done: &Done| done.slot(slot).get().is_some();
        let mut abort = Abort::Unsent;
        let mut ended = self.queue().wait(limit, done, is_done);
        if ended.as_ref().is_err_and(Stopped::is_expired) {
            ended = self.abort(slot).and_then(|outcome| {
                abort = outcome;
                // Its completion may have come meanwhile, and is yet to come if it was aborted.
                let further = match abort {
                    Abort::Done => limit,
                    _ => Duration::ZERO,
                };
                self.queue().wait(further, done, is_done)
            });
        }
        ended.map_err(|stopped| self.give_up(command, stopped, begin, abort))?;
        let completion = done.slot(slot).get().expect("the wait was for it");
        if completion.status.is_success() {
            return Ok(());
        }
        Err(Error::Io {
            controller: self.name(),
            command: command.opcode.name(),
            range: command.range,
            cid: completion.cid,
            status: completion.status,
        })
    }

    /// Aborts the command of a slot, which is in flight.
    fn abort(&mut self, slot: u64) -> Result<Abort, Stopped> {
        let open = self.open.as_mut().expect("only `end` takes it");
        let cid = open.queue.cid_in_flight(slot);
        let cid = cid.expect("a command that has not completed is in flight");
        let aborted = open.controller.borrow_mut().abort(self.qid, cid);
        aborted.map_err(Stopped::Controller)
    }

    /// The error of a command that was waited for since `begin`, and is waited for no more. [VF-5] It
    /// has not ended, whatever its Abort said: nothing may be submitted that would have its slot.
    fn give_up(&self, command: Command, stopped: Stopped, begin: Instant, abort: Abort) -> Error {
        self.queue().kill();
        match stopped {
            Stopped::Controller(error) => error,
            Stopped::Late { csts, .. } => Error::IoLate {
                controller: self.name(),
                command: command.opcode.name(),
                range: command.range,
                csts,
                waited: begin.elapsed(),
                abort,
            },
        }
    }
}
