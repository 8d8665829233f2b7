//! Plain GPU memory with a length: what a kernel uses beside arrays on SSDs.
#![allow(unsafe_code, reason = "typed access to raw device memory")]
// UNSAFETY: the addresses and lengths come from the host's allocations (`from_raw`), every index
// is checked against the length before the access.

use core::marker::PhantomData;

use warpstore_simt::{Device, NativeCells};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::launch::KernelParam;

/// Shared words in GPU memory, for atomics between the threads of a kernel.
///
/// Use [`Cells::at`](warpstore_simt::Cells::at) and the operations of
/// [`Cell`](warpstore_simt::Cell).
pub type Atomics<T> = NativeCells<T, Device>;

/// `len` elements of GPU memory that nobody writes while the kernel runs.
#[repr(C)]
pub struct Global<T> {
    address: *const T,
    len: u64,
}

/// `len` elements of GPU memory, each written by at most one thread of the kernel.
///
/// [`DisjointSlice::set`] is safe to call with any index: two threads that write one element
/// race by whole elements, and the host sees one of the two values.
#[repr(C)]
pub struct DisjointSlice<T> {
    address: *mut T,
    len: u64,
    element: PhantomData<T>,
}

macro_rules! handle {
    ($name:ident) => {
        impl<T> Clone for $name<T> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<T> {}
        // SAFETY: the handle is an address and a length; what it gives access to is plain data.
        unsafe impl<T: Send> Send for $name<T> {}
        // SAFETY: as for Send; elements are copied in and out whole.
        unsafe impl<T: Send> Sync for $name<T> {}
        // SAFETY: repr(C) of an address and a u64, Copy, without references.
        unsafe impl<T: Send + 'static> KernelParam for $name<T> {
            fn memory(&self) -> Option<(u64, u64)> {
                Some((self.address as u64, self.len * size_of::<T>() as u64))
            }
        }
    };
}
handle!(Global);
handle!(DisjointSlice);

impl<T: FromBytes + Immutable + Copy> Global<T> {
    /// Takes `len` elements at `address`.
    ///
    /// # Safety
    /// `address` is aligned and valid for reads of `len` elements by the side that runs the
    /// kernel, and nobody writes them while a kernel that holds the handle runs.
    pub const unsafe fn from_raw(address: u64, len: u64) -> Self {
        Self {
            address: address as *const T,
            len,
        }
    }

    /// Number of elements.
    #[inline(always)]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True if there is no element.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `index`, or `None` outside. Per lane.
    #[inline(always)]
    pub fn get(&self, index: u64) -> Option<T> {
        if index >= self.len {
            return None;
        }
        // SAFETY: the index is below the length that `from_raw` vouched for.
        Some(unsafe { self.address.wrapping_add(index as usize).read() })
    }
}

impl<T: IntoBytes + Immutable + Copy> DisjointSlice<T> {
    /// Takes `len` elements at `address`.
    ///
    /// # Safety
    /// `address` is aligned and valid for writes of `len` elements by the side that runs the
    /// kernel, and nobody reads them before the kernel has ended.
    pub const unsafe fn from_raw(address: u64, len: u64) -> Self {
        Self {
            address: address as *mut T,
            len,
            element: PhantomData,
        }
    }

    /// Number of elements.
    #[inline(always)]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True if there is no element.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes the element at `index`; false (and no write) outside. Per lane.
    #[inline(always)]
    pub fn set(&mut self, index: u64, value: T) -> bool {
        if index >= self.len {
            return false;
        }
        // SAFETY: the index is below the length that `from_raw` vouched for.
        unsafe {
            self.address
                .wrapping_add(index as usize)
                .write_volatile(value)
        };
        true
    }
}
