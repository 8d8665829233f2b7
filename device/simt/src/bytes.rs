//! Data of cache lines: bytes that a controller or another lane may be reading or overwriting, read
//! and written in whole elements.
#![allow(
    unsafe_code,
    reason = "handles are raw addresses of memory that other agents write"
)]
// UNSAFETY: as in `native`: validity is the contract of `NativeBytes::new`.

use core::marker::PhantomData;

use crate::native::machine;
use crate::native::machine::MachineWord;
use crate::{Order, Scope};

/// `len` bytes from a raw address on. `repr(C)`: may stand in kernel parameters.
///
/// Loads and stores are relaxed and one instruction each, so an element is never torn (16-byte ones
/// are two 8-byte halves on the host, and no hardware promises more). They order nothing: the
/// protocol around them does.
///
/// Offsets are in bytes and a multiple of the access size. An offset that is not, or whose
/// element does not end inside, is a bug of the caller: debug builds panic on the host, release
/// builds and the device round down or read from offset 0, so no offset leads outside.
#[repr(C)]
#[derive(Debug)]
pub struct NativeBytes<S> {
    address: *mut u8,
    len: u64,
    scope: PhantomData<S>,
}

impl<S> Clone for NativeBytes<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for NativeBytes<S> {}

// SAFETY: the handle is an address; every access through it is atomic, whoever holds it.
unsafe impl<S: Scope> Send for NativeBytes<S> {}
// SAFETY: as for Send.
unsafe impl<S: Scope> Sync for NativeBytes<S> {}

impl<S: Scope> NativeBytes<S> {
    /// Takes `len` bytes from `address` on.
    ///
    /// # Safety
    /// `address` is 16-byte aligned and its `len` bytes are valid for reads and writes by this agent
    /// as long as the handle or a copy is used, and accessed by others only atomically or across a
    /// fence.
    /// `len` is at least the size of every access made.
    #[inline(always)]
    pub const unsafe fn new(address: *mut u8, len: u64) -> Self {
        Self {
            address,
            len,
            scope: PhantomData,
        }
    }

    /// Address of the first byte, for descriptors and DMA.
    #[inline(always)]
    pub const fn address(self) -> *mut u8 {
        self.address
    }

    /// Number of bytes.
    #[inline(always)]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// True if there is no byte.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Address of the element of `size` bytes at `offset`, kept inside. `size` is a power of two.
    #[inline(always)]
    fn element(self, offset: u64, size: u64) -> *mut u8 {
        let inside = offset < self.len && self.len - offset >= size;
        debug_assert!(
            inside && offset.is_multiple_of(size),
            "{size} bytes at offset {offset} of {}",
            self.len
        );
        let offset = if inside { offset & !(size - 1) } else { 0 };
        // `wrapping_add`: the element lies inside, so its address does.
        self.address.wrapping_add(offset as usize)
    }

    /// The byte at `offset`.
    #[inline(always)]
    pub fn load_u8(self, offset: u64) -> u8 {
        // SAFETY: the element is inside and aligned by the contract of `new`.
        unsafe { machine::load_u8::<S>(self.element(offset, 1)) }
    }

    /// The 2 bytes from `offset` on, little-endian.
    #[inline(always)]
    pub fn load_u16(self, offset: u64) -> u16 {
        // SAFETY: as in load_u8.
        unsafe { machine::load_u16::<S>(self.element(offset, 2).cast()) }
    }

    /// The 4 bytes from `offset` on, little-endian.
    #[inline(always)]
    pub fn load_u32(self, offset: u64) -> u32 {
        // SAFETY: as in load_u8.
        unsafe { u32::load::<S>(self.element(offset, 4).cast(), Order::Relaxed) }
    }

    /// The 8 bytes from `offset` on, little-endian.
    #[inline(always)]
    pub fn load_u64(self, offset: u64) -> u64 {
        // SAFETY: as in load_u8.
        unsafe { u64::load::<S>(self.element(offset, 8).cast(), Order::Relaxed) }
    }

    /// The 16 bytes from `offset` on, little-endian, as low and high half.
    #[inline(always)]
    pub fn load_u128(self, offset: u64) -> [u64; 2] {
        // SAFETY: as in load_u8.
        unsafe { machine::load_pair::<S>(self.element(offset, 16).cast()) }
    }

    /// Writes the byte at `offset`.
    #[inline(always)]
    pub fn store_u8(self, offset: u64, value: u8) {
        // SAFETY: as in load_u8.
        unsafe { machine::store_u8::<S>(self.element(offset, 1), value) }
    }

    /// Writes the 2 bytes from `offset` on, little-endian.
    #[inline(always)]
    pub fn store_u16(self, offset: u64, value: u16) {
        // SAFETY: as in load_u8.
        unsafe { machine::store_u16::<S>(self.element(offset, 2).cast(), value) }
    }

    /// Writes the 4 bytes from `offset` on, little-endian.
    #[inline(always)]
    pub fn store_u32(self, offset: u64, value: u32) {
        // SAFETY: as in load_u8.
        unsafe { u32::store::<S>(self.element(offset, 4).cast(), value, Order::Relaxed) }
    }

    /// Writes the 8 bytes from `offset` on, little-endian.
    #[inline(always)]
    pub fn store_u64(self, offset: u64, value: u64) {
        // SAFETY: as in load_u8.
        unsafe { u64::store::<S>(self.element(offset, 8).cast(), value, Order::Relaxed) }
    }

    /// Writes the 16 bytes from `offset` on, little-endian, given as low and high half.
    #[inline(always)]
    pub fn store_u128(self, offset: u64, value: [u64; 2]) {
        // SAFETY: as in load_u8.
        unsafe { machine::store_pair::<S>(self.element(offset, 16).cast(), value) }
    }

    /// Adds to the 4 bytes from `offset` on, wrapping, in one step; returns the old value.
    #[inline(always)]
    pub fn fetch_add_u32(self, offset: u64, value: u32) -> u32 {
        // SAFETY: as in load_u8.
        unsafe { u32::fetch_add::<S>(self.element(offset, 4).cast(), value, Order::Relaxed) }
    }

    /// Adds to the 8 bytes from `offset` on, wrapping, in one step; returns the old value.
    #[inline(always)]
    pub fn fetch_add_u64(self, offset: u64, value: u64) -> u64 {
        // SAFETY: as in load_u8.
        unsafe { u64::fetch_add::<S>(self.element(offset, 8).cast(), value, Order::Relaxed) }
    }
}
