//! Staging: where SSDs do not reach the cache's slots, bytes go through memory that they do reach.
//!
//! ```text
//!  read:   SSD ─ DMA ─► staging piece ─ completion, [ST-1] copy ─► slot ─► VALID
//!  write:  slot ─ [ST-2] copy ─► staging piece ─ doorbell ─► SSD ─ DMA
//! ```
//!
//! Each slot has a piece of its own, in host memory: whoever owns the slot, a fetch or a cleaning,
//! owns the piece, so nobody waits for one. A hit reads the slot and knows nothing of this. Buffers
//! beside the cache lie in host memory themselves.

use nvme_wire::Status;
use warpstore_simt::{Device, Native, Order, Platform, Team, warp};

use crate::finish::Purpose;
use crate::store::Store;

/// Which way bytes are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Copies what reads that have just been completed brought into their slots. Each lane with the tag
/// of its command and how that ended; 0 if it has none. Collective over `team`.
#[inline(never)]
pub(crate) fn bring_in<T: Team>(team: T, store: Store, tag: u64, status: u16) {
    let table = store.desc().table;
    let mut slot = None;
    if Status::from_bits(status).is_success()
        && let Purpose::Fetch { line, version } = Purpose::of(tag)
    {
        // The slot of a fetch that was given up is nobody else's, so a late copy harms nothing.
        let fetch = table
            .fetch_of(line)
            .filter(|fetch| fetch.version == version);
        slot = fetch.map(|fetch| u64::from(fetch.slot));
    }
    // Ordering: [ST-1] [LC-2] the eviction, whose end the completion tells, before the slot's bytes.
    Native::fence::<Device>(Order::AcqRel);
    copy(team, store, slot, Way::In);
}

/// Copies the slots whose lines are about to be written to where the SSDs reach them. Each lane with
/// a slot, if it writes one. Collective over `team`.
#[inline(never)]
pub(crate) fn send_out<T: Team>(team: T, store: Store, slot: Option<u64>) {
    // [ST-2] Who began the cleaning has acquired the bytes ([WB-2]); the barrier passes that on.
    team.sync();
    copy(team, store, slot, Way::Out);
}

/// Copies a line for each lane that has a slot, all lanes together, one line after the other; then
/// they meet, so that what each wrote comes before what any does next.
#[inline(always)]
fn copy<T: Team>(team: T, store: Store, slot: Option<u64>, way: Way) {
    let mut left = team.ballot(slot.is_some());
    while left != 0 {
        let slot = team.shuffle(slot.unwrap_or(0), warp::leader(left));
        copy_line(team, store, slot, way);
        left &= left - 1;
    }
    team.sync();
}

/// A lane has one load of 16 bytes on its way: more would cost registers in every kernel that waits.
#[inline(always)]
fn copy_line<T: Team>(team: T, store: Store, slot: u64, way: Way) {
    let (slots, staging) = (&store.desc().slots, &store.desc().staging);
    let first = slot << slots.shift;
    let mut at = u64::from(team.rank()) * 16;
    while at < 1u64 << slots.shift {
        match way {
            Way::In => slots
                .memory
                .store_u128(first + at, staging.load_u128(first + at)),
            Way::Out => staging.store_u128(first + at, slots.memory.load_u128(first + at)),
        }
        at += u64::from(team.size()) * 16;
    }
}
