//! Native memory: handles are raw addresses, operations are the machine's own.
#![allow(
    unsafe_code,
    reason = "cells are raw addresses of memory that other agents write"
)]
// UNSAFETY: shared memory is reached through raw pointers, whose validity is the contract of
// `NativeCell::new` and `NativeCells::new`; every operation relies on nothing else.

use core::marker::PhantomData;

use crate::{Cell, Cells, Order, Platform, Scope, System, Word};

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use crate::host::memory as machine;
#[cfg(target_arch = "nvptx64")]
pub(crate) use crate::ptx::memory as machine;

/// The memory of the machine that the code is compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// A word at a raw address. `repr(transparent)`: may stand in kernel parameters.
#[repr(transparent)]
pub struct NativeCell<T, S> {
    address: *mut T,
    scope: PhantomData<S>,
}

/// `len` words from a raw address on. `repr(C)`: may stand in kernel parameters.
#[repr(C)]
pub struct NativeCells<T, S> {
    address: *mut T,
    len: u64,
    scope: PhantomData<S>,
}

impl<T, S> Clone for NativeCell<T, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, S> Copy for NativeCell<T, S> {}
impl<T, S> Clone for NativeCells<T, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, S> Copy for NativeCells<T, S> {}

// SAFETY: the handle is an address; every access through it is atomic, whoever holds it.
unsafe impl<T: Word, S: Scope> Send for NativeCell<T, S> {}
// SAFETY: as for Send.
unsafe impl<T: Word, S: Scope> Sync for NativeCell<T, S> {}
// SAFETY: as for NativeCell.
unsafe impl<T: Word, S: Scope> Send for NativeCells<T, S> {}
// SAFETY: as for NativeCell.
unsafe impl<T: Word, S: Scope> Sync for NativeCells<T, S> {}

impl<T: Word, S: Scope> NativeCell<T, S> {
    /// Takes the word at `address`.
    ///
    /// # Safety
    /// `address` is aligned for `T`, valid for reads and writes by this agent as long as the
    /// handle or a copy is used, and accessed by others only atomically or across a fence.
    #[inline(always)]
    pub const unsafe fn new(address: *mut T) -> Self {
        Self {
            address,
            scope: PhantomData,
        }
    }

    /// Address of the word, for descriptors.
    #[inline(always)]
    pub const fn address(self) -> *mut T {
        self.address
    }
}

impl<T: Word, S: Scope> NativeCells<T, S> {
    /// Takes `len` words from `address` on.
    ///
    /// # Safety
    /// As [`NativeCell::new`], for each of the `len` words; `len` is at least 1 wherever
    /// [`Cells::at`] is called, and at least 2, from a 16-byte aligned address, wherever pairs
    /// are accessed.
    #[inline(always)]
    pub const unsafe fn new(address: *mut T, len: u64) -> Self {
        Self {
            address,
            len,
            scope: PhantomData,
        }
    }

    /// Address of the first word, for descriptors and DMA.
    #[inline(always)]
    pub const fn address(self) -> *mut T {
        self.address
    }

    /// The `len` words from `first` on: how the CPU divides an allocation.
    ///
    /// # Panics
    /// If the part is empty or does not lie inside the array.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn part(self, first: u64, len: u64) -> Self {
        let inside = first <= self.len && len <= self.len - first;
        assert!(
            inside && len > 0,
            "words {first}..{first}+{len} of {}",
            self.len
        );
        // `wrapping_add`: `first` is below `len`, so the address stays inside the array.
        Self {
            address: self.address.wrapping_add(first as usize),
            len,
            scope: PhantomData,
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<S: Scope> NativeCells<u64, S> {
    /// The same memory as words of 4 bytes, the low half of each word first.
    ///
    /// # Safety
    /// Nobody here accesses it by words of 8 bytes while the halves are used.
    pub unsafe fn halves(self) -> NativeCells<u32, S> {
        NativeCells {
            address: self.address.cast(),
            len: 2 * self.len,
            scope: PhantomData,
        }
    }
}

impl<T: Word, S: Scope> Cell<T> for NativeCell<T, S> {
    #[inline(always)]
    fn load(self, order: Order) -> T {
        // SAFETY: the address is valid by the contract of `new`.
        unsafe { T::load::<S>(self.address, order) }
    }
    #[inline(always)]
    fn store(self, value: T, order: Order) {
        // SAFETY: as in load.
        unsafe { T::store::<S>(self.address, value, order) }
    }
    #[inline(always)]
    fn compare_exchange(self, current: T, new: T, order: Order) -> Result<T, T> {
        // SAFETY: as in load.
        let found = unsafe { T::compare_exchange::<S>(self.address, current, new, order) };
        if found == current {
            Ok(found)
        } else {
            Err(found)
        }
    }
    #[inline(always)]
    fn fetch_add(self, value: T, order: Order) -> T {
        // SAFETY: as in load.
        unsafe { T::fetch_add::<S>(self.address, value, order) }
    }
    #[inline(always)]
    fn fetch_or(self, value: T, order: Order) -> T {
        // SAFETY: as in load.
        unsafe { T::fetch_or::<S>(self.address, value, order) }
    }
    #[inline(always)]
    fn fetch_and(self, value: T, order: Order) -> T {
        // SAFETY: as in load.
        unsafe { T::fetch_and::<S>(self.address, value, order) }
    }
}

impl<T: Word, S: Scope> Cells<T> for NativeCells<T, S> {
    type Cell = NativeCell<T, S>;

    #[inline(always)]
    fn len(self) -> u64 {
        self.len
    }
    #[inline(always)]
    fn at(self, index: u64) -> Self::Cell {
        debug_assert!(index < self.len, "word {index} of {}", self.len);
        let index = if index < self.len { index } else { 0 };
        // `wrapping_add`: the index is below `len`, so the address stays inside the array.
        NativeCell {
            address: self.address.wrapping_add(index as usize),
            scope: PhantomData,
        }
    }
}

/// Address of the pair that begins at `index`, bounded as [`Cells::at`] bounds one word.
#[inline(always)]
fn pair_at<S: Scope>(cells: NativeCells<u64, S>, index: u64) -> *mut u64 {
    debug_assert!(
        index.is_multiple_of(2) && index + 1 < cells.len,
        "pair {index} of {}",
        cells.len
    );
    let index = if index + 1 < cells.len { index } else { 0 };
    cells.address.wrapping_add(index as usize)
}

impl Platform for Native {
    type Cell<T: Word, S: Scope> = NativeCell<T, S>;
    type Cells<T: Word, S: Scope> = NativeCells<T, S>;

    #[inline(always)]
    fn fence<S: Scope>(order: Order) {
        machine::fence::<S>(order);
    }
    #[inline(always)]
    fn full_fence<S: Scope>() {
        machine::full_fence::<S>();
    }
    #[inline(always)]
    fn ring(doorbell: NativeCell<u32, System>, value: u32) {
        // SAFETY: the address is valid by the contract of `NativeCell::new`.
        unsafe { machine::ring(doorbell.address, value) }
    }
    #[inline(always)]
    fn load_pair<S: Scope>(cells: NativeCells<u64, S>, index: u64) -> [u64; 2] {
        // SAFETY: as in ring; `pair_at` bounds both words.
        unsafe { machine::load_pair::<S>(pair_at(cells, index)) }
    }
    #[inline(always)]
    fn store_pair<S: Scope>(cells: NativeCells<u64, S>, index: u64, pair: [u64; 2]) {
        // SAFETY: as in load_pair.
        unsafe { machine::store_pair::<S>(pair_at(cells, index), pair) }
    }
    #[inline(always)]
    fn pause(attempt: u32) {
        machine::pause(attempt);
    }
    #[inline(always)]
    fn now_ns() -> u64 {
        crate::thread::now_ns()
    }
}
