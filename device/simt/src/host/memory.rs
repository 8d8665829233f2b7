//! Shared words on the host: `core::sync::atomic` over raw addresses, and time.
#![allow(unsafe_code, reason = "atomics over raw addresses")]
#![allow(
    clippy::extra_unused_type_parameters,
    reason = "every scope is the whole machine here; on the GPU the parameter tells them apart"
)]
// UNSAFETY: the addresses come from `NativeCell::new` and `NativeCells::new`, whose callers
// vouch for them.

use core::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence as atomic_fence,
};

use super::schedule;
use crate::{Order, Scope, System};

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

// The orders as the host's atomics name them.
impl Order {
    /// For a read-modify-write operation or a fence.
    pub const fn both(self) -> Ordering {
        match self {
            Self::Relaxed => Ordering::Relaxed,
            Self::Acquire => Ordering::Acquire,
            Self::Release => Ordering::Release,
            Self::AcqRel => Ordering::AcqRel,
        }
    }

    /// For a load, which cannot release.
    pub const fn loading(self) -> Ordering {
        match self {
            Self::Relaxed => Ordering::Relaxed,
            _ => Ordering::Acquire,
        }
    }

    /// For a store, which cannot acquire.
    pub const fn storing(self) -> Ordering {
        match self {
            Self::Relaxed => Ordering::Relaxed,
            _ => Ordering::Release,
        }
    }
}

macro_rules! machine_word {
    ($word:ty, $atomic:ty) => {
        impl MachineWord for $word {
            #[inline]
            unsafe fn load<S: Scope>(at: *mut Self, order: Order) -> Self {
                schedule::interleave();
                // SAFETY: the caller vouches for the address.
                unsafe { <$atomic>::from_ptr(at) }.load(order.loading())
            }
            #[inline]
            unsafe fn store<S: Scope>(at: *mut Self, value: Self, order: Order) {
                schedule::interleave();
                // SAFETY: the caller vouches for the address.
                unsafe { <$atomic>::from_ptr(at) }.store(value, order.storing());
            }
            #[inline]
            unsafe fn compare_exchange<S: Scope>(
                at: *mut Self,
                old: Self,
                new: Self,
                order: Order,
            ) -> Self {
                schedule::interleave();
                // SAFETY: the caller vouches for the address.
                let word = unsafe { <$atomic>::from_ptr(at) };
                match word.compare_exchange(old, new, order.both(), Ordering::Relaxed) {
                    Ok(found) | Err(found) => found,
                }
            }
            #[inline]
            unsafe fn fetch_add<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self {
                schedule::interleave();
                // SAFETY: the caller vouches for the address.
                unsafe { <$atomic>::from_ptr(at) }.fetch_add(value, order.both())
            }
            #[inline]
            unsafe fn fetch_or<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self {
                schedule::interleave();
                // SAFETY: the caller vouches for the address.
                unsafe { <$atomic>::from_ptr(at) }.fetch_or(value, order.both())
            }
            #[inline]
            unsafe fn fetch_and<S: Scope>(at: *mut Self, value: Self, order: Order) -> Self {
                schedule::interleave();
                // SAFETY: the caller vouches for the address.
                unsafe { <$atomic>::from_ptr(at) }.fetch_and(value, order.both())
            }
        }
    };
}
machine_word!(u32, AtomicU32);
machine_word!(u64, AtomicU64);

/// Where fences meet under ThreadSanitizer, which does not know them.
static FENCES: AtomicU64 = AtomicU64::new(0);

/// A fence. Under ThreadSanitizer an access to one word that all fences share: whatever two fences
/// order, this orders too, and more, so the tool misses races that a wrong fence lets through.
#[inline]
pub fn fence<S: Scope>(order: Order) {
    schedule::interleave();
    if order == Order::Relaxed {
        return;
    }
    if cfg!(warpstore_tsan) {
        FENCES.fetch_add(1, order.both());
    } else {
        atomic_fence(order.both());
    }
}

/// A fence that orders stores before loads too.
#[inline]
pub fn full_fence<S: Scope>() {
    schedule::interleave();
    atomic_fence(Ordering::SeqCst);
}

/// Stores a doorbell value.
///
/// # Safety
/// `at` is valid as `NativeCell::new` says.
#[inline]
pub unsafe fn ring(at: *mut u32, value: u32) {
    // SAFETY: the caller vouches for the address.
    unsafe { u32::store::<System>(at, value, Order::Relaxed) };
}

/// Reads two words, each atomically.
///
/// # Safety
/// `at` and the word after it are valid as `NativeCells::new` says.
#[inline]
pub unsafe fn load_pair<S: Scope>(at: *mut u64) -> [u64; 2] {
    // SAFETY: the caller vouches for both addresses.
    let low = unsafe { u64::load::<S>(at, Order::Relaxed) };
    // SAFETY: as above.
    let high = unsafe { u64::load::<S>(at.wrapping_add(1), Order::Relaxed) };
    [low, high]
}

/// Reads one byte, relaxed.
///
/// # Safety
/// `at` is valid as `NativeBytes::new` says.
#[inline]
pub unsafe fn load_u8<S: Scope>(at: *mut u8) -> u8 {
    schedule::interleave();
    // SAFETY: the caller vouches for the address.
    unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed)
}

/// Reads two bytes, relaxed.
///
/// # Safety
/// `at` is aligned, and valid as `NativeBytes::new` says.
#[inline]
pub unsafe fn load_u16<S: Scope>(at: *mut u16) -> u16 {
    schedule::interleave();
    // SAFETY: the caller vouches for the address.
    unsafe { AtomicU16::from_ptr(at) }.load(Ordering::Relaxed)
}

/// Writes one byte, relaxed.
///
/// # Safety
/// As [`load_u8`].
#[inline]
pub unsafe fn store_u8<S: Scope>(at: *mut u8, value: u8) {
    schedule::interleave();
    // SAFETY: the caller vouches for the address.
    unsafe { AtomicU8::from_ptr(at) }.store(value, Ordering::Relaxed);
}

/// Writes two bytes, relaxed.
///
/// # Safety
/// As [`load_u16`].
#[inline]
pub unsafe fn store_u16<S: Scope>(at: *mut u16, value: u16) {
    schedule::interleave();
    // SAFETY: the caller vouches for the address.
    unsafe { AtomicU16::from_ptr(at) }.store(value, Ordering::Relaxed);
}

/// Writes two words, each atomically.
///
/// # Safety
/// As [`load_pair`].
#[inline]
pub unsafe fn store_pair<S: Scope>(at: *mut u64, pair: [u64; 2]) {
    // SAFETY: the caller vouches for both addresses.
    unsafe { u64::store::<S>(at, pair[0], Order::Relaxed) };
    // SAFETY: as above.
    unsafe { u64::store::<S>(at.wrapping_add(1), pair[1], Order::Relaxed) };
}

/// Gives way to the other lanes, and to other OS threads where there is no warp.
#[inline]
pub fn pause(attempt: u32) {
    schedule::pause(attempt);
}
