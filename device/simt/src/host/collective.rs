//! Collectives as the running lane calls them: bring a value, wait for the others, take a result.

use std::fmt;
use std::panic::Location;

use super::lane::{self, Suspension};
use super::warp::Seat;

/// What lanes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each variant is the function of crate::warp that Display names"
)]
pub enum Operation {
    Sync,
    Shuffle,
    Ballot,
    Any,
    All,
    MatchAny,
    Add,
    Or,
    Min,
    Max,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync_mask",
            Self::Shuffle => "shuffle_sync",
            Self::Ballot => "ballot_sync",
            Self::Any => "any_sync",
            Self::All => "all_sync",
            Self::MatchAny => "match_any_sync",
            Self::Add => "redux_add_sync",
            Self::Or => "redux_or_sync",
            Self::Min => "redux_min_sync",
            Self::Max => "redux_max_sync",
        })
    }
}

/// One collective of the running lane. `source` is read by `Shuffle` alone.
#[inline]
#[track_caller]
fn together(operation: Operation, mask: u32, value: u64, source: u32) -> u64 {
    let site = Location::caller();
    lane::current(|lane| {
        let idx = lane.map_or(0, |lane| lane.idx());
        // Destructors of a lane that panics, or that was given up, finish alone: nobody comes.
        if mask == 1 << idx || std::thread::panicking() {
            return alone(operation, 1 << idx, value);
        }
        let Some(lane) = lane else {
            panic!(
                "{operation} with mask {mask:#x} outside a launch, where a warp is lane 0 alone \
                 (mask 0x1): use the mask that active_mask returned"
            );
        };
        assert!(
            mask >> idx & 1 == 1,
            "lane {idx} called {operation} with mask {mask:#x}, in which it is not"
        );
        assert!(
            operation != Operation::Shuffle || mask >> (source % 32) & 1 == 1,
            "lane {idx} called {operation} with mask {mask:#x} for the value of lane {source}, \
             which is not in it"
        );
        let warp = lane.warp();
        if !warp.arrive(idx, Seat::new(operation, mask, value, source % 32, site)) {
            lane.suspend(Suspension::Waiting);
        }
        warp.result(idx)
    })
}

/// What a collective of one lane gives.
#[inline]
fn alone(operation: Operation, bit: u32, value: u64) -> u64 {
    match operation {
        Operation::Ballot if value == 0 => 0,
        Operation::Ballot | Operation::MatchAny => u64::from(bit),
        _ => value,
    }
}

pub(crate) fn lane_id() -> u32 {
    lane::current(|lane| lane.map_or(0, |lane| lane.idx()))
}

pub(crate) fn lanemask_lt() -> u32 {
    (1 << lane_id()) - 1
}

/// There is no compiler here that would take the lanes for one.
pub(crate) fn per_lane(value: u32) -> u32 {
    value
}

#[track_caller]
pub(crate) fn active_mask() -> u32 {
    let site = Location::caller();
    lane::current(|lane| match lane {
        Some(lane) if !std::thread::panicking() => {
            lane.warp().ask(lane.idx(), site);
            lane.suspend(Suspension::Waiting);
            lane.warp().result(lane.idx()) as u32
        }
        Some(lane) => 1 << lane.idx(),
        None => 1,
    })
}

#[track_caller]
pub(crate) fn sync_mask(mask: u32) {
    together(Operation::Sync, mask, 0, 0);
}

#[track_caller]
pub(crate) fn shuffle_u32(mask: u32, value: u32, src_lane: u32) -> u32 {
    together(Operation::Shuffle, mask, u64::from(value), src_lane) as u32
}

#[track_caller]
pub(crate) fn shuffle_u64(mask: u32, value: u64, src_lane: u32) -> u64 {
    together(Operation::Shuffle, mask, value, src_lane)
}

#[track_caller]
pub(crate) fn ballot(mask: u32, predicate: bool) -> u32 {
    together(Operation::Ballot, mask, u64::from(predicate), 0) as u32
}

#[track_caller]
pub(crate) fn any(mask: u32, predicate: bool) -> bool {
    together(Operation::Any, mask, u64::from(predicate), 0) != 0
}

#[track_caller]
pub(crate) fn all(mask: u32, predicate: bool) -> bool {
    together(Operation::All, mask, u64::from(predicate), 0) != 0
}

#[track_caller]
pub(crate) fn match_any_u32(mask: u32, value: u32) -> u32 {
    together(Operation::MatchAny, mask, u64::from(value), 0) as u32
}

#[track_caller]
pub(crate) fn match_any_u64(mask: u32, value: u64) -> u32 {
    together(Operation::MatchAny, mask, value, 0) as u32
}

#[track_caller]
pub(crate) fn redux_add(mask: u32, value: u32) -> u32 {
    together(Operation::Add, mask, u64::from(value), 0) as u32
}

#[track_caller]
pub(crate) fn redux_or(mask: u32, value: u32) -> u32 {
    together(Operation::Or, mask, u64::from(value), 0) as u32
}

#[track_caller]
pub(crate) fn redux_min(mask: u32, value: u32) -> u32 {
    together(Operation::Min, mask, u64::from(value), 0) as u32
}

#[track_caller]
pub(crate) fn redux_max(mask: u32, value: u32) -> u32 {
    together(Operation::Max, mask, u64::from(value), 0) as u32
}
