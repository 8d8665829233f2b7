//! The superblock: what a member knows of its volume, byte by byte.
//!
//! Members are read as if anybody had written them: whatever the bytes are, they are either a
//! superblock that holds together or a [`Damage`], and nothing panics.

use std::ops::Range;

use uuid::Uuid;
use warpstore_device::Layout;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::UNIT;
use crate::element::ElementType;
use crate::spread::Spread;

const MAGIC: &[u8; 16] = b"warpstore volume";
const VERSION: u32 = 1;
/// The most arrays of a volume: what a superblock has room for.
pub const MAX_ARRAYS: usize = (UNIT as usize - size_of::<Header>()) / size_of::<Entry>();
/// The longest name of an array. Bytes.
pub const MAX_NAME: usize = 64;

/// The first 128 bytes.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: [u8; 16],
    version: U32,
    /// Of all [`UNIT`] bytes, with zeros here.
    crc: U32,
    uuid: [u8; 16],
    generation: U64,
    member: U32,
    members: U32,
    layout: U32,
    state: U32,
    stripe: U64,
    member_bytes: U64,
    region_start: U64,
    region_end: U64,
    checks_offset: U64,
    checks_crc: U32,
    arrays: U32,
    reserved: [u8; 16],
}

/// One array, 128 bytes.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    name: [u8; MAX_NAME],
    element: U32,
    crc: U32,
    len: U64,
    offset: U64,
    reserved: [u8; 40],
}

const _: () = assert!(size_of::<Header>() == 128 && size_of::<Entry>() == 128);
const _: () = assert!(std::mem::offset_of!(Header, stripe) == 64);
const _: () = assert!(std::mem::offset_of!(Header, arrays) == 108);
const _: () = assert!(std::mem::offset_of!(Entry, offset) == 80);

/// Whether the checksums hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// They do.
    Sealed = 0,
    /// Kernels may have written since.
    Unsealed = 1,
}

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The same on all members.
    pub description: Description,
    /// Which member this is, from 0.
    pub member: u32,
    /// Bytes of this member that are used, both superblocks included.
    pub member_bytes: u64,
}

/// What all members agree about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Whose members they are. It stays when the volume is written anew.
    pub uuid: Uuid,
    /// Grows with every change.
    pub generation: u64,
    /// How many members there are.
    pub members: u32,
    /// How arrays lie on them.
    pub layout: Layout,
    /// Stripe unit. Bytes.
    pub stripe: u64,
    /// Whether the checksums hold.
    pub state: State,
    /// The bytes of each member that hold the data.
    pub region: Range<u64>,
    /// Where the table of checksums begins: behind the arrays. Bytes of the volume.
    pub checks_offset: u64,
    /// CRC32C of that table.
    pub checks_crc: u32,
    /// The arrays, one behind the other.
    pub arrays: Vec<ArrayEntry>,
}

/// An array of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayEntry {
    /// Its name, unique in the volume.
    pub name: String,
    /// Type of its elements.
    pub element: ElementType,
    /// Number of elements.
    pub len: u64,
    /// Where it begins: bytes of the volume.
    pub offset: u64,
    /// CRC32C of its bytes, while the volume is sealed.
    pub crc: u32,
}

impl ArrayEntry {
    /// Its size. Bytes.
    pub fn bytes(&self) -> u64 {
        self.len * self.element.bytes()
    }

    /// Where the next array may begin.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes().next_multiple_of(UNIT)
    }
}

/// Why bytes are no superblock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Nothing but zeros.
    #[error("is empty")]
    Blank,
    /// Something else begins there.
    #[error("is no superblock")]
    Other,
    /// One of another release.
    #[error("has format version {0}, and this build reads version {VERSION}")]
    Version(u32),
    /// The checksum is wrong.
    #[error("does not have the checksum that it says")]
    Checksum,
    /// The checksum is right, and a value is not.
    #[error("has a value that cannot be: {0}")]
    Value(&'static str),
    /// The member does not give it.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

impl Description {
    /// Bytes of the volume that hold arrays and checksums.
    pub(crate) fn bytes(&self) -> u64 {
        self.checks_offset + checks_bytes(self.checks_offset).next_multiple_of(UNIT)
    }

    /// How many members hold each byte.
    pub fn copies(&self) -> u32 {
        self.spread().copies()
    }

    /// What [`Volume::verify`](crate::Volume::verify) and [`Volume::seal`](crate::Volume::seal) tell in the
    /// end: bytes of all copies of the arrays, each rounded up to units.
    pub fn verified_bytes(&self) -> u64 {
        self.checks_offset * u64::from(self.copies())
    }

    pub(crate) fn spread(&self) -> Spread {
        Spread::new(self.layout, self.members, self.stripe, self.region.start)
    }
}

/// Bytes of the table of checksums of so many bytes of arrays.
pub(crate) fn checks_bytes(arrays_bytes: u64) -> u64 {
    arrays_bytes / UNIT * 4
}

impl Superblock {
    /// The superblock as it lies on the member: [`UNIT`] bytes.
    ///
    /// # Panics
    /// If there are too many arrays, or a name is too long.
    pub fn encode(&self) -> Vec<u8> {
        let of = &self.description;
        let mut header = Header {
            magic: *MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            uuid: of.uuid.into_bytes(),
            generation: of.generation.into(),
            member: self.member.into(),
            members: of.members.into(),
            layout: (of.layout as u32).into(),
            state: (of.state as u32).into(),
            stripe: of.stripe.into(),
            member_bytes: self.member_bytes.into(),
            region_start: of.region.start.into(),
            region_end: of.region.end.into(),
            checks_offset: of.checks_offset.into(),
            checks_crc: of.checks_crc.into(),
            arrays: (of.arrays.len() as u32).into(),
            reserved: [0; 16],
        };
        let mut bytes = header.as_bytes().to_vec();
        for array in &of.arrays {
            let mut entry = Entry::new_zeroed();
            entry.name[..array.name.len()].copy_from_slice(array.name.as_bytes());
            entry.element = (array.element as u32).into();
            entry.crc = array.crc.into();
            entry.len = array.len.into();
            entry.offset = array.offset.into();
            bytes.extend_from_slice(entry.as_bytes());
        }
        assert!(of.arrays.len() <= MAX_ARRAYS, "the arrays were counted");
        bytes.resize(UNIT as usize, 0);
        header.crc = crc32c::crc32c(&bytes).into();
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        bytes
    }

    /// Reads a superblock.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let (mut header, rest) = Header::read_from_prefix(bytes).map_err(|_| Damage::Other)?;
        if header.magic != *MAGIC {
            let blank = bytes.iter().all(|&byte| byte == 0);
            return Err(if blank { Damage::Blank } else { Damage::Other });
        }
        if header.version.get() != VERSION {
            return Err(Damage::Version(header.version.get()));
        }
        let crc = std::mem::replace(&mut header.crc, 0.into());
        let sum = crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), rest);
        if bytes.len() as u64 != UNIT || sum != crc.get() {
            return Err(Damage::Checksum);
        }
        let count = header.arrays.get() as usize;
        if count > MAX_ARRAYS {
            return Err(Damage::Value("more arrays than there is room for"));
        }
        let (entries, _) = <[Entry]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| Damage::Value("more arrays than there is room for"))?;
        let arrays = entries.iter().map(array).collect::<Result<Vec<_>, _>>()?;
        let superblock = Self {
            description: description(&header, arrays)?,
            member: header.member.get(),
            member_bytes: header.member_bytes.get(),
        };
        superblock.check()?;
        Ok(superblock)
    }
}

fn description(header: &Header, arrays: Vec<ArrayEntry>) -> Result<Description, Damage> {
    Ok(Description {
        uuid: Uuid::from_bytes(header.uuid),
        generation: header.generation.get(),
        members: header.members.get(),
        layout: match header.layout.get() {
            0 => Layout::Stripe,
            1 => Layout::Replicate,
            _ => return Err(Damage::Value("the layout")),
        },
        stripe: header.stripe.get(),
        state: match header.state.get() {
            0 => State::Sealed,
            1 => State::Unsealed,
            _ => return Err(Damage::Value("the state")),
        },
        region: header.region_start.get()..header.region_end.get(),
        checks_offset: header.checks_offset.get(),
        checks_crc: header.checks_crc.get(),
        arrays,
    })
}

fn array(entry: &Entry) -> Result<ArrayEntry, Damage> {
    let len = entry.name.iter().position(|&byte| byte == 0);
    let name = &entry.name[..len.unwrap_or(MAX_NAME)];
    let name = str::from_utf8(name).map_err(|_| Damage::Value("the name of an array"))?;
    Ok(ArrayEntry {
        name: name.to_owned(),
        element: ElementType::from_code(entry.element.get())
            .ok_or(Damage::Value("the type of an array"))?,
        len: entry.len.get(),
        offset: entry.offset.get(),
        crc: entry.crc.get(),
    })
}
