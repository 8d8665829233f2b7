//! What is on members, before anybody believes it.

use std::fmt;

use uuid::Uuid;

use crate::UNIT;
use crate::error::Error;
use crate::journal::Journal;
use crate::member::Members;
use crate::rules::LAST_GENERATION;
use crate::superblock::{Damage, Superblock};

/// Bytes at either end of a member that are looked at to call it empty: where partition tables and
/// file systems have their signatures.
const LOOKED_AT: u64 = 16 * UNIT;

/// What a member holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeros, as far as was looked.
    Empty,
    /// The beginnings of a volume.
    Interrupted {
        /// Whose.
        uuid: Uuid,
        /// Bytes of the volume that are durable.
        done: u64,
        /// Bytes that it shall have.
        total: u64,
    },
    /// A superblock of a volume.
    Member {
        /// Whose.
        uuid: Uuid,
        /// Of which generation.
        generation: u64,
    },
    /// Superblocks, neither of which can be read.
    Damaged {
        /// The one at the beginning.
        first: Damage,
        /// The one at the end.
        last: Damage,
    },
    /// Something else.
    Data,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Interrupted { done, total, .. } => write!(
                f,
                "holds an interrupted flash, {done} of {total} bytes; the same flash goes on with it"
            ),
            Self::Member { uuid, generation } => {
                write!(
                    f,
                    "holds a member of volume {uuid}, generation {generation}"
                )
            }
            Self::Damaged { first, last } => write!(
                f,
                "holds a damaged volume: its first superblock {first}, its last one {last}"
            ),
            Self::Data => f.write_str("holds other data"),
        }
    }
}

/// The two superblocks of a member, or why they are none, and its journal.
pub(crate) struct Surveyed {
    pub copies: [Result<Superblock, Damage>; 2],
    pub journal: Option<Journal>,
    /// Whether there is nothing at either end.
    is_blank: bool,
}

/// Where the two superblocks of a member are.
pub(crate) fn slots(members: &Members, member: usize) -> [u64; 2] {
    [0, members.usable(member) - UNIT]
}

impl Surveyed {
    /// Looks at one member.
    fn of(members: &mut Members, member: usize) -> Result<Self, Error> {
        let mut copies = [Err(Damage::Blank), Err(Damage::Blank)];
        let mut bytes = vec![0; UNIT as usize];
        let mut unread = 0;
        for (copy, slot) in copies.iter_mut().zip(slots(members, member)) {
            *copy = match members.read(member, slot, &mut bytes) {
                Ok(()) => Superblock::decode(&bytes),
                Err(Error::Member { source, .. }) if unread == 0 => {
                    unread += 1;
                    Err(Damage::Unreadable(source.to_string()))
                }
                // Neither can be: it is the member that fails.
                Err(error) => return Err(error),
            };
        }
        let is_blank =
            copies == [Err(Damage::Blank), Err(Damage::Blank)] && ends_are_zero(members, member)?;
        Ok(Self {
            copies,
            // A mere hint: where it cannot be read, there is none.
            journal: Journal::read(members, member).unwrap_or_default(),
            is_blank,
        })
    }

    /// Looks at all members.
    pub(crate) fn all(members: &mut Members) -> Result<Vec<Self>, Error> {
        (0..members.count() as usize)
            .map(|member| Self::of(members, member))
            .collect()
    }

    /// The superblocks that can be read.
    pub(crate) fn readable(&self) -> impl Iterator<Item = &Superblock> {
        self.copies.iter().filter_map(|copy| copy.as_ref().ok())
    }

    /// The newest superblock that can be read.
    pub(crate) fn newest(&self) -> Option<&Superblock> {
        self.readable()
            .max_by_key(|copy| copy.description.generation)
    }

    /// What it amounts to, without a look at the other members.
    pub(crate) fn found(&self) -> Found {
        if let Some(newest) = self.newest() {
            return Found::Member {
                uuid: newest.description.uuid,
                generation: newest.description.generation,
            };
        }
        // Of a flash that was interrupted, slots are empty or hold a superblock in parts. What is
        // something else, or cannot be read and may be, came later, and is somebody's.
        let others =
            |copy: &Result<_, Damage>| matches!(copy, Err(Damage::Other | Damage::Unreadable(_)));
        match (&self.journal, &self.copies) {
            (Some(journal), copies) if !copies.iter().any(others) => Found::Interrupted {
                uuid: journal.uuid,
                done: journal.done,
                total: journal.total,
            },
            _ if self.is_blank => Found::Empty,
            (_, [Err(first), Err(last)]) if !self.copies.iter().all(no_volume) => Found::Damaged {
                first: first.clone(),
                last: last.clone(),
            },
            _ => Found::Data,
        }
    }
}

/// The generation that a change puts in force: the one behind all that members have.
pub(crate) fn next_generation(members: &Members, surveyed: &[Surveyed]) -> Result<u64, Error> {
    let generation = |surveyed: &Surveyed| Some(surveyed.newest()?.description.generation);
    let newest = surveyed.iter().map(generation).enumerate();
    match newest.max_by_key(|(_, generation)| *generation) {
        Some((member, Some(LAST_GENERATION))) => Err(Error::LastGeneration {
            member: members.name(member),
        }),
        Some((_, Some(newest))) => Ok(newest + 1),
        _ => Ok(1),
    }
}

fn no_volume(copy: &Result<Superblock, Damage>) -> bool {
    matches!(copy, Err(Damage::Blank | Damage::Other))
}

fn ends_are_zero(members: &mut Members, member: usize) -> Result<bool, Error> {
    let usable = members.usable(member);
    let len = LOOKED_AT.min(usable);
    let mut bytes = vec![0; len as usize];
    for offset in [0, usable - len] {
        members.read(member, offset, &mut bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
