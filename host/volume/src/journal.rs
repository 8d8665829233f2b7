//! The journal: how far a flash has come, for whoever goes on with it.
//!
//! It lies between the first superblock and the data, on every member, only while a volume is being
//! written. What it says is a hint: everything is read again before the new volume is there.

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::UNIT;
use crate::error::Error;
use crate::member::Members;

const MAGIC: &[u8; 16] = b"warpstore flash\0";
const VERSION: u32 = 1;
/// Bytes of a journal, at byte [`UNIT`] of each member.
const BYTES: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Record {
    magic: [u8; 16],
    version: U32,
    /// Of the record, with zeros here.
    crc: U32,
    uuid: [u8; 16],
    members: U32,
    fingerprint: U32,
    done: U64,
    total: U64,
}

const _: () = assert!(size_of::<Record>() == 64);

/// What a flash that is under way, or was interrupted, left on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    /// Of the new volume.
    pub uuid: Uuid,
    /// How many members it shall have.
    pub members: u32,
    /// Of what is being written, to know it again. On each member it is that of its place, too
    /// ([`Journal::at_place`]): with members in another order the data lie elsewhere.
    pub fingerprint: u32,
    /// Bytes of the volume that are durable.
    pub done: u64,
    /// Bytes that it shall have.
    pub total: u64,
}

impl Journal {
    /// A fingerprint on the member with this index.
    pub(crate) fn at_place(fingerprint: u32, member: usize) -> u32 {
        crc32c::crc32c_append(fingerprint, &(member as u32).to_le_bytes())
    }

    /// Writes it to every member.
    pub(crate) fn write(&self, members: &mut Members) -> Result<(), Error> {
        (0..members.count() as usize)
            .try_for_each(|member| members.write(member, UNIT, &self.encode(member)))
    }

    fn encode(&self, member: usize) -> [u8; BYTES] {
        let mut record = Record {
            magic: *MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            uuid: self.uuid.into_bytes(),
            members: self.members.into(),
            fingerprint: Self::at_place(self.fingerprint, member).into(),
            done: self.done.into(),
            total: self.total.into(),
        };
        record.crc = crc32c::crc32c(record.as_bytes()).into();
        let mut block = [0; BYTES];
        block[..size_of::<Record>()].copy_from_slice(record.as_bytes());
        block
    }

    /// Reads that of one member, if there is one.
    pub(crate) fn read(members: &mut Members, member: usize) -> Result<Option<Self>, Error> {
        let mut block = [0; BYTES];
        members.read(member, UNIT, &mut block)?;
        Ok(Self::decode(&block))
    }

    fn decode(block: &[u8]) -> Option<Self> {
        let (mut record, _) = Record::read_from_prefix(block).ok()?;
        let crc = std::mem::replace(&mut record.crc, 0.into()).get();
        let holds = record.magic == *MAGIC
            && record.version.get() == VERSION
            && crc == crc32c::crc32c(record.as_bytes());
        holds.then(|| Self {
            uuid: Uuid::from_bytes(record.uuid),
            members: record.members.get(),
            fingerprint: record.fingerprint.get(),
            done: record.done.get(),
            total: record.total.get(),
        })
    }

    /// Takes the journals away; not durable before a flush.
    pub(crate) fn clear(members: &mut Members) -> Result<(), Error> {
        let empty = [0; BYTES];
        (0..members.count()).try_for_each(|member| members.write(member as usize, UNIT, &empty))
    }
}
