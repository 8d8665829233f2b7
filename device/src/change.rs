//! Changing elements: what `set` and `fetch_add` do, in the line while it is pinned, or beside the
//! cache while it is claimed.

use core::hint::black_box;

use line_cache::{Look, Meta};
use warpstore_simt::{Device, Lanes, NativeBytes, Solo, Team, warp};

use crate::access::{Access, Chunk};
use crate::fetch::{Aim, run};
use crate::store::Store;

/// What becomes of one element.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    /// Bytes of the element: 1, 2, 4, 8 or 16.
    pub bytes: u32,
    /// Whether the value is added (4 or 8 bytes), or replaces what is there.
    pub adds: bool,
    /// The value, little-endian.
    pub value: [u64; 2],
}

const ADDS: u32 = 1 << 8;

impl Change {
    /// Changes the element at byte `at` of `memory`, in one step. The old value of an element
    /// that is added to, else 0.
    #[inline(always)]
    pub(crate) fn apply(self, memory: NativeBytes<Device>, at: u64) -> u64 {
        let [low, _] = self.value;
        match (self.bytes, self.adds) {
            (4, true) => return u64::from(memory.fetch_add_u32(at, low as u32)),
            (_, true) => return memory.fetch_add_u64(at, low),
            (1, _) => memory.store_u8(at, low as u8),
            (2, _) => memory.store_u16(at, low as u16),
            (4, _) => memory.store_u32(at, low as u32),
            (8, _) => memory.store_u64(at, low),
            _ => memory.store_u128(at, self.value),
        }
        0
    }
}

/// Changes the element at byte `offset` of `line`. Any lanes may call; a whole warp that comes
/// together works together. The chunk's `low` is [`Change::apply`]'s value.
#[inline(always)]
pub(crate) fn change(store: Store, line: u64, offset: u64, change: Change) -> Chunk {
    let kind = change.bytes | if change.adds { ADDS } else { 0 };
    let [low, high] = change.value;
    let call: fn(Store, u64, u64, u32, u64, u64) -> Chunk = change_element;
    // By its address, as in `fetch::read_chunk`.
    black_box(call)(store, line, offset, kind, low, high)
}

#[inline(never)]
fn change_element(store: Store, line: u64, offset: u64, kind: u32, low: u64, high: u64) -> Chunk {
    let aim = Write(Change {
        bytes: kind & (ADDS - 1),
        adds: kind & ADDS != 0,
        value: [low, high],
    });
    let access = Access::new(store, line, offset);
    if warp::active_mask() == Lanes::WARP.0 {
        run(Lanes::WARP, aim, access)
    } else {
        run(Solo, aim, access)
    }
}

/// To change one element.
#[derive(Clone, Copy)]
struct Write(Change);

impl Aim for Write {
    const SHARES: bool = true;
    const CLAIMS: bool = true;
    const HOLDS: bool = false;

    #[inline(always)]
    fn look<T: Team>(self, access: &mut Access, team: T) -> bool {
        let look = access.look();
        let resident = matches!(look, Some(Look::Hit(_)));
        let pinning = team.ballot(resident);
        if resident {
            self.change_resident(access, team.part(pinning));
        }
        match look {
            None => access.ahead != 0 && !access.done,
            Some(look) => access.note(look),
        }
    }

    #[inline(always)]
    fn collect<T: Team>(self, access: &mut Access, team: T) {
        access.collect_write::<T, Self>(team, Some(self.0));
    }
}

impl Write {
    /// Changes the line in its slot, one pin for those that change one line. Collective over
    /// `team`. Nothing happens if the line has left meanwhile.
    #[inline(always)]
    fn change_resident<T: Team>(self, access: &mut Access, team: T) {
        let desc = access.store.desc();
        let leader = warp::leader(team.matching(access.line));
        let leads = leader == warp::lane_id();
        let word = if leads { access.pin_alone().bits() } else { 0 };
        // The barrier passes the leader's acquire on to the lanes that change the bytes.
        team.sync();
        let meta = Meta::from_bits(team.shuffle(word, leader));
        let pinned = matches!(meta.look(), Look::Hit(_));
        if pinned {
            let at = (u64::from(meta.slot()) << desc.slots.shift) + access.offset;
            let old = self.0.apply(desc.slots.memory, at);
            access.finish(old, 0);
        }
        // [WB-1] The leader says so for all, so their bytes come first.
        team.sync();
        if pinned && leads {
            desc.table.soil(access.line);
            desc.table.unpin(access.line);
        }
    }
}

/// Writes the whole of `line` from `buffer`, a bounce buffer of the caller's. Collective over
/// `team`, all lanes with the same line and buffer.
#[inline(always)]
pub(crate) fn overwrite<T: Team>(store: Store, line: u64, buffer: u64, team: T) -> Chunk {
    run(team, Overwrite(buffer), Access::new(store, line, 0))
}

/// To write a whole line: into its slot if it is resident, else straight to the SSD.
#[derive(Clone, Copy)]
struct Overwrite(u64);

impl Aim for Overwrite {
    const SHARES: bool = true;
    const CLAIMS: bool = true;
    const HOLDS: bool = true;

    #[inline(always)]
    fn brings(self) -> Option<u64> {
        Some(self.0)
    }

    #[inline(always)]
    fn look<T: Team>(self, access: &mut Access, team: T) -> bool {
        if access.done || access.bounce != 0 {
            return false;
        }
        match access.pin(team) {
            Look::Hit(meta) => {
                self.copy_into(access, u64::from(meta.slot()), team);
                false
            }
            // Nothing of what the line holds matters, so no fetch is waited for by its version.
            Look::Busy(_) => false,
            look => access.note(look),
        }
    }

    #[inline(always)]
    fn collect<T: Team>(self, access: &mut Access, team: T) {
        access.collect_write::<T, Self>(team, None);
    }
}

impl Overwrite {
    /// Copies the buffer into the slot, which is pinned for the team.
    #[inline(always)]
    fn copy_into<T: Team>(self, access: &mut Access, slot: u64, team: T) {
        let desc = access.store.desc();
        let bytes = 1u64 << desc.slots.shift;
        let mut at = u64::from(team.rank()) * 16;
        while at < bytes {
            let chunk = desc.bounce.load_chunk(self.0, at);
            desc.slots.store_chunk(slot, at, chunk);
            at += u64::from(team.size()) * 16;
        }
        // [WB-1] as for one element.
        team.sync();
        if team.leads() {
            desc.table.soil(access.line);
            desc.table.unpin(access.line);
        }
        access.finish(0, 0);
    }
}
