//! The arrays of a session: how they get onto the SSDs, and their handles.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use warpstore_device::{Array, ArrayMut, Element, Layout};
use warpstore_volume::{ArrayEntry, ElementType};
use zerocopy::IntoBytes;

use super::Session;
use super::volume::check_type;
use crate::Error;
use crate::ssd::Ssd;
use crate::volume::VolumeAccess;

/// The arrays that lie on the store.
#[derive(Default)]
pub(super) struct Arrays {
    next_line: u64,
    by_name: BTreeMap<String, Entry>,
}

/// One of them.
#[derive(Clone, Copy)]
struct Entry {
    first_line: u64,
    /// Number of elements.
    len: u64,
    /// Bytes of an element.
    size: usize,
    /// Its type, if a volume tells.
    element: Option<ElementType>,
}

impl Session {
    /// Writes `elements` to the SSDs as a new array.
    ///
    /// The media of emulated SSDs are loaded directly, before anybody reads them; to real SSDs it is
    /// written by commands, and flushed.
    ///
    /// # Errors
    /// There is an array of that name, or the SSDs are full; or a real SSD may not be written, or
    /// fails a command.
    pub fn create_array<T: Element>(&self, name: &str, elements: &[T]) -> Result<Array<T>, Error> {
        self.add_array::<T>(name, elements.len() as u64, |first| {
            let bytes = elements.as_bytes();
            (0..).zip(&self.ssds).try_for_each(|(index, ssd)| {
                let lines = (first..).zip(bytes.chunks(self.config.line_bytes as usize));
                ssd.load(
                    lines.filter_map(|(line, part)| Some((self.offset_on(index, line)?, part))),
                )
            })
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
        let entry = Entry {
            first_line: first,
            len,
            size: size_of::<T>(),
            element: None,
        };
        arrays.by_name.insert(name.to_owned(), entry);
        Ok(Array::new(self.store(), &self.store.desc, first, len))
    }

    /// The array `name`.
    ///
    /// # Errors
    /// There is none; or its elements have another size or, on a volume, another type.
    pub fn array<T: Element>(&self, name: &str) -> Result<Array<T>, Error> {
        let entry = self.entry(name)?;
        if let Some(element) = entry.element {
            check_type::<T>(name, element)?;
        }
        if entry.size != size_of::<T>() {
            return Err(Error::Configuration(format!(
                "array {name:?} has elements of {} bytes, not {}",
                entry.size,
                size_of::<T>()
            )));
        }
        let (first, len) = (entry.first_line, entry.len);
        Ok(Array::new(self.store(), &self.store.desc, first, len))
    }

    fn entry(&self, name: &str) -> Result<Entry, Error> {
        let arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = arrays.by_name.get(name).copied();
        entry.ok_or_else(|| {
            let names: Vec<&str> = arrays.by_name.keys().map(String::as_str).collect();
            let names = names.join(", ");
            Error::Configuration(format!("there is no array {name:?}, of: {names}"))
        })
    }

    /// Takes an array of the volume that the session is on. No others can be made then.
    pub(super) fn adopt(&mut self, array: &ArrayEntry) {
        let arrays = self
            .arrays
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        arrays.next_line = self.store.lines;
        let entry = Entry {
            first_line: array.offset / u64::from(self.config.line_bytes),
            len: array.len,
            size: array.element.bytes() as usize,
            element: Some(array.element),
        };
        arrays.by_name.insert(array.name.clone(), entry);
    }

    /// Where SSD `ssd` has a line, in bytes of its namespace, if it has it.
    fn offset_on(&self, ssd: u32, line: u64) -> Option<u64> {
        // Of replicas, each reader has a copy.
        let place = self.store.desc.map.place(line, ssd);
        let offset = self.store.start + place.line * u64::from(self.config.line_bytes);
        (place.ssd == ssd).then_some(offset)
    }

    /// The array `name`, to be written too.
    ///
    /// # Errors
    /// As [`Session::array`]; or the SSDs are replicas, which kernels only read.
    pub fn array_mut<T: Element>(&self, name: &str) -> Result<ArrayMut<T>, Error> {
        self.check_writable(&format!("array {name:?}"))?;
        Ok(ArrayMut::new(self.array(name)?))
    }

    /// Refuses to write replicas, and SSDs and volumes that are only read.
    pub(super) fn check_writable(&self, what: &str) -> Result<(), Error> {
        if self
            .volume
            .as_ref()
            .is_some_and(|volume| volume.access == VolumeAccess::ReadOnly)
        {
            return Err(Error::Configuration(format!(
                "{what} is for writing, and the volume was opened for reading only"
            )));
        }
        self.ssds.iter().try_for_each(Ssd::check_writable)?;
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
    /// cache only, see [`Session::flush`]. The media of emulated SSDs are read directly, real SSDs by
    /// commands.
    ///
    /// # Errors
    /// As [`Session::array`]; the SSDs have no media; the copy from the GPU fails; or a command does.
    pub fn stored<T: Element>(&self, name: &str) -> Result<Vec<T>, Error> {
        self.array::<T>(name)?;
        let entry = self.entry(name)?;
        let (first, len) = (entry.first_line, entry.len);
        let mut elements = vec![T::new_zeroed(); len as usize];
        let line_bytes = self.config.line_bytes as usize;
        // Of replicas, the first has all.
        let readers = match self.config.layout {
            Layout::Stripe => &self.ssds[..],
            Layout::Replicate => &self.ssds[..1],
        };
        for (index, ssd) in (0..).zip(readers) {
            let lines = (first..).zip(elements.as_mut_bytes().chunks_mut(line_bytes));
            ssd.stored(
                lines.filter_map(|(line, part)| Some((self.offset_on(index, line)?, part))),
            )?;
        }
        Ok(elements)
    }
}
