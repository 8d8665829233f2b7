//! Consecutive elements, per lane, 16 bytes at a time.

use core::marker::PhantomData;
use core::ops::Range as Indices;

use crate::array::{Array, Element};
use crate::bytes;
use crate::counted::Reader;
use crate::error::IoError;

/// Iterator over consecutive elements of an [`Array`], made by [`Array::range`].
///
/// Copies 16 bytes out at a time and holds no pin while the loop body runs, so the body may take
/// as long as it likes and use other arrays.
pub struct Range<T, R = Array<T>> {
    reader: R,
    next: u64,
    end: u64,
    chunk: [u64; 2],
    /// Whether `chunk` holds the element at `next`.
    loaded: bool,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, R: Reader<T>> Range<T, R> {
    #[inline(always)]
    pub(crate) fn new(reader: R, indices: Indices<u64>) -> Self {
        Self {
            reader,
            next: indices.start,
            end: indices.end,
            chunk: [0; 2],
            loaded: false,
            element: PhantomData,
        }
    }
}

impl<T: Element> Array<T> {
    /// The elements at `indices`, in order. Per lane.
    ///
    /// Each item is a `Result`; after an error the iterator goes on with the next element. An
    /// end beyond the array gives one out-of-range error at its end, an empty or reversed range
    /// gives nothing.
    #[inline(always)]
    pub fn range(&self, indices: Indices<u64>) -> Range<T> {
        Range::new(*self, indices)
    }
}

impl<T: Element, R: Reader<T>> Iterator for Range<T, R> {
    type Item = Result<T, IoError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let index = self.next;
        if index >= self.reader.len() {
            self.next = self.end;
            return Some(Err(IoError::out_of_range(index)));
        }
        self.next = index + 1;
        let byte = (index * size_of::<T>() as u64) & 15;
        if !self.loaded || byte == 0 {
            match self.reader.chunk(index) {
                Ok(chunk) => self.chunk = chunk,
                Err(error) => {
                    self.loaded = false;
                    return Some(Err(error));
                }
            }
            self.loaded = true;
        }
        Some(Ok(bytes::element(self.chunk, byte)))
    }
}
