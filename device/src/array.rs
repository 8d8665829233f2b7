//! Arrays on SSDs, read by index.

use core::marker::PhantomData;

use line_cache::{LineTable, Look, Meta};
use warpstore_simt::{Device, Native, NativeBytes};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::bytes;
use crate::error::IoError;
use crate::fetch;
use crate::launch::KernelParam;
use crate::store::{Store, StoreDesc};

/// An element of an [`Array`]: plain data whose size is a power of two from 1 to 16 bytes, so
/// that one access reads it whole.
///
/// Implemented for every type that zerocopy knows to be plain data; a wrong size fails to
/// compile where the element is first read.
pub trait Element: FromBytes + IntoBytes + Immutable + Copy + Send + 'static {}
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + 'static> Element for T {}

/// `len` elements of type `T` that lie on the store's SSDs and are cached in GPU memory.
///
/// A handle, as small as its hot fields; copying it shares the array. What follows the table is
/// what a hit needs and nothing else, so that a kernel keeps it in registers.
#[repr(C)]
pub struct Array<T> {
    pub(crate) table: LineTable<Native>,
    /// The bytes of the cache's slots.
    pub(crate) slots: NativeBytes<Device>,
    store: Store,
    /// Line of the store that holds element 0 (at its first byte).
    first_line: u64,
    len: u64,
    line_shift: u32,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Array<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Array<T> {}

#[allow(unsafe_code, reason = "marker impl for a plain handle")]
// UNSAFETY: an `unsafe impl` only; no memory is touched here.
mod parameter {
    use super::{Array, KernelParam};
    // SAFETY: repr(C) of plain words, Copy, without references.
    unsafe impl<T: 'static> KernelParam for Array<T> {
        fn memory(&self) -> Option<(u64, u64)> {
            Some(self.store.place())
        }
    }
}

/// Where an element lies: its line, and its byte in the line.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub line: u64,
    pub offset: u64,
}

impl<T: Element> Array<T> {
    const SHIFT: u32 = {
        let size = size_of::<T>();
        assert!(
            size.is_power_of_two() && size <= 16,
            "elements are 1, 2, 4, 8 or 16 bytes"
        );
        size.trailing_zeros()
    };

    /// The array of `len` elements that begins with line `first_line` of `store`, which `desc`
    /// describes. The host makes arrays, and keeps them inside the store.
    pub fn new(store: Store, desc: &StoreDesc, first_line: u64, len: u64) -> Self {
        Self {
            table: desc.table,
            slots: desc.slots.memory,
            store,
            first_line,
            len,
            line_shift: desc.slots.shift,
            element: PhantomData,
        }
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Number of elements in a line: those from a multiple of it on lie in one line.
    #[inline(always)]
    pub fn elements_per_line(&self) -> u64 {
        1 << (self.line_shift - Self::SHIFT)
    }

    /// True if there is no element.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn place(&self, index: u64) -> Place {
        let byte = index << Self::SHIFT;
        let offset = byte & ((1u64 << self.line_shift) - 1);
        Place {
            line: self.first_line + (byte >> self.line_shift),
            offset,
        }
    }

    #[inline(always)]
    pub(crate) fn store(&self) -> Store {
        self.store
    }

    /// Line of the store that holds element `index`, and the element's byte in it.
    #[inline(always)]
    pub(crate) fn line_and_offset(&self, index: u64) -> (u64, u64) {
        let Place { line, offset } = self.place(index);
        (line, offset)
    }

    /// Line of the store that holds element `index`.
    #[inline(always)]
    pub(crate) fn line_of(&self, index: u64) -> u64 {
        self.place(index).line
    }

    /// Index of the first element in the line of element `index`.
    #[inline(always)]
    pub(crate) fn first_index_of_line(&self, index: u64) -> u64 {
        index - (self.place(index).offset >> Self::SHIFT)
    }

    /// Reads element `index`. Per lane: no lane waits for another on a hit; lanes of a warp that
    /// miss together submit together, one command for each distinct line.
    ///
    /// # Errors
    /// `index` is not below [`Array::len`], or the SSD or its queue failed; see [`IoError`].
    #[inline(always)]
    pub fn get(&self, index: u64) -> Result<T, IoError> {
        if index >= self.len {
            return Err(IoError::out_of_range(index));
        }
        let place = self.place(index);
        match self.try_hit(place, self.table.open(place.line)) {
            Some(value) => Ok(value),
            None => self.miss(place),
        }
    }

    /// Reads elements `first` and `second`; on two hits both are in flight at once. Per lane.
    ///
    /// # Errors
    /// As [`Array::get`]; the error of `first` comes first.
    #[inline(always)]
    pub fn get2(&self, first: u64, second: u64) -> Result<(T, T), IoError> {
        if first >= self.len || second >= self.len {
            let outside = if first >= self.len { first } else { second };
            return Err(IoError::out_of_range(outside));
        }
        let places = (self.place(first), self.place(second));
        let metas = (
            self.table.open(places.0.line),
            self.table.open(places.1.line),
        );
        let one = self.try_hit(places.0, metas.0);
        let two = self.try_hit(places.1, metas.1);
        let one = match one {
            Some(value) => value,
            None => self.miss(places.0)?,
        };
        let two = match two {
            Some(value) => value,
            None => self.miss(places.1)?,
        };
        Ok((one, two))
    }

    /// The 16 bytes around element `index`, from the cache or the SSD. `index` is in range.
    #[inline(always)]
    pub(crate) fn chunk(&self, index: u64) -> Result<[u64; 2], IoError> {
        let Place { line, offset } = self.place(index);
        let offset = offset & !15;
        let meta = self.table.open(line);
        if let Look::Hit(meta) = meta.look() {
            let [low, high] = self.slots.load_u128(self.slot_byte(meta) + offset);
            if self.table.validate(line, meta, low | high) {
                self.table.touch(line, meta);
                return Ok([low, high]);
            }
        }
        self.miss_chunk(line, offset)
    }

    /// The optimistic read: load, and believe it only if the line is still the same.
    #[inline(always)]
    fn try_hit(&self, place: Place, meta: Meta) -> Option<T> {
        let Look::Hit(meta) = meta.look() else {
            return None;
        };
        let bits = bytes::load::<T>(self.slots, self.slot_byte(meta) + place.offset);
        if !self.table.validate(place.line, meta, bits[0] | bits[1]) {
            return None;
        }
        self.table.touch(place.line, meta);
        Some(bytes::from_bits(bits))
    }

    #[inline(always)]
    pub(crate) fn slot_byte(&self, meta: Meta) -> u64 {
        u64::from(meta.slot()) << self.line_shift
    }

    #[inline(always)]
    pub(crate) fn miss(&self, place: Place) -> Result<T, IoError> {
        let chunk = fetch::read_chunk(self.store, place.line, place.offset & !15);
        match IoError::from_bits(chunk.error) {
            None => Ok(bytes::element([chunk.low, chunk.high], place.offset & 15)),
            Some(error) => Err(error),
        }
    }

    /// The 16 bytes at `offset` of `line`, by the cold path.
    #[inline(always)]
    pub(crate) fn miss_chunk(&self, line: u64, offset: u64) -> Result<[u64; 2], IoError> {
        let chunk = fetch::read_chunk(self.store, line, offset);
        match IoError::from_bits(chunk.error) {
            None => Ok([chunk.low, chunk.high]),
            Some(error) => Err(error),
        }
    }
}
