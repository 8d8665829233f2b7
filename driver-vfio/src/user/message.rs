//! The messages of vfio-user, as the client writes and reads them (the protocol's specification is
//! part of QEMU's documentation, "vfio-user Protocol").

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a message asks for, by its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceGetInfo = 4,
    DeviceGetRegionInfo = 5,
    RegionRead = 9,
    RegionWrite = 10,
    DeviceReset = 13,
}

impl Command {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Version => "VERSION",
            Self::DmaMap => "DMA_MAP",
            Self::DmaUnmap => "DMA_UNMAP",
            Self::DeviceGetInfo => "DEVICE_GET_INFO",
            Self::DeviceGetRegionInfo => "DEVICE_GET_REGION_INFO",
            Self::RegionRead => "REGION_READ",
            Self::RegionWrite => "REGION_WRITE",
            Self::DeviceReset => "DEVICE_RESET",
        }
    }
}

/// Bits of the flags of a header that say which kind of message it is.
pub(super) const TYPE: u32 = 0xf;
/// Type of a reply; a command has 0.
pub(super) const REPLY: u32 = 1;
/// Flag of a reply that is a refusal.
pub(super) const ERROR: u32 = 1 << 5;

/// Longest message that is believed. Bytes.
pub(super) const LONGEST: u32 = 1 << 20;

/// What every message begins with.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) command: u16,
    /// Bytes of the message, the header's own included.
    pub(super) size: u32,
    pub(super) flags: u32,
    pub(super) error: u32,
}

/// The version that is spoken: 0.1. JSON with capabilities follows, and a zero byte.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: u16,
    pub(super) minor: u16,
}

/// What the client can do: the protocol's defaults.
pub(super) const CAPABILITIES: &[u8] =
    b"{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":1048576}}\0";

/// Lets the server reach memory, whose descriptor goes with the message.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct DmaMap {
    pub(super) argsz: u32,
    /// Bit 0: the server may read; bit 1: it may write.
    pub(super) flags: u32,
    /// Of the first byte in the descriptor's file.
    pub(super) offset: u64,
    /// First IOVA.
    pub(super) address: u64,
    pub(super) size: u64,
}

/// Takes back what [`DmaMap`] gave, whole.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct DmaUnmap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// What the device is. All zeros but the size to ask.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) argsz: u32,
    /// `VFIO_DEVICE_FLAGS_*`.
    pub(super) flags: u32,
    pub(super) num_regions: u32,
    pub(super) num_irqs: u32,
}

/// What a region is; capabilities follow in the reply.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct RegionInfo {
    pub(super) argsz: u32,
    /// `VFIO_REGION_INFO_FLAG_*`.
    pub(super) flags: u32,
    pub(super) index: u32,
    /// Offset of the first capability from the beginning of this structure; 0 for none.
    pub(super) cap_offset: u32,
    pub(super) size: u64,
    /// Of the region's first byte in the descriptor's file.
    pub(super) offset: u64,
}

/// A capability that lists one part of a region that may be mapped.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct SparseMmap {
    pub(super) id: u16,
    pub(super) version: u16,
    pub(super) next: u32,
    pub(super) areas: u32,
    pub(super) reserved: u32,
    /// Of the part, in the region.
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Reads or writes a part of a region; data follow.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct RegionAccess {
    pub(super) offset: u64,
    pub(super) region: u32,
    pub(super) count: u32,
}

const _: () = assert!(size_of::<Header>() == 16 && size_of::<DmaMap>() == 32);
const _: () = assert!(size_of::<RegionInfo>() == 32 && size_of::<SparseMmap>() == 32);
