//! Shared words on the GPU: inline PTX with explicit order and scope.
//!
//! Never `core::sync::atomic`: rustc's read-modify-write operations lose order and scope on this
//! target. Addresses are global memory in every use, so `.global` is right also for pointers
//! that arrive inside structures. No operation here is convergent, so asm is safe to duplicate.
#![allow(unsafe_code, reason = "inline PTX")]
// UNSAFETY: each block issues one PTX memory instruction on an address that `NativeCell::new` or
// `NativeCells::new` vouched for.

use core::arch::asm;

use crate::{Order, Scope};

/// The operations that a word type has on this machine. Callers vouch that `at` is valid and
/// aligned, as `NativeCell::new` says.
#[allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "each method is the machine's form of the Cell method of its name"
)]
pub trait MachineWord: Sized {
    unsafe fn load<S: Scope>(at: *mut Self, order: Order) -> Self;
    unsafe fn store<S: Scope>(at: *mut Self, value: Self, order: Order);
    unsafe fn compare_exchange<S: Scope>(at: *mut Self, old: Self, new: Self, order: Order)
    -> Self;
    unsafe fn fetch_add<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self;
    unsafe fn fetch_or<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self;
    unsafe fn fetch_and<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self;
}

/// One read-modify-write instruction for each order and scope; `order` and `S` are constants
/// after inlining, so one of them is left.
macro_rules! read_modify_write {
    ($order:expr, $scope:ty, $operation:expr, $reg:ident, $at:expr, $($operand:expr),+) => {{
        match ($order, <$scope>::SYSTEM) {
            (Order::Relaxed, false) => read_modify_write!(@ "relaxed.gpu", $operation, $reg, $at, $($operand),+),
            (Order::Relaxed, true) => read_modify_write!(@ "relaxed.sys", $operation, $reg, $at, $($operand),+),
            (Order::Acquire, false) => read_modify_write!(@ "acquire.gpu", $operation, $reg, $at, $($operand),+),
            (Order::Acquire, true) => read_modify_write!(@ "acquire.sys", $operation, $reg, $at, $($operand),+),
            (Order::Release, false) => read_modify_write!(@ "release.gpu", $operation, $reg, $at, $($operand),+),
            (Order::Release, true) => read_modify_write!(@ "release.sys", $operation, $reg, $at, $($operand),+),
            (Order::AcqRel, false) => read_modify_write!(@ "acq_rel.gpu", $operation, $reg, $at, $($operand),+),
            (Order::AcqRel, true) => read_modify_write!(@ "acq_rel.sys", $operation, $reg, $at, $($operand),+),
        }
    }};
    (@ $qualifiers:literal, $operation:expr, $reg:ident, $at:expr, $a:expr) => {{
        let old;
        // SAFETY: the caller vouches for the address.
        unsafe {
            asm!(concat!("atom.", $qualifiers, ".global.", $operation, " {old}, [{at}], {a};"),
                old = out($reg) old, at = in(reg64) $at, a = in($reg) $a, options(nostack));
        }
        old
    }};
    (@ $qualifiers:literal, $operation:expr, $reg:ident, $at:expr, $a:expr, $b:expr) => {{
        let old;
        // SAFETY: the caller vouches for the address.
        unsafe {
            asm!(concat!("atom.", $qualifiers, ".global.", $operation, " {old}, [{at}], {a}, {b};"),
                old = out($reg) old, at = in(reg64) $at, a = in($reg) $a, b = in($reg) $b,
                options(nostack));
        }
        old
    }};
}

macro_rules! load {
    ($qualifiers:expr, $reg:ident, $at:expr) => {{
        let value;
        // SAFETY: the caller vouches for the address.
        unsafe {
            asm!(concat!("ld.", $qualifiers, " {value}, [{at}];"),
                value = out($reg) value, at = in(reg64) $at, options(nostack));
        }
        value
    }};
}

macro_rules! store {
    ($qualifiers:expr, $reg:ident, $at:expr, $value:expr) => {
        // SAFETY: the caller vouches for the address.
        unsafe {
            asm!(concat!("st.", $qualifiers, " [{at}], {value};"),
                value = in($reg) $value, at = in(reg64) $at, options(nostack));
        }
    };
}

macro_rules! machine_word {
    ($word:ty, $reg:ident, $unsigned:literal, $bits:literal) => {
        impl MachineWord for $word {
            #[inline(always)]
            unsafe fn load<S: Scope>(at: *mut Self, order: Order) -> Self {
                match (order, S::SYSTEM) {
                    (Order::Relaxed, false) => {
                        load!(concat!("relaxed.gpu.global.", $unsigned), $reg, at)
                    }
                    (Order::Relaxed, true) => {
                        load!(concat!("relaxed.sys.global.", $unsigned), $reg, at)
                    }
                    (_, false) => load!(concat!("acquire.gpu.global.", $unsigned), $reg, at),
                    (_, true) => load!(concat!("acquire.sys.global.", $unsigned), $reg, at),
                }
            }
            #[inline(always)]
            unsafe fn store<S: Scope>(at: *mut Self, value: Self, order: Order) {
                match (order, S::SYSTEM) {
                    (Order::Relaxed, false) => {
                        store!(concat!("relaxed.gpu.global.", $unsigned), $reg, at, value)
                    }
                    (Order::Relaxed, true) => {
                        store!(concat!("relaxed.sys.global.", $unsigned), $reg, at, value)
                    }
                    (_, false) => {
                        store!(concat!("release.gpu.global.", $unsigned), $reg, at, value)
                    }
                    (_, true) => store!(concat!("release.sys.global.", $unsigned), $reg, at, value),
                }
            }
            #[inline(always)]
            unsafe fn compare_exchange<S: Scope>(
                at: *mut Self,
                old: Self,
                new: Self,
                order: Order,
            ) -> Self {
                read_modify_write!(order, S, concat!("cas.", $bits), $reg, at, old, new)
            }
            #[inline(always)]
            unsafe fn fetch_add<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self {
                read_modify_write!(order, S, concat!("add.", $unsigned), $reg, at, value)
            }
            #[inline(always)]
            unsafe fn fetch_or<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self {
                read_modify_write!(order, S, concat!("or.", $bits), $reg, at, value)
            }
            #[inline(always)]
            unsafe fn fetch_and<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self {
                read_modify_write!(order, S, concat!("and.", $bits), $reg, at, value)
            }
        }
    };
}
machine_word!(u32, reg32, "u32", "b32");
machine_word!(u64, reg64, "u64", "b64");

/// A fence at scope `S`. Every order but Relaxed is `acq_rel`: the one-sided forms need a newer
/// PTX version than the oldest GPU that the project supports.
#[inline(always)]
pub fn fence<S: Scope>(order: Order) {
    if order == Order::Relaxed {
        return;
    }
    if S::SYSTEM {
        // SAFETY: a fence touches no memory of its own.
        unsafe { asm!("fence.acq_rel.sys;", options(nostack)) };
    } else {
        // SAFETY: as above.
        unsafe { asm!("fence.acq_rel.gpu;", options(nostack)) };
    }
}

/// A fence at scope `S` that orders stores before loads too.
#[inline(always)]
pub fn full_fence<S: Scope>() {
    if S::SYSTEM {
        // SAFETY: a fence touches no memory of its own.
        unsafe { asm!("fence.sc.sys;", options(nostack)) };
    } else {
        // SAFETY: as above.
        unsafe { asm!("fence.sc.gpu;", options(nostack)) };
    }
}

/// Stores a doorbell value (`st.mmio`: never merged, never repeated).
///
/// # Safety
/// `at` is valid as `NativeCell::new` says.
#[inline(always)]
pub unsafe fn ring(at: *mut u32, value: u32) {
    store!("mmio.relaxed.sys.global.u32", reg32, at, value);
}

/// Reads 16 bytes by one instruction.
///
/// # Safety
/// `at` is 16-byte aligned and valid, with the word after it, as `NativeCells::new` says.
#[inline(always)]
pub unsafe fn load_pair<S: Scope>(at: *mut u64) -> [u64; 2] {
    let low;
    let high;
    if S::SYSTEM {
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            asm!("ld.relaxed.sys.global.v2.u64 {{{low}, {high}}}, [{at}];",
                low = out(reg64) low, high = out(reg64) high, at = in(reg64) at, options(nostack));
        }
    } else {
        // SAFETY: as above.
        unsafe {
            asm!("ld.relaxed.gpu.global.v2.u64 {{{low}, {high}}}, [{at}];",
                low = out(reg64) low, high = out(reg64) high, at = in(reg64) at, options(nostack));
        }
    }
    [low, high]
}

/// Reads one byte, relaxed.
///
/// # Safety
/// `at` is valid as `NativeBytes::new` says.
#[inline(always)]
pub unsafe fn load_u8<S: Scope>(at: *mut u8) -> u8 {
    let value: u32 = if S::SYSTEM {
        load!("relaxed.sys.global.u8", reg32, at)
    } else {
        load!("relaxed.gpu.global.u8", reg32, at)
    };
    value as u8
}

/// Reads two bytes, relaxed.
///
/// # Safety
/// `at` is aligned, and valid as `NativeBytes::new` says.
#[inline(always)]
pub unsafe fn load_u16<S: Scope>(at: *mut u16) -> u16 {
    if S::SYSTEM {
        load!("relaxed.sys.global.u16", reg16, at)
    } else {
        load!("relaxed.gpu.global.u16", reg16, at)
    }
}

/// Writes one byte, relaxed.
///
/// # Safety
/// As [`load_u8`].
#[inline(always)]
pub unsafe fn store_u8<S: Scope>(at: *mut u8, value: u8) {
    if S::SYSTEM {
        store!("relaxed.sys.global.u8", reg32, at, u32::from(value));
    } else {
        store!("relaxed.gpu.global.u8", reg32, at, u32::from(value));
    }
}

/// Writes two bytes, relaxed.
///
/// # Safety
/// As [`load_u16`].
#[inline(always)]
pub unsafe fn store_u16<S: Scope>(at: *mut u16, value: u16) {
    if S::SYSTEM {
        store!("relaxed.sys.global.u16", reg16, at, value);
    } else {
        store!("relaxed.gpu.global.u16", reg16, at, value);
    }
}

/// Writes 16 bytes by one instruction.
///
/// # Safety
/// As [`load_pair`].
#[inline(always)]
pub unsafe fn store_pair<S: Scope>(at: *mut u64, pair: [u64; 2]) {
    let [low, high] = pair;
    if S::SYSTEM {
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            asm!("st.relaxed.sys.global.v2.u64 [{at}], {{{low}, {high}}};",
                low = in(reg64) low, high = in(reg64) high, at = in(reg64) at, options(nostack));
        }
    } else {
        // SAFETY: as above.
        unsafe {
            asm!("st.relaxed.gpu.global.v2.u64 [{at}], {{{low}, {high}}};",
                low = in(reg64) low, high = in(reg64) high, at = in(reg64) at, options(nostack));
        }
    }
}

/// Backs off: spins for the first turns, then sleeps 100 ns, doubling to 400 ns. Longer sleeps
/// cost throughput and save nothing (measured on an H200).
#[inline(always)]
pub fn pause(attempt: u32) {
    if attempt >= 16 {
        crate::thread::nanosleep(100 << ((attempt - 16) / 16).min(2));
    }
}
