//! Warps: 32 threads, called lanes, and the operations that they do together.
//!
//! A mask has one bit for each lane, lane 0 lowest. Functions that end in `_sync` are
//! collective: every lane named in `mask` calls the same function with the same mask, the caller
//! is one of them, and no lane returns before all have come. The pattern of device code is
//!
//! 1. take `let mask = warp::active_mask();` once,
//! 2. then use collectives with that mask alone, in control flow that is uniform for its lanes.
//!
//! `active_mask` may return any set of lanes that reached it together, the caller included: two
//! lanes that were converged a moment ago may come back in different sets. Correctness must come
//! from ownership, never from who is converged; the host runner draws sets at random to show it.
//!
//! Outside a launch a warp has one lane: `lane_id` is 0, `active_mask` is 1, and a collective
//! with mask 1 gives back what the lane brought.
//!
//! On the host a lane that never comes is reported with its warp, operation and masks
//! ([`crate::host::LaunchFault`]); on the GPU it is undefined behaviour or a hang.

use core::num::NonZero;

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::collective as machine;
#[cfg(target_arch = "nvptx64")]
use crate::ptx::intrinsics as machine;

/// Index of the lane in its warp, 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    machine::lane_id()
}

/// A set of lanes that reached this call together; the caller is in it.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn active_mask() -> u32 {
    machine::active_mask()
}

/// `value`, and the compiler cannot tell that it is the same in all lanes that are converged, even if
/// a vote gave it ([HW-2]).
#[inline(always)]
pub fn per_lane(value: u32) -> u32 {
    machine::per_lane(value)
}

/// The lanes below this one.
#[inline(always)]
pub fn lanemask_lt() -> u32 {
    machine::lanemask_lt()
}

/// Collective. Waits for the lanes of `mask`, and orders their memory operations among them.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync_mask(mask: u32) {
    machine::sync_mask(mask);
}

/// A value that lanes can hand to one another.
pub trait WarpValue: Copy {
    /// See [`shuffle_sync`].
    fn shuffle(self, mask: u32, src_lane: u32) -> Self;
}

impl WarpValue for u32 {
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    fn shuffle(self, mask: u32, src_lane: u32) -> Self {
        machine::shuffle_u32(mask, self, src_lane)
    }
}

impl WarpValue for u64 {
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    fn shuffle(self, mask: u32, src_lane: u32) -> Self {
        machine::shuffle_u64(mask, self, src_lane)
    }
}

/// Collective. The value that lane `src_lane` (modulo 32) brought. That lane is in `mask`; on the
/// GPU the result is undefined otherwise, the host reports it.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn shuffle_sync<T: WarpValue>(mask: u32, value: T, src_lane: u32) -> T {
    value.shuffle(mask, src_lane)
}

/// Collective. The lanes of `mask` whose `predicate` is true.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn ballot_sync(mask: u32, predicate: bool) -> u32 {
    machine::ballot(mask, predicate)
}

/// Collective. True if `predicate` is true on some lane of `mask`.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn any_sync(mask: u32, predicate: bool) -> bool {
    machine::any(mask, predicate)
}

/// Collective. True if `predicate` is true on every lane of `mask`.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn all_sync(mask: u32, predicate: bool) -> bool {
    machine::all(mask, predicate)
}

/// Collective. The lanes of `mask` that brought the caller's `value`.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn match_any_sync(mask: u32, value: u32) -> u32 {
    machine::match_any_u32(mask, value)
}

/// Collective. The lanes of `mask` that brought the caller's `value`.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn match_any_u64_sync(mask: u32, value: u64) -> u32 {
    machine::match_any_u64(mask, value)
}

/// Collective. Sum of the values, wrapping.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn redux_add_sync(mask: u32, value: u32) -> u32 {
    machine::redux_add(mask, value)
}

/// Collective. Bitwise or of the values.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn redux_or_sync(mask: u32, value: u32) -> u32 {
    machine::redux_or(mask, value)
}

/// Collective. Least of the values.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn redux_min_sync(mask: u32, value: u32) -> u32 {
    machine::redux_min(mask, value)
}

/// Collective. Greatest of the values.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn redux_max_sync(mask: u32, value: u32) -> u32 {
    machine::redux_max(mask, value)
}

/// The lowest lane of `mask`: the one that acts for all. 0 for an empty mask, which no caller of
/// a collective can have.
#[inline(always)]
pub fn leader(mask: u32) -> u32 {
    // `u32::trailing_zeros` branches on zero in PTX; the non-zero form is two instructions.
    match NonZero::new(mask) {
        Some(mask) => mask.trailing_zeros(),
        None => 0,
    }
}

/// How many lanes of `mask` are below this one: the lane's place among them.
#[inline(always)]
pub fn rank(mask: u32) -> u32 {
    (mask & lanemask_lt()).count_ones()
}
