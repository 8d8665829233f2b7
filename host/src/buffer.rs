//! Memory that kernels, controllers and the CPU share, wherever it lies.
#![allow(unsafe_code, reason = "copies into and out of shared memory")]
// UNSAFETY: copies between slices and memory that this type owns; bounds are checked here, and
// kernels that run meanwhile access that memory by atomic words at most.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

use driver_vfio::vfio::DmaMemory;
use warpstore_device::launch::StatusSlot;
use warpstore_device::parts::simt::{
    Cell, Cells, NativeBytes, NativeCell, NativeCells, Order, Scope, System, Word,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Error;
use crate::cuda::{Context, DeviceMemory, PinnedMemory, Registered, Stream};

/// Alignment of host allocations: no line or ring then crosses a controller page needlessly, and
/// lines of 64 KiB are aligned to their size.
const HOST_ALIGNMENT: usize = 64 * 1024;

/// Where a buffer shall lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where kernels run: GPU memory, or the heap for the `threads` runner.
    Kernel,
    /// Host memory that the CPU and the GPU both reach by the same address.
    Shared,
    /// The same, in whole pages, which SSDs that are not emulated in this process reach too.
    Dma,
}

/// Zeroed memory of the host, owned.
struct HostMemory {
    address: *mut u8,
    layout: Layout,
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for HostMemory {}
// SAFETY: the type gives no access by itself.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    fn zeroed(len: usize) -> Result<Self, Error> {
        let too_large = || Error::OutOfMemory { bytes: len };
        let layout =
            Layout::from_size_align(len.max(1), HOST_ALIGNMENT).map_err(|_| too_large())?;
        // SAFETY: the layout's size is not zero.
        let address = unsafe { alloc_zeroed(layout) };
        if address.is_null() {
            Err(too_large())
        } else {
            Ok(Self { address, layout })
        }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, freed once.
        unsafe { dealloc(self.address, self.layout) };
    }
}

enum Owner {
    Host(HostMemory),
    Dma {
        /// The GPU's hold on the memory, which goes first.
        _pinned: Option<Registered>,
        memory: DmaMemory,
    },
    Pinned(PinnedMemory),
    Device(DeviceMemory, Arc<Stream>),
}

/// A zeroed, owned range of memory with an address that kernels use.
pub struct Buffer {
    owner: Owner,
    len: usize,
}

impl Buffer {
    /// Allocates `len` zeroed bytes on the heap, aligned to 64 KiB.
    pub fn host(len: usize) -> Result<Self, Error> {
        Ok(Self {
            owner: Owner::Host(HostMemory::zeroed(len)?),
            len,
        })
    }

    /// Allocates `len` zeroed bytes of host memory in whole pages, which real SSDs can reach.
    pub fn dma(len: usize) -> Result<Self, Error> {
        Ok(Self {
            owner: Owner::Dma {
                _pinned: None,
                memory: dma_memory(len)?,
            },
            len,
        })
    }

    /// The same, pinned, so that the GPU reaches it by the same address.
    pub fn dma_pinned(context: &Arc<Context>, len: usize) -> Result<Self, Error> {
        let memory = dma_memory(len)?;
        let cells = memory.cells();
        let (address, bytes) = (cells.address() as u64, cells.len() * 8);
        // SAFETY: the memory is whole pages, and stays as long as the buffer, which lets go of the
        // registration first.
        let registered = unsafe { Registered::new(context, address, bytes) }?;
        Ok(Self {
            owner: Owner::Dma {
                _pinned: Some(registered),
                memory,
            },
            len,
        })
    }

    /// Allocates `len` zeroed bytes of pinned host memory.
    pub fn pinned(context: &Arc<Context>, len: usize) -> Result<Self, Error> {
        Ok(Self {
            owner: Owner::Pinned(PinnedMemory::zeroed(context, len)?),
            len,
        })
    }

    /// Allocates `len` zeroed bytes on the GPU.
    pub fn device(context: &Arc<Context>, stream: &Arc<Stream>, len: usize) -> Result<Self, Error> {
        let memory = DeviceMemory::zeroed(context, stream, len)?;
        Ok(Self {
            owner: Owner::Device(memory, Arc::clone(stream)),
            len,
        })
    }

    /// The address, as the side that runs kernels sees it.
    pub fn address(&self) -> u64 {
        match &self.owner {
            Owner::Host(memory) => memory.address as u64,
            Owner::Dma { memory, .. } => memory.cells().address() as u64,
            Owner::Pinned(memory) => memory.address(),
            Owner::Device(memory, _) => memory.address(),
        }
    }

    /// The address, if the CPU may use it.
    pub fn host_address(&self) -> Option<*mut u8> {
        match &self.owner {
            Owner::Host(memory) => Some(memory.address),
            Owner::Dma { memory, .. } => Some(memory.cells().address().cast()),
            Owner::Pinned(memory) => Some(memory.address() as *mut u8),
            Owner::Device(..) => None,
        }
    }

    /// Whether `bytes` bytes at `address` lie inside.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.address());
        offset <= self.len as u64 && bytes <= self.len as u64 - offset
    }

    /// Length. Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the buffer holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `values` to byte `offset`, while kernels use that part by atomic words at most.
    ///
    /// # Panics
    /// If the values do not fit: sizes are the caller's own.
    pub fn write<T: IntoBytes + Immutable>(
        &self,
        offset: usize,
        values: &[T],
    ) -> Result<(), Error> {
        let bytes = values.as_bytes();
        self.check(offset, bytes.len());
        match (self.host_address(), &self.owner) {
            (Some(address), _) => {
                // SAFETY: the range lies inside the allocation (checked), and a slice of the
                // caller's cannot overlap memory that no reference ever points to.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        bytes.as_ptr(),
                        address.wrapping_add(offset),
                        bytes.len(),
                    );
                }
                Ok(())
            }
            (None, Owner::Device(memory, stream)) => {
                // SAFETY: the range lies inside the allocation (checked).
                unsafe { stream.upload(memory.address() + offset as u64, bytes) }?;
                Ok(())
            }
            (None, _) => unreachable!("only GPU memory has no host address"),
        }
    }

    /// Stores the word at byte `offset`, which kernels load meanwhile.
    pub(crate) fn store_word(&self, offset: usize, value: u32) -> Result<(), Error> {
        if self.host_address().is_none() {
            return self.write(offset, &[value]);
        }
        // Ordering: words that are changed so carry no data ([SQ-8]).
        self.cell::<u32, System>(offset)
            .store(value, Order::Relaxed);
        Ok(())
    }

    /// Copies from byte `offset` into `values`, while kernels write that part by atomic words at most.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    pub fn read<T: FromBytes + IntoBytes>(
        &self,
        offset: usize,
        values: &mut [T],
    ) -> Result<(), Error> {
        let bytes = values.as_mut_bytes();
        self.check(offset, bytes.len());
        match (self.host_address(), &self.owner) {
            (Some(address), _) => {
                // SAFETY: as in write, the other way round.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        address.wrapping_add(offset),
                        bytes.as_mut_ptr(),
                        bytes.len(),
                    );
                }
                Ok(())
            }
            (None, Owner::Device(memory, stream)) => {
                // SAFETY: the range lies inside the allocation (checked).
                unsafe { stream.download(memory.address() + offset as u64, bytes) }?;
                Ok(())
            }
            (None, _) => unreachable!("only GPU memory has no host address"),
        }
    }

    /// Copies the bytes of a plain description to byte `offset`, while kernels use that part by atomic words at most.
    ///
    /// # Panics
    /// If it does not fit.
    pub(crate) fn write_plain<T: Copy>(&self, offset: usize, value: &T) -> Result<(), Error> {
        self.check(offset, size_of::<T>());
        let from = (&raw const *value).cast::<u8>();
        match (self.host_address(), &self.owner) {
            // SAFETY: the range lies inside the allocation (checked) and cannot overlap a value
            // of the caller's; bytes are copied untyped, so padding is no matter.
            (Some(to), _) => unsafe {
                std::ptr::copy_nonoverlapping(from, to.wrapping_add(offset), size_of::<T>());
            },
            (None, Owner::Device(memory, stream)) => {
                let to = memory.address() + offset as u64;
                // SAFETY: the range lies inside the allocation (checked), the value is live.
                unsafe { stream.upload_raw(to, from, size_of::<T>()) }?;
            }
            (None, _) => unreachable!("only GPU memory has no host address"),
        }
        Ok(())
    }

    /// `len` words from byte `offset` on as shared words.
    ///
    /// # Panics
    /// If the buffer has fewer than `len` words.
    pub(crate) fn cells<T: Word, S: Scope>(&self, offset: usize, len: u64) -> NativeCells<T, S> {
        self.check(offset, len as usize * size_of::<T>());
        let address = self.address() + offset as u64;
        // SAFETY: the words lie inside the allocation (checked); the session keeps the buffer
        // as long as kernels and controllers that know the handle run.
        unsafe { NativeCells::new(address as *mut T, len) }
    }

    /// All of it as shared words, for a controller; with the rest of the last page where an IOMMU
    /// maps whole pages.
    pub(crate) fn dma_cells(&self) -> NativeCells<u64, System> {
        match &self.owner {
            Owner::Dma { memory, .. } => memory.cells(),
            _ => self.cells(0, self.len as u64 / 8),
        }
    }

    /// The first `len` bytes as bytes that kernels read.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub(crate) fn bytes<S: Scope>(&self, len: u64) -> NativeBytes<S> {
        self.check(0, len as usize);
        // SAFETY: as in `cells`; allocations are aligned to at least 256 bytes.
        unsafe { NativeBytes::new(self.address() as *mut u8, len) }
    }

    /// The word at byte `offset` as a shared word.
    ///
    /// # Panics
    /// If it does not lie inside.
    pub(crate) fn cell<T: Word, S: Scope>(&self, offset: usize) -> NativeCell<T, S> {
        self.check(offset, size_of::<T>());
        let address = self.address() + offset as u64;
        // SAFETY: as in `cells`.
        unsafe { NativeCell::new(address as *mut T) }
    }

    /// The buffer's first words as the status slot of a launch.
    pub(crate) fn status_slot(&self) -> StatusSlot {
        StatusSlot::new(self.cells(0, StatusSlot::WORDS))
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} do not lie inside a buffer of {} bytes",
            self.len
        );
    }
}

fn dma_memory(len: usize) -> Result<DmaMemory, Error> {
    DmaMemory::new(len as u64).map_err(|_| Error::OutOfMemory { bytes: len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_buffer_is_zeroed_aligned_and_keeps_what_is_written() {
        let buffer = Buffer::host(10_000).unwrap();
        assert_eq!(buffer.address() % HOST_ALIGNMENT as u64, 0);
        let mut words = [1u32; 4];
        buffer.read(9_984, &mut words).unwrap();
        assert_eq!(words, [0; 4]);
        buffer.write(9_984, &[7u32, 8]).unwrap();
        buffer.read(9_984, &mut words).unwrap();
        assert_eq!(words, [7, 8, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "do not lie inside")]
    fn a_write_beyond_the_end_is_refused() {
        let buffer = Buffer::host(8).unwrap();
        let _ = buffer.write(4, &[0u64]);
    }
}
