//! What an I/O command asks for, checked against the namespace before anything moves.

use nvme_wire::sqe::IoOpcode;
use nvme_wire::{Sqe, Status};

use crate::layout::{header, namespace, namespace_entry};
use crate::memory::{Image, Span};

/// An I/O command of one lane, with its verdict so far.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    pub(crate) cid: u16,
    pub(crate) status: Status,
    /// True for Write.
    pub(crate) writing: bool,
    /// Bytes to transfer; 0 for Flush and for refused commands.
    pub(crate) bytes: u32,
    /// First LBA, for the timing model.
    pub(crate) slba: u64,
    /// The blocks in the media; empty if no data moves.
    pub(crate) media: Span,
    pub(crate) prp1: u64,
    pub(crate) prp2: u64,
}

impl Command {
    /// No command: what a lane holds that fetched none.
    pub(crate) const NONE: Self = Self {
        cid: 0,
        status: Status::SUCCESS,
        writing: false,
        bytes: 0,
        slba: 0,
        media: Span::EMPTY,
        prp1: 0,
        prp2: 0,
    };

    /// Decodes and checks `sqe` (Base 3.3.3.1, NVM 3.2). A Flush is executed here.
    #[inline(always)]
    pub(crate) fn decode(image: Image, sqe: Sqe) -> Self {
        let bare = Self {
            cid: sqe.cid(),
            prp1: sqe.prp1(),
            prp2: sqe.prp2(),
            ..Self::NONE
        };
        let opcode = sqe.opcode();
        let transfers = opcode == IoOpcode::READ.0 || opcode == IoOpcode::WRITE.0;
        if !transfers && opcode != IoOpcode::FLUSH.0 {
            return bare.refused(Status::INVALID_OPCODE);
        }
        // Fused commands and SGLs are not supported.
        if sqe.flags() != 0 {
            return bare.refused(Status::INVALID_FIELD);
        }
        let namespaces = image.read(header::NAMESPACES);
        let nsid = sqe.nsid() as u64;
        if !transfers {
            return bare.flushed(image, nsid, namespaces);
        }
        if nsid == 0 || nsid > namespaces {
            return bare.refused(Status::INVALID_NAMESPACE);
        }
        let writing = opcode == IoOpcode::WRITE.0;
        Self { writing, ..bare }.located(image, nsid, sqe.slba(), sqe.nlb_z() as u64 + 1)
    }

    #[inline(always)]
    fn refused(self, status: Status) -> Self {
        Self {
            status: status.with_dnr(),
            ..self
        }
    }

    /// Flush of one namespace or, by FFFFFFFFh, of all (Base 7.1).
    #[inline(always)]
    fn flushed(self, image: Image, nsid: u64, namespaces: u64) -> Self {
        let known = nsid != 0 && nsid <= namespaces || nsid == u32::MAX as u64;
        if !known {
            self.refused(Status::INVALID_NAMESPACE)
        } else if !image.persist() {
            Self {
                status: Status::WRITE_FAULT,
                ..self
            }
        } else {
            self
        }
    }

    /// Checks range, size and PRP offsets of `blocks` LBAs from `slba` on.
    #[inline(always)]
    fn located(self, image: Image, nsid: u64, slba: u64, blocks: u64) -> Self {
        let entry = namespace_entry(nsid);
        let [base, lbas] = image.read_pair(entry + namespace::BASE);
        let shift = (image.read(entry + namespace::SHIFT) & 63) as u32;
        let bytes = blocks << shift;
        if bytes > image.read(header::MAX_TRANSFER) {
            return self.refused(Status::INVALID_FIELD);
        }
        if blocks > lbas || slba > lbas - blocks {
            return self.refused(Status::LBA_OUT_OF_RANGE);
        }
        if !self.has_valid_prps(image.read(header::PAGE), bytes) {
            return self.refused(Status::INVALID_PRP_OFFSET);
        }
        let media = match image.media(base + (slba << shift), bytes) {
            Some(media) => media,
            // A model without media: commands succeed and move nothing.
            None => Span::EMPTY,
        };
        Self {
            bytes: bytes as u32,
            slba,
            media,
            ..self
        }
    }

    /// PRP1 is dword aligned; PRP2 is a whole page, or a list pointer that is qword aligned
    /// (Base 4.1.1).
    #[inline(always)]
    fn has_valid_prps(self, page: u64, bytes: u64) -> bool {
        let first = page - (self.prp1 & (page - 1));
        let prp2_bits = if bytes <= first {
            0
        } else if bytes - first <= page {
            page - 1
        } else {
            7
        };
        self.prp1 & 3 == 0 && self.prp2 & prp2_bits == 0
    }
}
