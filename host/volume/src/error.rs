//! Why a volume cannot be opened, written or trusted: who, what, and what to do.

use std::io;

use nvme_model::MediaError;
use uuid::Uuid;

use crate::element::ElementType;
use crate::survey::Found;

/// An error of the volume library.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each message is the documentation of its variant and fields"
)]
pub enum Error {
    #[error("{member}: cannot {action}: {source}")]
    Member {
        member: String,
        action: String,
        source: io::Error,
    },
    #[error(transparent)]
    Media(#[from] MediaError),
    #[error("{member} is in use by another process; end that first")]
    InUse { member: String },
    #[error(
        "{member} has {bytes} bytes and does not end as a media file does: it was cut off, or not made by warpstore; \
         give the whole file"
    )]
    NoMediaFile { member: String, bytes: u64 },
    #[error("{member} and {other} are one file; give each member once")]
    SameFile { member: String, other: String },
    #[error(
        "{source_file} is a source and is {member} too, which is written while it is read; copy the source to \
         another file first"
    )]
    SourceIsMember { source_file: String, member: String },
    #[error("{given} members were given; a volume has 1 to 64")]
    NumberOfMembers { given: usize },
    #[error("{member} has blocks of {block} bytes; a volume needs blocks that divide 4096 bytes")]
    Blocks { member: String, block: u32 },
    #[error(
        "{member} has {bytes} bytes, and {needed} are needed; give larger members or more of them"
    )]
    TooSmall {
        member: String,
        bytes: u64,
        needed: u64,
    },

    #[error("{member} is no member of a volume: it {found}")]
    NoVolume { member: String, found: Found },
    #[error(
        "{member} belongs to volume {uuid}, and {other_member} to volume {other}; give the members of one volume"
    )]
    Foreign {
        member: String,
        uuid: Uuid,
        other_member: String,
        other: Uuid,
    },
    #[error(
        "volume {uuid} has {members} members, and {given} were given: {missing} of it is missing; give all of them"
    )]
    Missing {
        uuid: Uuid,
        members: u32,
        given: u32,
        missing: String,
    },
    #[error("{member} and {other} are both member {index} of volume {uuid}; give each member once")]
    Twice {
        member: String,
        other: String,
        index: u32,
        uuid: Uuid,
    },
    #[error(
        "{member} is stale: it holds generation {generation} of volume {uuid}, and {newer} holds {newest}; \
         flash the volume anew, or give the member that belongs to the others"
    )]
    Stale {
        member: String,
        generation: u64,
        newer: String,
        newest: u64,
        uuid: Uuid,
    },
    #[error(
        "the members of volume {uuid} contradict one another in generation {generation}; flash it anew"
    )]
    Mixture { uuid: Uuid, generation: u64 },
    #[error(
        "{member} holds the last generation that there can be, so its volume cannot be changed; `extract` its \
         arrays and flash them to members that are empty"
    )]
    LastGeneration { member: String },
    #[error(
        "{member} had {was} bytes when the volume was written and has {is} now; give it back its size"
    )]
    Resized { member: String, was: u64, is: u64 },

    #[error("the volume has no array {name:?}; it has {arrays}")]
    NoArray { name: String, arrays: String },
    #[error("array {name:?} has elements of type {is}, not {asked}")]
    WrongType {
        name: String,
        is: ElementType,
        asked: String,
    },
    #[error(
        "array {name:?} does not have the checksum that the volume was sealed with; `verify` tells where it differs"
    )]
    Checksum { name: String },
    #[error("array {array:?}: cannot write what it holds: {source}")]
    Copy { array: String, source: io::Error },
    #[error(
        "the replicas differ, so nothing was sealed: {place} is not what {other} holds there ({count} places in \
         all); `verify` of a sealed volume tells which one is wrong; `extract` the arrays and flash the volume anew"
    )]
    ReplicasDiffer {
        place: String,
        other: String,
        count: u64,
    },

    #[error("a volume has 1 to {most} arrays, and {given} were given")]
    NumberOfArrays { given: usize, most: usize },
    #[error(
        "{name:?} cannot name an array: a name has 1 to {most} bytes, no white space and none of , = : / #",
        most = crate::MAX_NAME
    )]
    Name { name: String },
    #[error(
        "two arrays are called {name:?}; give one source another NAME, or, if they are two columns of one file, \
         one of these another name in the file"
    )]
    SameName { name: String },
    #[error("{bytes} bytes are too many for a volume")]
    TooLarge { bytes: u64 },
    #[error(
        "a stripe unit of {stripe} bytes is no multiple of {} bytes",
        crate::UNIT
    )]
    Stripe { stripe: u64 },
    #[error("{member} {found}; to write over all of it, add --yes-destroy {member}")]
    InTheWay { member: String, found: Found },
    #[error(
        "the volume on {member} can only be written anew if it goes first: beside it {free} bytes of each member \
         are free in one piece, and {needed} are needed; to be left without a volume if this is interrupted, \
         add --yes-destroy {member}"
    )]
    NoRoomBeside {
        member: String,
        free: u64,
        needed: u64,
    },
    #[error("array {array:?}: cannot read its source: {source}")]
    Source { array: String, source: io::Error },
    #[error(
        "array {array:?}: its source was to have {expected} bytes, and has {found}; did it change meanwhile?"
    )]
    SourceLength {
        array: String,
        expected: u64,
        found: String,
    },
    #[error(
        "what was written does not read back the same: {first} ({count} places in all); \
         the new volume was not put in force"
    )]
    ReadBack { first: String, count: u64 },
}
