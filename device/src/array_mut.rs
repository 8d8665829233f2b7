//! Arrays on SSDs that kernels write.

use core::ops::Deref;

use crate::array::{Array, Element};
use crate::bytes;
use crate::change::{Change, change};
use crate::error::IoError;
use crate::launch::KernelParam;

/// An [`Array`] that may also be written, by any lane at any time.
///
/// A write goes into the cache, where every lane sees it at once, and gets to the SSD when the line
/// gives way to another one or when the host flushes; without a cache, at once. Concurrent writes
/// of one element are one after the other, in some order; elements of up to 8 bytes are never torn,
/// those of 16 are two halves. What was written is durable after
/// `Session::flush` or `Session::finish` has returned without an error, and not before.
#[repr(transparent)]
pub struct ArrayMut<T>(Array<T>);

impl<T> Clone for ArrayMut<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for ArrayMut<T> {}

impl<T> Deref for ArrayMut<T> {
    type Target = Array<T>;
    #[inline(always)]
    fn deref(&self) -> &Array<T> {
        &self.0
    }
}

#[allow(unsafe_code, reason = "marker impl for a plain handle")]
// UNSAFETY: an `unsafe impl` only; no memory is touched here.
mod parameter {
    use super::{ArrayMut, KernelParam};
    // SAFETY: repr(transparent) over a kernel parameter.
    unsafe impl<T: 'static> KernelParam for ArrayMut<T> {
        fn memory(&self) -> Option<(u64, u64)> {
            self.0.memory()
        }

        fn writes(&self) -> bool {
            true
        }
    }
}

/// Elements that [`ArrayMut::fetch_add`] adds to: integers of 4 and 8 bytes, wrapping.
pub trait Addend: Element {
    /// The value as bits.
    fn to_bits(self) -> u64;
    /// The value of bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! addend {
    ($($int:ty as $bits:ty),*) => {$(
        impl Addend for $int {
            #[inline(always)]
            fn to_bits(self) -> u64 {
                u64::from(self as $bits)
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}
addend!(u32 as u32, i32 as u32, u64 as u64, i64 as u64);

impl<T: Element> ArrayMut<T> {
    /// The writable form of `array`.
    pub const fn new(array: Array<T>) -> Self {
        Self(array)
    }

    /// Writes element `index`. Any lanes may call; those of a whole warp that come together share
    /// the work for each distinct line. A line that is not resident is fetched first, or, if the
    /// cache has no room, changed on the SSD itself.
    ///
    /// # Errors
    /// `index` is not below [`Array::len`], or the SSD or its queue failed; see [`IoError`]. If the
    /// line was in the cache or could be fetched, the element is unchanged then; else its command may
    /// have been under way, and nobody knows.
    #[inline(always)]
    pub fn set(&self, index: u64, value: T) -> Result<(), IoError> {
        self.change(index, false, bytes::to_bits(value)).map(|_| ())
    }

    #[inline(always)]
    fn change(&self, index: u64, adds: bool, value: [u64; 2]) -> Result<u64, IoError> {
        if index >= self.len() {
            return Err(IoError::out_of_range(index));
        }
        let (line, offset) = self.line_and_offset(index);
        let what = Change {
            bytes: size_of::<T>() as u32,
            adds,
            value,
        };
        let chunk = change(self.store(), line, offset, what);
        match IoError::from_bits(chunk.error) {
            None => Ok(chunk.low),
            Some(error) => Err(error),
        }
    }
}

impl<T: Addend> ArrayMut<T> {
    /// Adds `value` to element `index`, wrapping, in one step that no other lane's access
    /// divides, and returns the old value. Lanes as in [`ArrayMut::set`].
    ///
    /// # Errors
    /// As [`ArrayMut::set`].
    #[inline(always)]
    pub fn fetch_add(&self, index: u64, value: T) -> Result<T, IoError> {
        self.change(index, true, [value.to_bits(), 0])
            .map(T::from_bits)
    }
}
