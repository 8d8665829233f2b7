//! Threads and warps on the GPU: LLVM's intrinsics, whose convergence the compiler respects.
//!
//! Never inline assembly here: an `asm!` call site carries no `convergent` attribute, and LLVM then
//! copies a barrier into both arms of a branch or hoists a vote out of one.
#![allow(unsafe_code, reason = "declarations of LLVM intrinsics")]
// UNSAFETY: each declaration is that of the LLVM intrinsic it names; the intrinsics touch no
// memory, so they are safe to call with any value.

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    safe fn sreg_tid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
    safe fn sreg_ctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
    safe fn sreg_ntid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.x"]
    safe fn sreg_nctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    safe fn sreg_laneid() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.lanemask.eq"]
    safe fn sreg_lanemask_eq() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.lanemask.lt"]
    safe fn sreg_lanemask_lt() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.smid"]
    safe fn sreg_smid() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.clock64"]
    safe fn sreg_clock64() -> u64;
    #[link_name = "llvm.nvvm.read.ptx.sreg.globaltimer"]
    safe fn sreg_globaltimer() -> u64;
    #[link_name = "llvm.nvvm.nanosleep"]
    safe fn nvvm_nanosleep(ns: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    safe fn barrier_cta_sync_aligned_all(barrier: u32);
    #[link_name = "llvm.nvvm.activemask"]
    safe fn nvvm_activemask() -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    safe fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    safe fn shfl_sync_idx(mask: u32, value: u32, src_lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    safe fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    safe fn vote_any_sync(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    safe fn vote_all_sync(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    safe fn match_any_sync_i32(mask: u32, value: u32) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    safe fn match_any_sync_i64(mask: u32, value: u64) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.add"]
    safe fn redux_sync_add(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.or"]
    safe fn redux_sync_or(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.umin"]
    safe fn redux_sync_umin(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    safe fn redux_sync_umax(value: u32, mask: u32) -> u32;
}

/// Shuffles within the whole warp: no sub-segments, source lane modulo 32 (PTX ISA, "shfl.sync").
const WHOLE_WARP: u32 = 0x1f;

#[inline(always)]
pub fn thread_idx_x() -> u32 {
    sreg_tid_x()
}

#[inline(always)]
pub fn block_idx_x() -> u32 {
    sreg_ctaid_x()
}

#[inline(always)]
pub fn block_dim_x() -> u32 {
    sreg_ntid_x()
}

#[inline(always)]
pub fn grid_dim_x() -> u32 {
    sreg_nctaid_x()
}

#[inline(always)]
pub fn sync_threads() {
    barrier_cta_sync_aligned_all(0);
}

#[inline(always)]
pub fn nanosleep(ns: u32) {
    nvvm_nanosleep(ns);
}

#[inline(always)]
pub fn now_ns() -> u64 {
    sreg_globaltimer()
}

#[inline(always)]
pub fn smid() -> u32 {
    sreg_smid()
}

#[inline(always)]
pub fn clock64() -> u64 {
    sreg_clock64()
}

#[inline(always)]
pub fn lane_id() -> u32 {
    sreg_laneid()
}

#[inline(always)]
pub fn lanemask_lt() -> u32 {
    sreg_lanemask_lt()
}

/// Neither LLVM nor `ptxas` looks into the mask of a lane: that one bit is set in it they do not know,
/// and so the result is each lane's own.
#[inline(always)]
pub fn per_lane(value: u32) -> u32 {
    value ^ sreg_lanemask_eq().count_ones().wrapping_sub(1)
}

#[inline(always)]
pub fn active_mask() -> u32 {
    nvvm_activemask()
}

#[inline(always)]
pub fn sync_mask(mask: u32) {
    bar_warp_sync(mask);
}

#[inline(always)]
pub fn shuffle_u32(mask: u32, value: u32, src_lane: u32) -> u32 {
    shfl_sync_idx(mask, value, src_lane, WHOLE_WARP)
}

#[inline(always)]
pub fn shuffle_u64(mask: u32, value: u64, src_lane: u32) -> u64 {
    let low = shuffle_u32(mask, value as u32, src_lane);
    let high = shuffle_u32(mask, (value >> 32) as u32, src_lane);
    (high as u64) << 32 | low as u64
}

#[inline(always)]
pub fn ballot(mask: u32, predicate: bool) -> u32 {
    vote_ballot_sync(mask, predicate)
}

#[inline(always)]
pub fn any(mask: u32, predicate: bool) -> bool {
    vote_any_sync(mask, predicate)
}

#[inline(always)]
pub fn all(mask: u32, predicate: bool) -> bool {
    vote_all_sync(mask, predicate)
}

#[inline(always)]
pub fn match_any_u32(mask: u32, value: u32) -> u32 {
    match_any_sync_i32(mask, value)
}

#[inline(always)]
pub fn match_any_u64(mask: u32, value: u64) -> u32 {
    match_any_sync_i64(mask, value)
}

#[inline(always)]
pub fn redux_add(mask: u32, value: u32) -> u32 {
    redux_sync_add(value, mask)
}

#[inline(always)]
pub fn redux_or(mask: u32, value: u32) -> u32 {
    redux_sync_or(value, mask)
}

#[inline(always)]
pub fn redux_min(mask: u32, value: u32) -> u32 {
    redux_sync_umin(value, mask)
}

#[inline(always)]
pub fn redux_max(mask: u32, value: u32) -> u32 {
    redux_sync_umax(value, mask)
}
