//! Lanes that act together: a protocol written once, for a warp and for a lane alone.
//!
//! Lanes that are known to be all that can be at a place are [`Lanes`]. In divergent control flow a
//! lane does not know who else may come to the same code, and the GPU's compiler takes what a vote
//! gave for the same in all lanes that are converged, which stops being true when lanes that came at
//! different times meet in a loop ([HW-2]): [`Party`] hides from it that masks come from votes.
//! [`Solo`] uses no collectives at all.

use crate::warp::{self, WarpValue};

/// A set of lanes that run the same code with the same control flow.
///
/// Every function but `size`, `mask`, `rank` and `leads` is collective over the team.
pub trait Team: Copy {
    /// Number of lanes.
    fn size(self) -> u32;
    /// The lanes as bits.
    fn mask(self) -> u32;
    /// Number of lanes before this one.
    fn rank(self) -> u32;
    /// Whether this is the lane that acts for all: the lowest.
    fn leads(self) -> bool;
    /// The lanes for which `predicate` holds, as bits.
    fn ballot(self, predicate: bool) -> u32;
    /// Whether `predicate` holds for any lane.
    fn any(self, predicate: bool) -> bool;
    /// Whether `predicate` holds for every lane.
    fn all(self, predicate: bool) -> bool;
    /// The value of lane `src`, which is one of the team.
    fn shuffle<T: WarpValue>(self, value: T, src: u32) -> T;
    /// The leader's value, for all.
    fn broadcast<T: WarpValue>(self, value: T) -> T;
    /// The lanes that have the same `value` as this one, as bits.
    fn matching(self, value: u64) -> u32;
    /// The largest value.
    fn max(self, value: u32) -> u32;
    /// Waits for all lanes; what they wrote before is seen by all after.
    fn sync(self);
    /// The team of the lanes in `mask`, a subset that holds this lane. Meanwhile the others wait
    /// in a collective of the whole team.
    fn part(self, mask: u32) -> Self;
}

/// A lane alone.
#[derive(Clone, Copy, Debug)]
pub struct Solo;

/// The lanes of a mask, which are together: all of them call, in uniform control flow.
#[derive(Clone, Copy, Debug)]
pub struct Lanes(pub u32);

impl Lanes {
    /// A whole warp.
    pub const WARP: Self = Self(u32::MAX);
}

/// Lanes that came to a place together, while others of their warp may be there too with a mask of
/// their own ([HW-2]).
#[derive(Clone, Copy, Debug)]
pub struct Party(u32);

impl Party {
    /// The lanes of `present`, which [`warp::active_mask`] gave just now.
    #[inline(always)]
    pub fn of(present: u32) -> Self {
        Self(warp::per_lane(present))
    }
}

impl Team for Solo {
    #[inline(always)]
    fn size(self) -> u32 {
        1
    }
    #[inline(always)]
    fn mask(self) -> u32 {
        1 << warp::lane_id()
    }
    #[inline(always)]
    fn rank(self) -> u32 {
        0
    }
    #[inline(always)]
    fn leads(self) -> bool {
        true
    }
    #[inline(always)]
    fn ballot(self, predicate: bool) -> u32 {
        if predicate { self.mask() } else { 0 }
    }
    #[inline(always)]
    fn any(self, predicate: bool) -> bool {
        predicate
    }
    #[inline(always)]
    fn all(self, predicate: bool) -> bool {
        predicate
    }
    #[inline(always)]
    fn shuffle<T: WarpValue>(self, value: T, _src: u32) -> T {
        value
    }
    #[inline(always)]
    fn broadcast<T: WarpValue>(self, value: T) -> T {
        value
    }
    #[inline(always)]
    fn matching(self, _value: u64) -> u32 {
        self.mask()
    }
    #[inline(always)]
    fn max(self, value: u32) -> u32 {
        value
    }
    #[inline(always)]
    fn sync(self) {}
    #[inline(always)]
    fn part(self, _mask: u32) -> Self {
        self
    }
}

impl Team for Lanes {
    #[inline(always)]
    fn size(self) -> u32 {
        self.0.count_ones()
    }
    #[inline(always)]
    fn mask(self) -> u32 {
        self.0
    }
    #[inline(always)]
    fn rank(self) -> u32 {
        warp::rank(self.0)
    }
    #[inline(always)]
    fn leads(self) -> bool {
        warp::lane_id() == warp::leader(self.0)
    }
    #[inline(always)]
    fn ballot(self, predicate: bool) -> u32 {
        warp::ballot_sync(self.0, predicate)
    }
    #[inline(always)]
    fn any(self, predicate: bool) -> bool {
        warp::any_sync(self.0, predicate)
    }
    #[inline(always)]
    fn all(self, predicate: bool) -> bool {
        warp::all_sync(self.0, predicate)
    }
    #[inline(always)]
    fn shuffle<T: WarpValue>(self, value: T, src: u32) -> T {
        warp::shuffle_sync(self.0, value, src)
    }
    #[inline(always)]
    fn broadcast<T: WarpValue>(self, value: T) -> T {
        warp::shuffle_sync(self.0, value, warp::leader(self.0))
    }
    #[inline(always)]
    fn matching(self, value: u64) -> u32 {
        warp::match_any_u64_sync(self.0, value)
    }
    #[inline(always)]
    fn max(self, value: u32) -> u32 {
        warp::redux_max_sync(self.0, value)
    }
    #[inline(always)]
    fn sync(self) {
        warp::sync_mask(self.0);
    }
    #[inline(always)]
    fn part(self, mask: u32) -> Self {
        Self(mask)
    }
}

impl Team for Party {
    #[inline(always)]
    fn size(self) -> u32 {
        self.0.count_ones()
    }
    #[inline(always)]
    fn mask(self) -> u32 {
        self.0
    }
    #[inline(always)]
    fn rank(self) -> u32 {
        warp::rank(self.0)
    }
    #[inline(always)]
    fn leads(self) -> bool {
        warp::lane_id() == warp::leader(self.0)
    }
    #[inline(always)]
    fn ballot(self, predicate: bool) -> u32 {
        warp::per_lane(warp::ballot_sync(self.0, predicate)) & self.0
    }
    #[inline(always)]
    fn any(self, predicate: bool) -> bool {
        self.ballot(predicate) != 0
    }
    #[inline(always)]
    fn all(self, predicate: bool) -> bool {
        self.ballot(predicate) == self.0
    }
    #[inline(always)]
    fn shuffle<T: WarpValue>(self, value: T, src: u32) -> T {
        warp::shuffle_sync(self.0, value, warp::per_lane(src))
    }
    #[inline(always)]
    fn broadcast<T: WarpValue>(self, value: T) -> T {
        warp::shuffle_sync(self.0, value, warp::leader(self.0))
    }
    #[inline(always)]
    fn matching(self, value: u64) -> u32 {
        warp::per_lane(warp::match_any_u64_sync(self.0, value)) & self.0
    }
    /// By votes, since a reduction's result is one register for all lanes that are converged.
    #[inline(always)]
    fn max(self, value: u32) -> u32 {
        let mut left = self.ballot(value != 0);
        let mut largest = 0;
        while left != 0 {
            let other = self.shuffle(value, warp::leader(left));
            largest = if other > largest { other } else { largest };
            left &= left - 1;
        }
        largest
    }
    #[inline(always)]
    fn sync(self) {
        warp::sync_mask(self.0);
    }
    #[inline(always)]
    fn part(self, mask: u32) -> Self {
        Self(mask)
    }
}
