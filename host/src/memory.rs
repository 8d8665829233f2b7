//! Kernel memory as elements: what kernels use beside arrays, seen from the host.
#![allow(
    unsafe_code,
    reason = "handles of a session's memory are made from raw addresses"
)]
// UNSAFETY: handles are made of a buffer that the session keeps until it is dropped, after its
// kernels have ended; a launch refuses handles that are not its session's.

use std::marker::PhantomData;
use std::sync::Arc;

use warpstore_device::parts::simt::Word;
use warpstore_device::{Atomics, DisjointSlice, Global};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Error;
use crate::buffer::Buffer;

/// `len` elements of kernel memory of a session.
pub struct Memory<T> {
    buffer: Arc<Buffer>,
    len: u64,
    element: PhantomData<T>,
}

impl<T> Memory<T> {
    /// The first `len` elements of `buffer`, which holds as many.
    pub(crate) fn new(buffer: Arc<Buffer>, len: u64) -> Self {
        Self {
            buffer,
            len,
            element: PhantomData,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `elements` to index `first`, while no kernel uses them.
    ///
    /// # Panics
    /// If they do not fit.
    ///
    /// # Errors
    /// The copy to the GPU fails.
    pub fn write(&self, first: u64, elements: &[T]) -> Result<(), Error>
    where
        T: IntoBytes + Immutable,
    {
        self.buffer.write(first as usize * size_of::<T>(), elements)
    }

    /// Copies the elements from index `first` on into `elements`, while no kernel writes them.
    ///
    /// # Panics
    /// If there are not that many.
    ///
    /// # Errors
    /// The copy from the GPU fails.
    pub fn read(&self, first: u64, elements: &mut [T]) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes,
    {
        self.buffer.read(first as usize * size_of::<T>(), elements)
    }

    /// All elements.
    ///
    /// # Errors
    /// The copy from the GPU fails.
    pub fn to_vec(&self) -> Result<Vec<T>, Error>
    where
        T: FromBytes + IntoBytes + Clone,
    {
        let mut elements = vec![T::new_zeroed(); self.len as usize];
        self.read(0, &mut elements)?;
        Ok(elements)
    }

    /// The memory as a kernel reads it that nobody writes.
    pub fn global(&self) -> Global<T>
    where
        T: FromBytes + Immutable + Copy,
    {
        // SAFETY: the buffer holds `len` elements and lives as long as the session.
        unsafe { Global::from_raw(self.buffer.address(), self.len) }
    }

    /// The memory as a kernel writes it.
    pub fn disjoint(&self) -> DisjointSlice<T>
    where
        T: IntoBytes + Immutable + Copy,
    {
        // SAFETY: as in `global`.
        unsafe { DisjointSlice::from_raw(self.buffer.address(), self.len) }
    }

    /// The memory as shared words.
    pub fn atomics(&self) -> Atomics<T>
    where
        T: Word,
    {
        self.buffer.cells(0, self.len)
    }
}
