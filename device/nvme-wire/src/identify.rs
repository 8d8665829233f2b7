//! Pages that the Identify command returns (Base 5.17.2, NVM 4.1.5).
//!
//! Each page is 4096 bytes; fields that warpstore neither reads nor sets are reserved arrays.

use bitfield_struct::bitfield;
use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of every Identify page.
pub const PAGE: usize = 4096;
/// 8-byte words of every Identify page.
pub const PAGE_WORDS: usize = PAGE / 8;

bitflags! {
    /// Optional Admin Command Support (Base, Identify Controller bytes 257:256).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Oacs: u16 {
        /// Format NVM.
        const FORMAT = 1 << 1;
        /// Namespace Management.
        const NAMESPACE_MANAGEMENT = 1 << 3;
        /// Doorbell Buffer Config: the controller is virtual and can poll doorbells in memory.
        const DOORBELL_BUFFER = 1 << 8;
        const _ = !0;
    }

    /// Optional NVM Command Support (Base, Identify Controller bytes 521:520).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Oncs: u16 {
        /// Compare.
        const COMPARE = 1 << 0;
        /// Dataset Management.
        const DATASET_MANAGEMENT = 1 << 2;
        /// Write Zeroes.
        const WRITE_ZEROES = 1 << 3;
        const _ = !0;
    }

    /// Volatile Write Cache (Base, Identify Controller byte 525).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Vwc: u8 {
        /// There is one: a completed write is durable only after Flush.
        const PRESENT = 1 << 0;
        /// Bits 2:1 together say 11b: Flush of namespace FFFFFFFFh flushes all of them.
        const FLUSH_ALL = 0b11 << 1;
        const _ = !0;
    }
}

/// The entry sizes of a queue that a controller accepts (Base, bytes 512 and 513).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct EntrySizes {
    /// log2 of the required, smallest size in bytes.
    #[bits(4)]
    pub min: u8,
    /// log2 of the largest size in bytes.
    #[bits(4)]
    pub max: u8,
}

/// Identify Controller, CNS 01h (Base 5.17.2.1).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[allow(missing_docs, reason = "reserved fields have nothing to say")]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: u16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: u16,
    /// Serial Number: ASCII padded with spaces, and not to be trusted.
    pub sn: [u8; 20],
    /// Model Number: as the serial number.
    pub mn: [u8; 40],
    /// Firmware Revision: as the serial number.
    pub fr: [u8; 8],
    pub reserved_72: [u8; 5],
    /// Maximum Data Transfer Size: 2^MDTS pages of CAP.MPSMIN; 0 means no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: u16,
    /// Version, as the VS register.
    pub ver: u32,
    /// RTD3 Resume Latency in microseconds.
    pub rtd3r: u32,
    /// RTD3 Entry Latency in microseconds: how long a normal shutdown takes; 0 means not said.
    pub rtd3e: u32,
    pub reserved_92: [u8; 19],
    /// Controller Type: 1 is an I/O controller, 0 is not said.
    pub cntrltype: u8,
    pub reserved_112: [u8; 16],
    /// Command Retry Delay Times 1 to 3, in units of 100 ms.
    pub crdt: [u16; 3],
    pub reserved_134: [u8; 122],
    /// Optional Admin Command Support, raw; see [`IdentifyController::oacs`].
    pub oacs_bits: u16,
    /// Abort Command Limit, zero-based.
    pub acl_z: u8,
    /// Asynchronous Event Request Limit, zero-based.
    pub aerl_z: u8,
    pub reserved_260: [u8; 252],
    /// SQ Entry Size.
    pub sqes: EntrySizes,
    /// CQ Entry Size.
    pub cqes: EntrySizes,
    /// Maximum Outstanding Commands; 0 means not said.
    pub maxcmd: u16,
    /// Number of Namespaces: the largest valid NSID.
    pub nn: u32,
    /// Optional NVM Command Support, raw; see [`IdentifyController::oncs`].
    pub oncs_bits: u16,
    pub reserved_522: [u8; 3],
    /// Volatile Write Cache, raw; see [`IdentifyController::vwc`].
    pub vwc_bits: u8,
    /// Atomic Write Unit Normal in blocks, zero-based.
    pub awun_z: u16,
    /// Atomic Write Unit Power Fail in blocks, zero-based.
    pub awupf_z: u16,
    pub reserved_530: [u8; 6],
    /// SGL Support.
    pub sgls: u32,
    pub reserved_540: [u8; 228],
    /// NVM Subsystem NVMe Qualified Name, UTF-8 ended by a zero byte.
    pub subnqn: [u8; 256],
    pub reserved_1024: [u8; 3072],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<IdentifyController>() == PAGE);
    assert!(offset_of!(IdentifyController, sn) == 4);
    assert!(offset_of!(IdentifyController, mn) == 24);
    assert!(offset_of!(IdentifyController, fr) == 64);
    assert!(offset_of!(IdentifyController, mdts) == 77);
    assert!(offset_of!(IdentifyController, cntlid) == 78);
    assert!(offset_of!(IdentifyController, ver) == 80);
    assert!(offset_of!(IdentifyController, rtd3e) == 88);
    assert!(offset_of!(IdentifyController, cntrltype) == 111);
    assert!(offset_of!(IdentifyController, crdt) == 128);
    assert!(offset_of!(IdentifyController, oacs_bits) == 256);
    assert!(offset_of!(IdentifyController, acl_z) == 258);
    assert!(offset_of!(IdentifyController, aerl_z) == 259);
    assert!(offset_of!(IdentifyController, sqes) == 512);
    assert!(offset_of!(IdentifyController, cqes) == 513);
    assert!(offset_of!(IdentifyController, maxcmd) == 514);
    assert!(offset_of!(IdentifyController, nn) == 516);
    assert!(offset_of!(IdentifyController, oncs_bits) == 520);
    assert!(offset_of!(IdentifyController, vwc_bits) == 525);
    assert!(offset_of!(IdentifyController, awun_z) == 526);
    assert!(offset_of!(IdentifyController, awupf_z) == 528);
    assert!(offset_of!(IdentifyController, sgls) == 536);
    assert!(offset_of!(IdentifyController, subnqn) == 768);
};

impl IdentifyController {
    /// Optional admin commands.
    #[inline]
    pub const fn oacs(&self) -> Oacs {
        Oacs::from_bits_retain(self.oacs_bits)
    }

    /// Optional I/O commands.
    #[inline]
    pub const fn oncs(&self) -> Oncs {
        Oncs::from_bits_retain(self.oncs_bits)
    }

    /// The volatile write cache.
    #[inline]
    pub const fn vwc(&self) -> Vwc {
        Vwc::from_bits_retain(self.vwc_bits)
    }
}

/// One LBA format (NVM 4.1.5.1, figure "LBA Format Data Structure").
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LbaFormat {
    /// Metadata Size in bytes per block.
    pub ms: u16,
    /// LBA Data Size: 2^LBADS bytes; below 9 the format is not available.
    pub lbads: u8,
    /// Relative Performance: 0 is best.
    #[bits(2)]
    pub rp: u8,
    #[bits(6)]
    __: u8,
}

/// Formatted LBA Size (NVM 4.1.5.1, byte 26).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Flbas {
    /// Bits 3:0 of the format's index.
    #[bits(4)]
    pub index_low: u8,
    /// Metadata lies at the end of each block's data, not in a buffer of its own.
    pub extended_metadata: bool,
    /// Bits 5:4 of the format's index; zero while there are at most 16 formats.
    #[bits(2)]
    pub index_high: u8,
    __: bool,
}

/// Identify Namespace for the NVM Command Set, CNS 00h (NVM 4.1.5.1).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[allow(missing_docs, reason = "reserved fields have nothing to say")]
pub struct IdentifyNamespace {
    /// Namespace Size in blocks; 0 if the namespace is not active.
    pub nsze: u64,
    /// Namespace Capacity in blocks.
    pub ncap: u64,
    /// Namespace Utilization in blocks.
    pub nuse: u64,
    /// Namespace Features.
    pub nsfeat: u8,
    /// Number of LBA Formats, zero-based.
    pub nlbaf_z: u8,
    /// Formatted LBA Size.
    pub flbas: Flbas,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings; see [`IdentifyNamespace::protection_type`].
    pub dps: u8,
    pub reserved_30: [u8; 3],
    /// Deallocate Logical Block Features: bits 2:0 say what a deallocated block reads as.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal in blocks, zero-based.
    pub nawun_z: u16,
    /// Namespace Atomic Write Unit Power Fail in blocks, zero-based.
    pub nawupf_z: u16,
    pub reserved_38: [u8; 8],
    /// Namespace Optimal I/O Boundary in blocks; 0 means none.
    pub noiob: u16,
    /// NVM Capacity in bytes, low and high half.
    pub nvmcap: [u64; 2],
    pub reserved_64: [u8; 40],
    /// Namespace Globally Unique Identifier.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier.
    pub eui64: [u8; 8],
    /// LBA formats, of which the first NLBAF + 1 are defined.
    pub lbaf: [LbaFormat; 64],
    pub reserved_384: [u8; 3712],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<IdentifyNamespace>() == PAGE);
    assert!(offset_of!(IdentifyNamespace, nlbaf_z) == 25);
    assert!(offset_of!(IdentifyNamespace, flbas) == 26);
    assert!(offset_of!(IdentifyNamespace, dps) == 29);
    assert!(offset_of!(IdentifyNamespace, dlfeat) == 33);
    assert!(offset_of!(IdentifyNamespace, nawupf_z) == 36);
    assert!(offset_of!(IdentifyNamespace, noiob) == 46);
    assert!(offset_of!(IdentifyNamespace, nvmcap) == 48);
    assert!(offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(offset_of!(IdentifyNamespace, eui64) == 120);
    assert!(offset_of!(IdentifyNamespace, lbaf) == 128);
};

impl IdentifyNamespace {
    /// Index of the format in use.
    #[inline]
    pub const fn format_index(&self) -> u8 {
        self.flbas.index_high() << 4 | self.flbas.index_low()
    }

    /// The format in use, or `None` if FLBAS points beyond the NLBAF + 1 defined formats.
    #[inline]
    pub fn format(&self) -> Option<LbaFormat> {
        let index = self.format_index();
        (index <= self.nlbaf_z).then(|| self.lbaf.get(index as usize).copied())?
    }

    /// End-to-end protection type: 0 is off, 1 to 3 are on, others are reserved.
    #[inline]
    pub const fn protection_type(&self) -> u8 {
        self.dps & 7
    }
}

/// Active Namespace ID list, CNS 02h (Base 5.17.2.2): ascending identifiers, ended by zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct NamespaceList {
    /// The identifiers.
    pub nsid: [u32; NamespaceList::LEN],
}

const _: () = assert!(size_of::<NamespaceList>() == PAGE);

impl NamespaceList {
    /// Identifiers that fit in a list; a full list may go on in the next one.
    pub const LEN: usize = PAGE / 4;

    /// The identifiers before the first zero.
    pub fn active(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsid.iter().copied().take_while(|&nsid| nsid != 0)
    }
}

/// Turns pages into words and back, for memory that is accessed by words.
macro_rules! page_words {
    ($($page:ty),*) => {
        $(impl $page {
            /// The page that these words hold.
            pub const fn from_words(words: [u64; PAGE_WORDS]) -> Self {
                zerocopy::transmute!(words)
            }

            /// The page in 8-byte words.
            pub const fn to_words(self) -> [u64; PAGE_WORDS] {
                zerocopy::transmute!(self)
            }
        })*
    };
}
page_words!(IdentifyController, IdentifyNamespace, NamespaceList);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn format_index_has_six_bits_and_a_bound() {
        let mut namespace = IdentifyNamespace::new_zeroed();
        namespace.nlbaf_z = 17;
        namespace.lbaf[17] = LbaFormat::new().with_lbads(12);
        namespace.flbas = Flbas::from_bits(0b0010_0001);
        assert_eq!(namespace.format_index(), 17);
        assert_eq!(namespace.format().map(|format| format.lbads()), Some(12));
        namespace.nlbaf_z = 16;
        assert_eq!(namespace.format(), None);
        namespace.flbas = Flbas::from_bits(0xff);
        namespace.nlbaf_z = 0xff;
        assert!(namespace.format().is_some(), "index 63 is the last of 64");
    }

    #[test]
    fn formats_and_flags_decode() {
        assert_eq!(
            LbaFormat::new().with_ms(8).with_lbads(9).into_bits(),
            0x0009_0008
        );
        assert!(Flbas::from_bits(1 << 4).extended_metadata());
        let mut controller = IdentifyController::new_zeroed();
        controller.vwc_bits = 0b111;
        controller.oacs_bits = 1 << 8;
        assert_eq!(controller.vwc(), Vwc::PRESENT | Vwc::FLUSH_ALL);
        assert_eq!(controller.oacs(), Oacs::DOORBELL_BUFFER);
        assert_eq!(EntrySizes::from_bits(0x66).min(), 6);
    }

    #[test]
    fn a_list_ends_at_its_first_zero() {
        let mut list = NamespaceList::new_zeroed();
        list.nsid[..4].copy_from_slice(&[3, 7, 0, 9]);
        assert!(list.active().eq([3, 7]));
        list.nsid = [1; NamespaceList::LEN];
        assert_eq!(list.active().count(), NamespaceList::LEN);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn pages_round_trip(words in prop::collection::vec(any::<u64>(), PAGE_WORDS)) {
            let words: [u64; PAGE_WORDS] = words.try_into().unwrap();
            prop_assert_eq!(IdentifyController::from_words(words).to_words(), words);
            prop_assert_eq!(IdentifyNamespace::from_words(words).to_words(), words);
            prop_assert_eq!(NamespaceList::from_words(words).to_words(), words);
        }
    }
}
