//! Volumes: named arrays on one or several SSDs or media files, the members.
//!
//! ```text
//! each member:  superblock │ journal │ data (arrays, table of checksums) … │ superblock
//!               0          64 KiB    128 KiB                                last 64 KiB
//!
//! NewVolume ─► plan ─► Plan::write ─► commit     (writing: the old volume or the new one, always)
//! Members ─► Volume::open ─► verify, copy, unseal, seal
//! ```
//!
//! docs/volumes.md has the layout byte by byte, and the argument why no interruption leaves a
//! mixture. This crate sees members through [`Member`] alone: it knows neither GPUs nor controllers.

mod audit;
mod commit;
mod element;
mod error;
mod file;
mod journal;
mod member;
mod name;
mod open;
mod plan;
mod reading;
mod rules;
mod spread;
mod superblock;
mod survey;
mod volume;
mod write;

pub use audit::{Audit, Fault};
pub use element::ElementType;
pub use error::Error;
pub use file::{BlankMember, FileMember};
pub use member::{Member, Members};
pub use name::{MemberName, MemberNames};
pub use plan::{ArrayShape, NewVolume, Plan};
pub use superblock::{ArrayEntry, Damage, Description, MAX_ARRAYS, MAX_NAME, State, Superblock};
pub use survey::Found;
pub use volume::Volume;
pub use write::Step;

/// What everything on a member is aligned to, and the size of its fixed parts. Bytes: the largest
/// cache line, so that an array begins with a line whatever the line's size.
pub const UNIT: u64 = 64 << 10;
