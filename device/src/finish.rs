//! What a completion means: whoever drains it finishes it.
//!
//! A command's tag says what it was for. The finisher needs nothing else, so it does not matter
//! which lane of which warp of which kernel drains.

use line_cache::Failure;
use nvme_queue::{Completion, Finish};
use nvme_wire::Status;
use warpstore_simt::{Cell, Cells, Order, Solo, Team};

use crate::bounce;
use crate::error::ErrorKind;
use crate::errors::ErrorRecord;
use crate::staging;
use crate::store::Store;

/// What a command was for, in the word that travels with it. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A line's bytes, into its slot.
    Fetch {
        /// The line.
        line: u64,
        /// The version that it was claimed in: the completion of a fetch that was given up
        /// ([`LineTable::lose`](line_cache::LineTable::lose)) must not end a later one.
        version: u16,
    },
    /// A line's bytes, from its slot to the SSD.
    Clean {
        /// The line. At most one write of it is in flight ([WB-2]).
        line: u64,
    },
    /// Bytes between the SSD and a bounce buffer.
    Bounce {
        /// Index of the buffer.
        buffer: u64,
    },
    /// A block, into a block buffer.
    Block {
        /// Index of the buffer.
        buffer: u64,
    },
}

const FETCH: u64 = 1;
const BOUNCE: u64 = 2;
const BLOCK: u64 = 3;
const CLEAN: u64 = 4;
const KIND_BITS: u32 = 3;
const LINE_SHIFT: u32 = KIND_BITS + line_cache::VERSIONS.trailing_zeros();

impl Purpose {
    #[inline(always)]
    pub(crate) const fn tag(self) -> u64 {
        match self {
            Self::Fetch { line, version } => {
                line << LINE_SHIFT | (version as u64) << KIND_BITS | FETCH
            }
            Self::Clean { line } => line << KIND_BITS | CLEAN,
            Self::Bounce { buffer } => buffer << KIND_BITS | BOUNCE,
            Self::Block { buffer } => buffer << KIND_BITS | BLOCK,
        }
    }

    #[inline(always)]
    pub(crate) const fn of(tag: u64) -> Self {
        let rest = tag >> KIND_BITS;
        match tag & ((1 << KIND_BITS) - 1) {
            FETCH => Self::Fetch {
                line: tag >> LINE_SHIFT,
                version: rest as u16 % line_cache::VERSIONS,
            },
            CLEAN => Self::Clean { line: rest },
            BOUNCE => Self::Bounce { buffer: rest },
            _ => Self::Block { buffer: rest },
        }
    }
}

impl core::fmt::Display for Purpose {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Fetch { line, .. } => write!(f, "line {line}"),
            Self::Clean { line } => write!(f, "the write-back of line {line}"),
            Self::Bounce { buffer } => write!(f, "bounce buffer {buffer}"),
            Self::Block { buffer } => write!(f, "block buffer {buffer}"),
        }
    }
}

/// Finishes the commands of one queue.
#[derive(Clone, Copy)]
pub(crate) struct Finisher {
    pub store: Store,
    pub queue: u32,
}

impl Finish for Finisher {
    #[inline(always)]
    fn finish_all<T: Team>(&self, team: T, completion: Option<Completion>) {
        // No command has tag 0.
        let (tag, status, cid) = completion.map_or((0, 0, 0), |completion| {
            (completion.tag, completion.status.bits(), completion.cid)
        });
        // A call that passes nothing on but words: every wait drains, and has registers to keep.
        if self.store.is_staged() {
            staging::bring_in(team, self.store, tag, status);
        }
        if tag != 0 {
            finish(self.store, self.queue, tag, status, cid);
        }
    }

    #[inline(always)]
    fn finish(&self, completion: Completion) {
        self.finish_all(Solo, Some(completion));
    }
}

/// Finishes the command that had `tag`. Not inlined: every wait drains, and each would carry a
/// copy of this.
#[inline(never)]
fn finish(store: Store, queue: u32, tag: u64, status: u16, cid: u16) {
    let (desc, status) = (store.desc(), Status::from_bits(status));
    if !status.is_success() {
        desc.errors.note(ErrorRecord {
            queue,
            cid,
            status: status.bits(),
            tag,
        });
    }
    match Purpose::of(tag) {
        Purpose::Fetch { line, version } => {
            let fetch = desc
                .table
                .fetch_of(line)
                .filter(|fetch| fetch.version == version);
            if let Some(fetch) = fetch {
                if status.is_success() {
                    desc.table.publish(fetch);
                } else {
                    let failure = Failure::new(ErrorKind::Status as u16, status.bits());
                    desc.table.fail(fetch, failure);
                }
            }
        }
        Purpose::Clean { line } if status.is_success() => desc.table.cleaned(line),
        Purpose::Clean { line } => desc.table.clean_failed(line),
        Purpose::Bounce { buffer } => {
            let word = desc.bounce_words.at(buffer);
            // Ordering: [BB-2] release: the bytes, before the word that says they are there.
            word.store(bounce::settled_word(status), Order::Release);
        }
        Purpose::Block { buffer } => {
            let word = desc.block_words.at(buffer);
            // Ordering: [BB-2] as for a bounce buffer.
            word.store(bounce::settled_word(status), Order::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_what_the_command_was_for() {
        for purpose in [
            Purpose::Fetch {
                line: (1 << 34) - 1,
                version: 2047,
            },
            Purpose::Fetch {
                line: 0,
                version: 0,
            },
            Purpose::Clean {
                line: (1 << 34) - 1,
            },
            Purpose::Clean { line: 0 },
            Purpose::Bounce { buffer: 0 },
            Purpose::Block { buffer: 4095 },
        ] {
            assert_ne!(purpose.tag(), 0);
            assert_eq!(Purpose::of(purpose.tag()), purpose);
        }
    }
}
