//! Modelled time: completions wait in the queue's pending ring until they are due.

use nvme_wire::Status;
use warpstore_simt::warp;

use super::faults::{Place, Strike};
use super::least;
use super::pair::{Pair, Turn};
use crate::command::Command;
#[cfg(not(target_arch = "nvptx64"))]
use crate::layout::late_command;
use crate::layout::{header, pending, record};
use crate::timing;

/// Pending commands, from the oldest on, among which a due one may overtake.
const WINDOW: u32 = 32;

/// Marks a pending entry that has not been posted; its other bits are the due time.
const WAITING: u64 = 1 << 63;

/// A queue's pending ring: indices are free-running.
struct Pending {
    queues: u64,
    mask: u32,
    head: u32,
    tail: u32,
}

impl Turn {
    /// Modelled time: data moves at once, completions wait in the pending ring.
    #[inline(always)]
    pub(super) fn step_timed<const LANES: u32>(&self, pair: &mut Pair, now: u64) -> bool {
        let waiting = self.image.read(self.record + record::PENDING);
        let mut ring = Pending {
            queues: self.image.read(header::QUEUES),
            mask: self.image.read(header::PENDING_MASK) as u32,
            head: waiting as u32,
            tail: (waiting >> 32) as u32,
        };
        let reserved = ring.tail.wrapping_sub(ring.head);
        let room = pair.free().saturating_sub(reserved);
        let count = least(
            pair.available(),
            least(room, ring.mask + 1 - reserved, LANES),
            LANES,
        );
        if count == 0 && reserved == 0 {
            return false;
        }
        if count != 0 {
            let mut command = self.fetch(pair, count);
            let mut strike = Strike::NONE;
            if self.is_faulty() {
                let place = self.place(pair, &ring);
                match self.strike(pair, &mut command, place) {
                    Some(struck) => strike = struck,
                    // What has been fetched is lost, as all that is pending.
                    None => return true,
                }
            }
            let carried_out = self.without_late(&ring, &command, strike);
            command.status = self.execute::<LANES>(&carried_out);
            let due = timing::due::<LANES>(
                self.mask,
                self.lane,
                self.image,
                now,
                command.writing(),
                command.bytes,
                command.slba,
            );
            if self.lane < count {
                let entry = self.entry(&ring, ring.tail.wrapping_add(self.lane));
                let completion = command.cid as u64 | (command.status.bits() as u64) << 16;
                let due = due + strike.delay;
                self.image
                    .write_pair(entry, [due | WAITING, completion | strike.marks]);
            }
            ring.tail = ring.tail.wrapping_add(count);
            self.count(self.lane < count && !strike.is_late(), &command);
            warp::sync_mask(self.mask);
        }
        self.post_due::<LANES>(pair, &mut ring, now);
        if self.lane == 0 {
            let waiting = ring.head as u64 | (ring.tail as u64) << 32;
            self.image.write(self.record + record::PENDING, waiting);
        }
        self.store(pair);
        true
    }

    /// Where the lane's command stands. A pending entry keeps its CID until it is used again, and
    /// every command takes one.
    #[inline(always)]
    fn place(&self, pair: &Pair, ring: &Pending) -> Place {
        let before = ring.tail.wrapping_add(self.lane);
        let stale_cid = if before >= pair.sq_entries {
            let entry = self.entry(ring, before - pair.sq_entries);
            Some(self.image.read(entry + 1) as u16)
        } else {
            None
        };
        Place { before, stale_cid }
    }

    /// Posts every due command among the oldest [`WINDOW`], or among all where faults may hold
    /// one back, then drops posted ones at the head.
    #[inline(always)]
    fn post_due<const LANES: u32>(&self, pair: &mut Pair, ring: &mut Pending, now: u64) {
        let window = if self.is_faulty() { u32::MAX } else { WINDOW };
        let first = ring.head;
        let mut leading = true;
        let mut base = 0;
        while base < window && base < ring.tail.wrapping_sub(first) {
            let place = first.wrapping_add(base).wrapping_add(self.lane);
            let inside = (ring.tail.wrapping_sub(place) as i32) > 0;
            let entry = self.entry(ring, place);
            let [due, completion] = if inside {
                self.image.read_pair(entry)
            } else {
                [WAITING - 1, 0]
            };
            let waits = due & WAITING != 0;
            let ready = inside && waits && due & !WAITING <= now;
            let aim = self.aim(pair, ready, completion);
            let status = Status::from_bits((completion >> 16) as u16);
            let status = self.carry_out_late::<LANES>(entry, aim.carries_out, status);
            self.post(pair, aim.posts, aim.cid, status, aim.wrong_phase);
            if aim.done {
                self.image.write(entry, 0);
            }
            if let Some(rest) = aim.rest {
                self.image.write(entry + 1, rest);
            }
            let done = warp::ballot_sync(self.mask, inside && (aim.done || !waits));
            if leading {
                let run = (!done).trailing_zeros();
                let run = if run < LANES { run } else { LANES };
                ring.head = ring.head.wrapping_add(run);
                leading = run == LANES;
            }
            base += LANES;
        }
    }

    /// What is carried out at once of the lane's command: nothing of a late one, which is kept.
    #[inline(always)]
    fn without_late(&self, ring: &Pending, command: &Command, strike: Strike) -> Command {
        // A GPU serves no late commands: its registers are for those of every day.
        #[cfg(not(target_arch = "nvptx64"))]
        if strike.is_late() {
            let kept = self.late(self.entry(ring, ring.tail.wrapping_add(self.lane)));
            let [what, slba, prp1, prp2] = command.to_words();
            self.image.write_pair(kept, [what, slba]);
            self.image.write_pair(kept + 2, [prp1, prp2]);
            return Command::NONE;
        }
        *command
    }

    /// Carries out the late command of each lane that has one due, at pending entry `entry`; the status
    /// of the lane's own, or `status` without one. Collective.
    #[inline(always)]
    fn carry_out_late<const LANES: u32>(&self, entry: u64, is_due: bool, status: Status) -> Status {
        #[cfg(not(target_arch = "nvptx64"))]
        if warp::ballot_sync(self.mask, is_due) != 0 {
            let mut command = Command::NONE;
            if is_due {
                let kept = self.late(entry);
                let [what, slba] = self.image.read_pair(kept);
                let [prp1, prp2] = self.image.read_pair(kept + 2);
                command = Command::from_words(self.image, [what, slba, prp1, prp2]);
            }
            command.status = self.execute::<LANES>(&command);
            self.count(is_due, &command);
            return if is_due { command.status } else { status };
        }
        status
    }

    /// First word of the late command of pending entry `entry`.
    #[cfg(not(target_arch = "nvptx64"))]
    fn late(&self, entry: u64) -> u64 {
        let queues = self.image.read(header::QUEUES);
        late_command(self.image.read(header::LATE), queues, entry)
    }

    #[inline(always)]
    fn entry(&self, ring: &Pending, place: u32) -> u64 {
        let entries = ring.mask as u64 + 1;
        pending(
            ring.queues,
            entries,
            self.queue as u64,
            (place & ring.mask) as u64,
        )
    }
}
