//! Completion queue entries (Base 3.3.3.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Status;

/// A completion queue entry of 16 bytes (Base 3.3.3.2, figure "Common Completion Queue Entry
/// Layout").
///
/// In a ring, the second word holds the phase tag. A reader tests it there with
/// [`Cqe::phase_of`], and only then reads the rest.
#[repr(C, align(8))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Cqe {
    /// Dword 0: command specific result.
    pub dw0: u32,
    /// Dword 1: command specific result.
    pub dw1: u32,
    /// SQ Head Pointer: the controller has fetched every entry before it.
    pub sqhd: u16,
    /// SQ Identifier.
    pub sqid: u16,
    /// Command Identifier.
    pub cid: u16,
    /// Phase tag in bit 0, the status field above it.
    status_and_phase: u16,
}

const _: () = {
    assert!(size_of::<Cqe>() == 1 << Cqe::SIZE_LOG2);
    assert!(core::mem::offset_of!(Cqe, dw1) == 4);
    assert!(core::mem::offset_of!(Cqe, sqhd) == 8);
    assert!(core::mem::offset_of!(Cqe, sqid) == 10);
    assert!(core::mem::offset_of!(Cqe, cid) == 12);
    assert!(core::mem::offset_of!(Cqe, status_and_phase) == 14);
};

impl Cqe {
    /// log2 of the size in bytes: the value of CC.IOCQES.
    pub const SIZE_LOG2: u8 = 4;

    /// A completion of command `cid` with no result, from no queue yet.
    #[inline(always)]
    pub const fn new(cid: u16, status: Status, phase: bool) -> Self {
        let status_and_phase = status.bits() << 1 | phase as u16;
        Self {
            dw0: 0,
            dw1: 0,
            sqhd: 0,
            sqid: 0,
            cid,
            status_and_phase,
        }
    }

    /// The same completion with this result in Dword 0.
    #[inline(always)]
    pub const fn with_result(self, dw0: u32) -> Self {
        Self { dw0, ..self }
    }

    /// The same completion as sent for submission queue `sqid`, whose head is now `sqhd`.
    #[inline(always)]
    pub const fn with_sq(self, sqid: u16, sqhd: u16) -> Self {
        Self { sqid, sqhd, ..self }
    }

    /// Phase tag.
    #[inline(always)]
    pub const fn phase(self) -> bool {
        self.status_and_phase & 1 != 0
    }

    /// Phase tag of the entry whose second ring word is `word1`.
    #[inline(always)]
    pub const fn phase_of(word1: u64) -> bool {
        word1 >> 48 & 1 != 0
    }

    /// Status field.
    #[inline(always)]
    pub const fn status(self) -> Status {
        Status::from_bits(self.status_and_phase >> 1)
    }

    /// The entry as it lies in the ring, in 8-byte words.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 2] {
        zerocopy::transmute!(self)
    }

    /// The entry that these ring words hold.
    #[inline(always)]
    pub const fn from_words(words: [u64; 2]) -> Self {
        zerocopy::transmute!(words)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_completion_has_the_bytes_that_the_specification_draws() {
        let cqe = Cqe::new(0x1234, Status::LBA_OUT_OF_RANGE.with_dnr(), true)
            .with_result(0xdead_beef)
            .with_sq(5, 0x0102);
        // Dword 3: CID 15:0, P 16, SC 24:17, SCT 27:25, CRD 29:28, M 30, DNR 31.
        let dw3 = 0x1234 | 1 << 16 | 0x80 << 17 | 1 << 31;
        let words = [0xdead_beef, 0x0102 | 5 << 16 | dw3 << 32];
        assert_eq!(cqe.to_words(), words);
        assert!(cqe.phase() && Cqe::phase_of(words[1]));
    }

    proptest! {
        #[test]
        fn words_round_trip(words: [u64; 2]) {
            let cqe = Cqe::from_words(words);
            prop_assert_eq!(cqe.to_words(), words);
            prop_assert_eq!(cqe.phase(), Cqe::phase_of(words[1]));
        }

        #[test]
        fn parts_round_trip(cid: u16, bits in 0u16..0x8000, phase: bool, dw0: u32, sqid: u16, sqhd: u16) {
            let status = Status::from_bits(bits);
            let cqe = Cqe::new(cid, status, phase).with_result(dw0).with_sq(sqid, sqhd);
            prop_assert_eq!((cqe.cid, cqe.status(), cqe.phase()), (cid, status, phase));
            prop_assert_eq!((cqe.dw0, cqe.sqid, cqe.sqhd), (dw0, sqid, sqhd));
        }
    }
}
