//! What an I/O command asks for, checked against the namespace before anything moves.

use nvme_wire::sqe::IoOpcode;
use nvme_wire::{Sqe, Status};

#[cfg(not(target_arch = "nvptx64"))]
use crate::layout::LATE_WORDS;
use crate::layout::{header, namespace, namespace_entry};
use crate::memory::{Image, Span};

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: there is none, or it was refused.
    None,
    Read,
    Write,
    Flush,
}

/// An I/O command of one lane, with its verdict so far.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    pub(crate) cid: u16,
    pub(crate) status: Status,
    pub(crate) kind: Kind,
    /// Force Unit Access: what is read or written is durable before the completion.
    pub(crate) fua: bool,
    pub(crate) nsid: u32,
    /// Bytes to transfer; 0 for Flush and for refused commands.
    pub(crate) bytes: u32,
    /// LBAs to transfer; 0 likewise.
    pub(crate) blocks: u32,
    /// First LBA.
    pub(crate) slba: u64,
    /// First byte in the media.
    pub(crate) offset: u64,
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
        kind: Kind::None,
        fua: false,
        nsid: 0,
        bytes: 0,
        blocks: 0,
        slba: 0,
        offset: 0,
        media: Span::EMPTY,
        prp1: 0,
        prp2: 0,
    };

    /// True for Write.
    #[inline(always)]
    pub(crate) fn writing(&self) -> bool {
        self.kind == Kind::Write
    }

    /// Decodes and checks `sqe` (Base 3.3.3.1, NVM 3.2).
    #[inline(always)]
    pub(crate) fn decode(image: Image, sqe: Sqe) -> Self {
        let bare = Self {
            cid: sqe.cid(),
            nsid: sqe.nsid(),
            prp1: sqe.prp1(),
            prp2: sqe.prp2(),
            ..Self::NONE
        };
        let opcode = sqe.opcode();
        let kind = if opcode == IoOpcode::READ.0 {
            Kind::Read
        } else if opcode == IoOpcode::WRITE.0 {
            Kind::Write
        } else if opcode == IoOpcode::FLUSH.0 {
            Kind::Flush
        } else {
            return bare.refused(Status::INVALID_OPCODE);
        };
        // Fused commands and SGLs are not supported.
        if sqe.flags() != 0 {
            return bare.refused(Status::INVALID_FIELD);
        }
        let nsid = sqe.nsid() as u64;
        let exists = nsid != 0 && nsid <= image.read(header::NAMESPACES);
        // All namespaces (Base 7.1).
        let flushes_all = kind == Kind::Flush && nsid == u32::MAX as u64;
        if !(exists || flushes_all) {
            return bare.refused(Status::INVALID_NAMESPACE);
        }
        if kind == Kind::Flush {
            return Self { kind, ..bare };
        }
        let fua = sqe.fua();
        Self { fua, ..bare }.located(image, kind, sqe.slba(), sqe.nlb_z() as u64 + 1)
    }

    /// The command in words, for one that is carried out later. It was not refused.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn to_words(self) -> [u64; LATE_WORDS as usize] {
        let what = (self.kind as u64) << 56 | (self.fua as u64) << 52 | (self.blocks as u64) << 32;
        [what | self.nsid as u64, self.slba, self.prp1, self.prp2]
    }

    /// The command that these words stand for, checked once more. Its CID is not among them.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn from_words(image: Image, words: [u64; LATE_WORDS as usize]) -> Self {
        let [what, slba, prp1, prp2] = words;
        let bare = Self {
            fua: what >> 52 & 1 != 0,
            nsid: what as u32,
            prp1,
            prp2,
            ..Self::NONE
        };
        let kind = what >> 56;
        if kind == Kind::Flush as u64 {
            let kind = Kind::Flush;
            return Self { kind, ..bare };
        }
        let kind = if kind == Kind::Write as u64 {
            Kind::Write
        } else {
            Kind::Read
        };
        bare.located(image, kind, slba, what >> 32 & 0xf_ffff)
    }

    #[inline(always)]
    fn refused(self, status: Status) -> Self {
        Self {
            status: status.with_dnr(),
            ..self
        }
    }

    /// Checks range, size and PRP offsets of `blocks` LBAs from `slba` on.
    #[inline(always)]
    fn located(self, image: Image, kind: Kind, slba: u64, blocks: u64) -> Self {
        let entry = namespace_entry(self.nsid as u64);
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
        let offset = base + (slba << shift);
        let media = match image.media(offset, bytes) {
            Some(media) => media,
            // A model without media: commands succeed and move nothing.
            None => Span::EMPTY,
        };
        Self {
            kind,
            bytes: bytes as u32,
            blocks: blocks as u32,
            slba,
            offset,
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
