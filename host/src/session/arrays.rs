//! The arrays of a session: how they get onto the SSDs, and their handles.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use warpstore_device::{Array, ArrayMut, Element, Layout};
use zerocopy::IntoBytes;

use super::Session;
use crate::Error;

/// The arrays that lie on the store.
#[derive(Default)]
pub(super) struct Arrays {
    next_line: u64,
    /// First line, number of elements, size of an element.
    by_name: BTreeMap<String, (u64, u64, usize)>,
}

impl Session {
    /// Writes `elements` to the SSDs as a new array.
    ///
    /// The media are loaded directly, before anybody reads them, not by commands.
    ///
    /// # Errors
    /// There is an array of that name, or the SSDs are full.
    pub fn create_array<T: Element>(&self, name: &str, elements: &[T]) -> Result<Array<T>, Error> {
        self.add_array::<T>(name, elements.len() as u64, |first| {
            let line_bytes = self.config.line_bytes as usize;
            let lines = (first..).zip(elements.as_bytes().chunks(line_bytes));
            lines
                .into_iter()
                .try_for_each(|(line, chunk)| self.load_line(line, chunk))
        })
    }

    /// An array of `len` elements that is on the SSDs already: a session before this one made it,
    /// after the same arrays as this one has now, with the same lines and SSDs, on media files.
    ///
    /// # Errors
    /// As [`Session::create_array`].
    pub fn existing_array<T: Element>(&self, name: &str, len: u64) -> Result<Array<T>, Error> {
        self.add_array(name, len, |_| Ok(()))
    }

    /// Adds an array behind the others; `load` gets its first line.
    fn add_array<T: Element>(
        &self,
        name: &str,
        len: u64,
        load: impl FnOnce(u64) -> Result<(), Error>,
    ) -> Result<Array<T>, Error> {
        let line_bytes = u64::from(self.config.line_bytes);
        let bytes = len.saturating_mul(size_of::<T>() as u64);
        let lines = bytes.div_ceil(line_bytes);
        let mut arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        if arrays.by_name.contains_key(name) {
            return Err(Error::Configuration(format!(
                "there is an array {name:?} already"
            )));
        }
        let free = self.store.lines - arrays.next_line;
        if lines > free {
            return Err(Error::NoSpace {
                array: name.to_owned(),
                needed: bytes.next_multiple_of(line_bytes),
                free: free * line_bytes,
            });
        }
        let first = arrays.next_line;
        load(first)?;
        arrays.next_line += lines;
        let entry = (first, len, size_of::<T>());
        arrays.by_name.insert(name.to_owned(), entry);
        Ok(Array::new(self.store(), &self.store.desc, first, len))
    }

    /// The array `name`.
    ///
    /// # Errors
    /// There is none, or its elements have another size.
    pub fn array<T: Element>(&self, name: &str) -> Result<Array<T>, Error> {
        let arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        match arrays.by_name.get(name) {
            Some(&(first, len, size)) if size == size_of::<T>() => {
                Ok(Array::new(self.store(), &self.store.desc, first, len))
            }
            Some((_, _, size)) => Err(Error::Configuration(format!(
                "array {name:?} has elements of {size} bytes, not {}",
                size_of::<T>()
            ))),
            None => Err(Error::Configuration(format!("there is no array {name:?}"))),
        }
    }

    /// Puts the bytes of one line on its SSD, or on every SSD that has a copy.
    fn load_line(&self, line: u64, bytes: &[u8]) -> Result<(), Error> {
        let line_bytes = u64::from(self.config.line_bytes);
        let copies = match self.config.layout {
            Layout::Stripe => 1,
            Layout::Replicate => self.config.ssds,
        };
        for reader in 0..copies {
            let place = self.store.desc.map.place(line, reader);
            self.ssds[place.ssd as usize].load(place.line * line_bytes, bytes)?;
        }
        Ok(())
    }

    /// The array `name`, to be written too.
    ///
    /// # Errors
    /// As [`Session::array`]; or the SSDs are replicas, which kernels only read.
    pub fn array_mut<T: Element>(&self, name: &str) -> Result<ArrayMut<T>, Error> {
        self.check_writable(&format!("array {name:?}"))?;
        Ok(ArrayMut::new(self.array(name)?))
    }

    /// Refuses to write replicas.
    pub(super) fn check_writable(&self, what: &str) -> Result<(), Error> {
        if self.config.layout == Layout::Replicate && self.config.ssds > 1 {
            return Err(Error::Configuration(format!(
                "{what} is for writing, and the store lies on {} replicas, which kernels only read: \
                 stripe it",
                self.config.ssds
            )));
        }
        Ok(())
    }

    /// The elements of array `name` as they are on the SSDs' media now: without what is in the
    /// cache only, see [`Session::flush`]. The media are read directly, not by commands.
    ///
    /// # Errors
    /// As [`Session::array`]; the SSDs have no media; or the copy from the GPU fails.
    pub fn stored<T: Element>(&self, name: &str) -> Result<Vec<T>, Error> {
        self.array::<T>(name)?;
        let (first, len, _) = {
            let arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
            arrays.by_name[name]
        };
        let mut elements = vec![T::new_zeroed(); len as usize];
        let line_bytes = self.config.line_bytes as usize;
        let bytes = elements.as_mut_bytes();
        for (line, chunk) in (first..).zip(bytes.chunks_mut(line_bytes)) {
            let place = self.store.desc.map.place(line, 0);
            let offset = place.line * line_bytes as u64;
            self.ssds[place.ssd as usize].stored(offset, chunk)?;
        }
        Ok(elements)
    }
}
