//! Host memory that the controller owns and others reach by address.
// UNSAFETY: one 32-bit view of owned 64-bit atomics, bounds and alignment checked.

use std::sync::atomic::AtomicU64;

use warpstore_simt::{NativeCell, System};

use super::Image;

/// Zeroed words that agents share, 128-byte aligned: an image, or doorbells, in host memory.
pub(crate) struct SharedWords {
    lines: Box<[Line]>,
}

/// The words of one cache-line pair.
#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicU64; 16]);

impl SharedWords {
    /// At least `words` zeros.
    pub(crate) fn zeroed(words: u64) -> Self {
        let lines = words.div_ceil(16) as usize;
        Self {
            lines: (0..lines).map(|_| Line::default()).collect(),
        }
    }

    /// Address of the first word.
    pub(crate) fn address(&self) -> u64 {
        self.lines.as_ptr().expose_provenance() as u64
    }

    /// Word `index`.
    pub(crate) fn word(&self, index: u64) -> &AtomicU64 {
        &self.lines[index as usize / 16].0[index as usize % 16]
    }

    /// The 32-bit word at byte `offset`, a multiple of 4.
    pub(crate) fn half_cell(&self, offset: u64) -> NativeCell<u32, System> {
        let inside = offset.is_multiple_of(4) && offset < self.lines.len() as u64 * 128;
        assert!(inside, "no 32-bit word at byte {offset}");
        // SAFETY: aligned and inside, as just checked; atomics may be written through a shared
        // reference.
        unsafe { NativeCell::new((self.address() + offset) as *mut u32) }
    }

    /// The image that lies in these words.
    pub(crate) fn image(&self) -> Image {
        // Atomics may be written through a shared reference, so through this pointer too.
        Image {
            words: self.lines.as_ptr().cast_mut().cast(),
        }
    }
}
