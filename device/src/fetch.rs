//! The cold path: what happens when a line is not resident, or is to be changed.
//!
//! Each turn of an access is uniform over its team: look again; let one lane for each distinct
//! line claim it, find a slot and submit (or submit into a bounce buffer); see whose data has
//! come; drain completions, one's own and others'; check the deadline. No lane waits for another
//! while it holds anything but its own command: rule [DL-1].
//!
//! The team is the whole warp if all of it misses together, else those lanes that came together
//! ([HW-2]): others that come at another time are a team of their own.

use core::hint::black_box;

use line_cache::Look;
use nvme_wire::Status;
use warpstore_simt::{Lanes, Native, Party, Platform, Team, warp};

use crate::access::{Access, Chunk};
use crate::bounce;
use crate::store::Store;

/// What an access is after.
pub(crate) trait Aim: Copy {
    /// Lanes that want one line always share the work for it, whatever the cache mode.
    const SHARES: bool;
    /// Round the cache it keeps the line claimed: nobody else may change it meanwhile.
    const CLAIMS: bool;
    /// Beside the cache it uses the buffers for those who run code of the kernel's author
    /// meanwhile; see `bounce.rs`.
    const HOLDS: bool;

    /// The buffer with the whole line that it wants written, if it is that.
    #[inline(always)]
    fn brings(self) -> Option<u64> {
        None
    }

    /// Tries the cache, and ends the access on a hit. True if this lane wants a command submitted.
    /// Collective over `team`.
    fn look<T: Team>(self, access: &mut Access, team: T) -> bool;

    /// Goes on with what is in a bounce buffer once it is there. Collective over `team`; the
    /// lanes that share a buffer act in the same turn.
    fn collect<T: Team>(self, access: &mut Access, team: T);
}

/// Reads the 16 bytes at `offset` (a multiple of 16) of `line` into the chunk. Any lanes may call;
/// those that come together work together.
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
    let present = warp::active_mask();
    if present == Lanes::WARP.0 {
        run(Lanes::WARP, Read, access)
    } else {
        run(Party::of(present), Read, access)
    }
}

/// Makes `line` stay, in a slot or in a bounce buffer, until [`let_go`]. Collective over `team`,
/// all lanes with the same line.
///
/// In the chunk's `low` stands the piece that holds the line, in `high` 0 if that is a cache slot,
/// which is now pinned, or 1 if it is a bounce buffer, now the caller's.
#[inline(always)]
pub(crate) fn hold<T: Team>(store: Store, line: u64, team: T) -> Chunk {
    run(team, Hold, Access::new(store, line, 0))
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

/// The turns of an access.
#[inline(always)]
pub(crate) fn run<T: Team, A: Aim>(team: T, aim: A, mut access: Access) -> Chunk {
    let (mut turn, mut ended) = (0, 0);
    loop {
        let wants = aim.look(&mut access, team) && ended == 0;
        let wanting = team.ballot(wants);
        if wants {
            access.start(aim, team.part(wanting), turn);
        }
        aim.collect(&mut access, team);
        if ended != 0 {
            access.give_up(ended);
        }
        if team.all(access.done) {
            return access.chunk;
        }
        ended = access.ended(team);
        // At the end one's own queue, and one more turn: the time may have gone into waiting for
        // another SSD, and what has come meanwhile counts.
        access.drain(team, if ended != 0 { 0 } else { turn });
        Native::pause(turn);
        turn = turn.wrapping_add(1);
    }
}

/// To read 16 bytes.
#[derive(Clone, Copy)]
struct Read;

impl Aim for Read {
    const SHARES: bool = false;
    const CLAIMS: bool = false;
    const HOLDS: bool = false;

    #[inline(always)]
    fn look<T: Team>(self, access: &mut Access, _team: T) -> bool {
        match access.look() {
            // While one's own fetch is on its way there is time to clean ahead.
            None => access.ahead != 0 && !access.done,
            Some(Look::Hit(_)) => {
                access.read_hit();
                false
            }
            Some(look) => access.note(look),
        }
    }

    #[inline(always)]
    fn collect<T: Team>(self, access: &mut Access, team: T) {
        access.collect_read::<T, false>(team);
    }
}

/// To hold a line.
#[derive(Clone, Copy)]
struct Hold;

impl Aim for Hold {
    const SHARES: bool = true;
    const CLAIMS: bool = false;
    const HOLDS: bool = true;

    #[inline(always)]
    fn look<T: Team>(self, access: &mut Access, team: T) -> bool {
        access.look_and_pin(team)
    }

    #[inline(always)]
    fn collect<T: Team>(self, access: &mut Access, team: T) {
        access.collect_read::<T, true>(team);
    }
}

impl Access {
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
}
