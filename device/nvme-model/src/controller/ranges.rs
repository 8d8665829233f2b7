//! The memory that commands and rings may name: ranges of IOVAs in the image.
#![allow(
    unsafe_code,
    reason = "the caller vouches for memory that commands will name"
)]
// UNSAFETY: one unsafe function without unsafe operations, `map_dma`: it records a range.

use std::sync::atomic::Ordering;

use super::Controller;
use crate::layout::{self, MAX_RANGES, dma_range, header};

/// IOVA and address of a byte agree in their place within this many bytes, so that whatever is
/// aligned by the one is so by the other.
const PAGE: u64 = 4096;

/// A DMA range could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Too many ranges.
    #[error("{MAX_RANGES} DMA ranges are mapped already; map fewer, larger ranges")]
    Full,
    /// The range is empty or wraps around the address space.
    #[error("{len} bytes at {address:#x} are no range of addresses")]
    NoRange {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A part of it is mapped already.
    #[error("{len} bytes at {address:#x} overlap a range that is mapped; unmap it first")]
    Overlap {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
    /// IOVA and address differ in their place within a page.
    #[error(
        "IOVA {iova:#x} and address {address:#x} lie at different places of their pages of {PAGE} bytes"
    )]
    Unaligned {
        /// First IOVA.
        iova: u64,
        /// First address.
        address: u64,
    },
    /// No such range is mapped.
    #[error("{len} bytes at {address:#x} were not mapped in one piece; unmap what was mapped")]
    NotMapped {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
}

impl Controller {
    /// Makes `len` bytes at `address` reachable for commands and rings, which call them by IOVAs
    /// from `iova` on.
    ///
    /// # Errors
    /// [`MapError`] if there are too many ranges, the range is none or has IOVAs that are mapped.
    ///
    /// # Safety
    /// Until it is unmapped the memory is valid for atomic reads and writes by the agent that
    /// serves the I/O queues, and, if the admin queue, an admin command or a ring there names it,
    /// by the CPU.
    pub unsafe fn map_dma(&self, iova: u64, address: u64, len: u64) -> Result<(), MapError> {
        let no_range = |address| MapError::NoRange { address, len };
        let end = iova.checked_add(len).filter(|_| len != 0);
        let end = end.ok_or(no_range(iova))?;
        address.checked_add(len).ok_or(no_range(address))?;
        if !(iova ^ address).is_multiple_of(PAGE) {
            return Err(MapError::Unaligned { iova, address });
        }
        let _state = self.lock();
        let image = self.image_here();
        let count = image.read(header::RANGES);
        let mapped = |index| image.read_pair(layout::range(index) + dma_range::START);
        if (0..count).any(|index| mapped(index)[0] < end && iova < mapped(index)[1]) {
            return Err(MapError::Overlap { address: iova, len });
        }
        let free = (0..count).find(|&index| mapped(index) == [0; 2]);
        let index = free.unwrap_or(count);
        if index == MAX_RANGES {
            return Err(MapError::Full);
        }
        let range = layout::range(index);
        image.write(range + dma_range::OFFSET, address.wrapping_sub(iova));
        image.write_pair(range + dma_range::START, [iova, end]);
        // Ordering: release, so that a service which sees the new count sees the range.
        self.words
            .word(header::RANGES)
            .store(count.max(index + 1), Ordering::Release);
        Ok(())
    }

    /// Takes back a range as it was mapped. The submitter has no command in flight that names it, and no
    /// queue with its rings or its doorbells there.
    ///
    /// # Errors
    /// [`MapError::NotMapped`].
    pub fn unmap_dma(&self, iova: u64, len: u64) -> Result<(), MapError> {
        let range = [iova, iova.wrapping_add(len)];
        let _state = self.lock();
        let image = self.image_here();
        let mut firsts = (0..image.read(header::RANGES)).map(layout::range);
        let first = firsts
            .find(|first| len != 0 && image.read_pair(first + dma_range::START) == range)
            .ok_or(MapError::NotMapped { address: iova, len })?;
        image.write_pair(first + dma_range::START, [0; 2]);
        Ok(())
    }
}
