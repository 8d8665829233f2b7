//! Submission queue entries (Base 3.3.3.1) and the I/O commands of the NVM Command Set (NVM 3.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::open_set;

open_set! {
    /// Opcode of an I/O command (NVM 3.2, figure "Opcodes for NVM Commands").
    IoOpcode(u8) {
        /// Flush (Base 7.1).
        FLUSH = 0x00,
        /// Write (NVM 3.2.6).
        WRITE = 0x01,
        /// Read (NVM 3.2.4).
        READ = 0x02,
    }
}

/// A submission queue entry: one command of 64 bytes (Base 3.3.3.1, figure "Common Command
/// Format").
///
/// Data is described by PRPs, so FUSE and PSDT are zero in every command made here.
#[repr(C, align(8))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Sqe {
    /// Command Dword 0: opcode 7:0, FUSE 9:8, PSDT 15:14, CID 31:16.
    pub cdw0: u32,
    /// Namespace identifier; 0 where the command has none.
    pub nsid: u32,
    /// Command Dword 2, command specific.
    pub cdw2: u32,
    /// Command Dword 3, command specific.
    pub cdw3: u32,
    /// Metadata Pointer; unused here.
    pub mptr: u64,
    /// PRP Entry 1: IOVA of the first byte of data.
    pub prp1: u64,
    /// PRP Entry 2: the second page, or the PRP list (Base 4.1.1).
    pub prp2: u64,
    /// Command Dword 10, command specific.
    pub cdw10: u32,
    /// Command Dword 11, command specific.
    pub cdw11: u32,
    /// Command Dword 12, command specific.
    pub cdw12: u32,
    /// Command Dword 13, command specific.
    pub cdw13: u32,
    /// Command Dword 14, command specific.
    pub cdw14: u32,
    /// Command Dword 15, command specific.
    pub cdw15: u32,
}

const _: () = {
    assert!(size_of::<Sqe>() == 1 << Sqe::SIZE_LOG2);
    assert!(core::mem::offset_of!(Sqe, nsid) == 4);
    assert!(core::mem::offset_of!(Sqe, cdw2) == 8);
    assert!(core::mem::offset_of!(Sqe, mptr) == 16);
    assert!(core::mem::offset_of!(Sqe, prp1) == 24);
    assert!(core::mem::offset_of!(Sqe, prp2) == 32);
    assert!(core::mem::offset_of!(Sqe, cdw10) == 40);
    assert!(core::mem::offset_of!(Sqe, cdw15) == 60);
};

impl Sqe {
    /// log2 of the size in bytes: the value of CC.IOSQES.
    pub const SIZE_LOG2: u8 = 6;

    /// A command with this opcode and zero everywhere else.
    #[inline(always)]
    pub(crate) const fn of(opcode: u8) -> Self {
        Self {
            cdw0: opcode as u32,
            nsid: 0,
            cdw2: 0,
            cdw3: 0,
            mptr: 0,
            prp1: 0,
            prp2: 0,
            cdw10: 0,
            cdw11: 0,
            cdw12: 0,
            cdw13: 0,
            cdw14: 0,
            cdw15: 0,
        }
    }

    /// Read `nlb_z + 1` blocks from `slba` on (NVM 3.2.4).
    #[inline(always)]
    pub const fn read(nsid: u32, slba: u64, nlb_z: u16, prp1: u64, prp2: u64) -> Self {
        Self::transfer(IoOpcode::READ, nsid, slba, nlb_z, prp1, prp2)
    }

    /// Write `nlb_z + 1` blocks from `slba` on (NVM 3.2.6).
    #[inline(always)]
    pub const fn write(nsid: u32, slba: u64, nlb_z: u16, prp1: u64, prp2: u64) -> Self {
        Self::transfer(IoOpcode::WRITE, nsid, slba, nlb_z, prp1, prp2)
    }

    /// Make completed writes of the namespace durable (Base 7.1).
    #[inline(always)]
    pub const fn flush(nsid: u32) -> Self {
        Self {
            nsid,
            ..Self::of(IoOpcode::FLUSH.0)
        }
    }

    #[inline(always)]
    const fn transfer(
        opcode: IoOpcode,
        nsid: u32,
        slba: u64,
        nlb_z: u16,
        prp1: u64,
        prp2: u64,
    ) -> Self {
        Self {
            nsid,
            prp1,
            prp2,
            cdw10: slba as u32,
            cdw11: (slba >> 32) as u32,
            cdw12: nlb_z as u32,
            ..Self::of(opcode.0)
        }
    }

    /// The same command with this command identifier.
    #[inline(always)]
    pub const fn with_cid(self, cid: u16) -> Self {
        Self {
            cdw0: self.cdw0 & 0xffff | (cid as u32) << 16,
            ..self
        }
    }

    /// Opcode; [`IoOpcode`] or [`AdminOpcode`](crate::admin::AdminOpcode) by the queue's kind.
    #[inline(always)]
    pub const fn opcode(self) -> u8 {
        self.cdw0 as u8
    }

    /// Command identifier.
    #[inline(always)]
    pub const fn cid(self) -> u16 {
        (self.cdw0 >> 16) as u16
    }

    /// FUSE and PSDT, bits 15:8 of Command Dword 0: zero for a single command that uses PRPs.
    #[inline(always)]
    pub const fn flags(self) -> u8 {
        (self.cdw0 >> 8) as u8
    }

    /// Namespace identifier.
    #[inline(always)]
    pub const fn nsid(self) -> u32 {
        self.nsid
    }

    /// PRP Entry 1.
    #[inline(always)]
    pub const fn prp1(self) -> u64 {
        self.prp1
    }

    /// PRP Entry 2.
    #[inline(always)]
    pub const fn prp2(self) -> u64 {
        self.prp2
    }

    /// Starting LBA of a read or write.
    #[inline(always)]
    pub const fn slba(self) -> u64 {
        self.cdw10 as u64 | (self.cdw11 as u64) << 32
    }

    /// Number of Logical Blocks of a read or write, zero-based.
    #[inline(always)]
    pub const fn nlb_z(self) -> u16 {
        self.cdw12 as u16
    }

    /// Force Unit Access of a read or write: it concerns media that last, not a volatile cache
    /// (NVM 3.2.4, 3.2.6).
    #[inline(always)]
    pub const fn fua(self) -> bool {
        self.cdw12 >> 30 & 1 != 0
    }

    /// The entry as it lies in the ring, in 8-byte words.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 8] {
        zerocopy::transmute!(self)
    }

    /// The entry that these ring words hold.
    #[inline(always)]
    pub const fn from_words(words: [u64; 8]) -> Self {
        zerocopy::transmute!(words)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_read_has_the_bytes_that_the_specification_draws() {
        let words = Sqe::read(7, 0x0123_4567_89ab_cdef, 15, 0xaaaa_0000, 0xbbbb_0000)
            .with_cid(0x1234)
            .to_words();
        assert_eq!(
            words,
            [
                0x0000_0007_1234_0002,
                0,
                0,
                0xaaaa_0000,
                0xbbbb_0000,
                0x0123_4567_89ab_cdef,
                15,
                0
            ]
        );
    }

    #[test]
    fn a_flush_names_only_its_namespace() {
        assert_eq!(Sqe::flush(3).to_words(), [3 << 32, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn words_round_trip(words: [u64; 8]) {
            prop_assert_eq!(Sqe::from_words(words).to_words(), words);
        }

        #[test]
        fn accessors_return_what_constructors_took(
            nsid: u32, slba: u64, nlb_z: u16, prp1: u64, prp2: u64, old_cid: u16, cid: u16,
        ) {
            let sqe = Sqe::write(nsid, slba, nlb_z, prp1, prp2).with_cid(old_cid).with_cid(cid);
            prop_assert_eq!(sqe.opcode(), IoOpcode::WRITE.0);
            prop_assert_eq!(sqe.flags(), 0);
            prop_assert_eq!(
                (sqe.cid(), sqe.nsid(), sqe.slba(), sqe.nlb_z(), sqe.prp1(), sqe.prp2()),
                (cid, nsid, slba, nlb_z, prp1, prp2)
            );
        }
    }
}
