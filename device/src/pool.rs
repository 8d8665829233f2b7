//! Equal pieces of DMA memory: cache slots, bounce buffers, block buffers.

use warpstore_simt::{Device, NativeBytes};

/// Bytes of a controller page: warpstore enables controllers with CC.MPS = 0.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of a prebuilt PRP list: up to 15 entries, for pieces of up to 64 KiB, in an aligned chunk
/// that never crosses a controller page. 128 would do; but some SSDs misread lists that are not
/// aligned to 512, as Linux's quirk DMAPOOL_ALIGN_512 knows.
pub const LIST_BYTES: u64 = 512;

/// `count` pieces of `1 << shift` bytes, each aligned to its size (to a controller page if it is
/// larger), in `memory` for the kernel and at `iova` for the controller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// All pieces, one after the other, as kernels see them.
    pub memory: NativeBytes<Device>,
    /// Address of piece 0, as the controller sees it.
    pub iova: u64,
    /// IOVA of the PRP list of piece 0; list `n` lies [`LIST_BYTES`] × n further. Only for
    /// pieces of more than two controller pages.
    pub lists: u64,
    /// log2 of the bytes of a piece.
    pub shift: u32,
    /// Number of pieces.
    pub count: u32,
}

impl Pool {
    /// The 16 bytes at `offset` (a multiple of 16) of piece `index`.
    #[inline(always)]
    pub(crate) fn load_chunk(&self, index: u64, offset: u64) -> [u64; 2] {
        self.memory.load_u128((index << self.shift) + offset)
    }

    /// Writes the 16 bytes at `offset` (a multiple of 16) of piece `index`.
    #[inline(always)]
    pub(crate) fn store_chunk(&self, index: u64, offset: u64, chunk: [u64; 2]) {
        self.memory
            .store_u128((index << self.shift) + offset, chunk);
    }

    /// PRP1 and PRP2 for a transfer of a whole piece (NVMe Base 2.0, 4.1.1).
    #[inline(always)]
    pub fn prps(&self, index: u64) -> (u64, u64) {
        let first = self.iova + (index << self.shift);
        let bytes = 1u64 << self.shift;
        if bytes <= PAGE_BYTES {
            (first, 0)
        } else if bytes == 2 * PAGE_BYTES {
            (first, first + PAGE_BYTES)
        } else {
            (first, self.lists + index * LIST_BYTES)
        }
    }

    /// Entry `n` of the PRP list of piece `index`, for the host to write at `lists`: the IOVA of
    /// the piece's page `n + 1`, since PRP1 names page 0.
    pub fn list_entry(&self, index: u64, n: u64) -> u64 {
        self.iova + (index << self.shift) + (n + 1) * PAGE_BYTES
    }

    /// Entries that each PRP list holds: 0 if the pieces need no list.
    pub fn list_entries(&self) -> u64 {
        let pages = (1u64 << self.shift) / PAGE_BYTES;
        if pages > 2 { pages - 1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "a handle that is never used for an access")]
    fn pool(shift: u32) -> Pool {
        // UNSAFETY: the handle only fills a field; no test loads through it.
        // SAFETY: no access is made, so no byte has to be valid.
        let memory = unsafe { NativeBytes::new(core::ptr::null_mut(), 0) };
        Pool {
            memory,
            iova: 0x80_0000,
            lists: 0x40_0000,
            shift,
            count: 4,
        }
    }

    #[test]
    fn pieces_of_up_to_two_pages_need_no_list() {
        assert_eq!(pool(9).prps(3), (0x80_0600, 0));
        assert_eq!(pool(12).prps(1), (0x80_1000, 0));
        assert_eq!(pool(13).prps(1), (0x80_2000, 0x80_3000));
        assert_eq!(pool(13).list_entries(), 0);
    }

    #[test]
    fn larger_pieces_point_to_their_list() {
        let pool = pool(16);
        assert_eq!(pool.prps(2), (0x82_0000, 0x40_0400));
        assert_eq!(pool.list_entries(), 15);
        assert_eq!(pool.list_entry(2, 0), 0x82_1000);
        assert_eq!(pool.list_entry(2, 14), 0x82_F000);
        assert!(pool.list_entries() * 8 <= LIST_BYTES);
    }

    #[test]
    fn lists_are_aligned_for_ssds_that_misread_others() {
        for index in 0..4 {
            let (_, list) = pool(16).prps(index);
            assert!(list.is_multiple_of(512));
            assert_eq!(
                list / PAGE_BYTES,
                (list + 15 * 8 - 1) / PAGE_BYTES,
                "one page"
            );
        }
    }
}
