//! The SSDs or files that a volume lies on.

use std::io;

use crate::UNIT;
use crate::error::Error;

/// One SSD or file. One thread uses it at a time.
pub trait Member {
    /// What the user calls it, as `file:PATH` or `vfio:SERIAL`.
    fn name(&self) -> String;

    /// Its size. Bytes.
    fn bytes(&self) -> u64;

    /// Bytes of a logical block, at most 4096: offsets and lengths are multiples.
    fn block_bytes(&self) -> u32;

    /// Reads from byte `offset` on.
    ///
    /// # Errors
    /// The bytes could not all be read.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes from byte `offset` on. What was written is durable after [`Member::flush`]; before, any
    /// part of it may be.
    ///
    /// # Errors
    /// The bytes could not all be written.
    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// It may not be durable.
    fn flush(&mut self) -> io::Result<()>;
}

/// The members of a volume, in its order or, before it is known, in the user's.
pub struct Members(Vec<Box<dyn Member>>);

impl Members {
    /// The most members of a volume.
    pub const MAX: usize = 64;
    /// The smallest member: two superblocks, the journal and a unit of data.
    pub(crate) const FEWEST_BYTES: u64 = 4 * UNIT;

    /// Takes the members.
    ///
    /// # Errors
    /// There is none, or too many; or one is too small for any volume, or its blocks too large.
    pub fn new(members: Vec<Box<dyn Member>>) -> Result<Self, Error> {
        if members.is_empty() || members.len() > Self::MAX {
            return Err(Error::NumberOfMembers {
                given: members.len(),
            });
        }
        for member in &members {
            let bytes = member.bytes();
            if bytes < Self::FEWEST_BYTES {
                return Err(Error::TooSmall {
                    member: member.name(),
                    bytes,
                    needed: Self::FEWEST_BYTES,
                });
            }
            let block = member.block_bytes();
            if block > 4096 || 4096 % block != 0 {
                return Err(Error::Blocks {
                    member: member.name(),
                    block,
                });
            }
        }
        Ok(Self(members))
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|member| member.name()).collect()
    }

    /// Puts another member in the place of one.
    ///
    /// # Panics
    /// If there is none at `index`.
    pub fn replace(&mut self, index: usize, by: Box<dyn Member>) {
        self.0[index] = by;
    }

    /// The members in the order of these indices.
    pub(crate) fn reordered(self, order: &[usize]) -> Self {
        let mut members: Vec<_> = self.0.into_iter().map(Some).collect();
        let taken = order.iter().filter_map(|&index| members[index].take());
        Self(taken.collect())
    }

    pub(crate) fn name(&self, index: usize) -> String {
        self.0[index].name()
    }

    /// Bytes that a volume uses: whole units.
    pub(crate) fn usable(&self, index: usize) -> u64 {
        self.0[index].bytes() / UNIT * UNIT
    }

    pub(crate) fn read(&mut self, index: usize, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = into.len();
        let member = &mut self.0[index];
        let read = member.read_at(offset, into);
        read.map_err(|source| Error::Member {
            member: member.name(),
            action: format!("read {bytes} bytes at byte {offset}"),
            source,
        })
    }

    pub(crate) fn write(&mut self, index: usize, offset: u64, from: &[u8]) -> Result<(), Error> {
        let member = &mut self.0[index];
        let written = member.write_at(offset, from);
        written.map_err(|source| Error::Member {
            member: member.name(),
            action: format!("write {} bytes at byte {offset}", from.len()),
            source,
        })
    }

    /// Makes durable what was written to all of them.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.0.iter_mut().try_for_each(|member| {
            member.flush().map_err(|source| Error::Member {
                member: member.name(),
                action: "flush".to_owned(),
                source,
            })
        })
    }
}
