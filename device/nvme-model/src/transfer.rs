//! Moving a batch's data between media and the submitters' buffers, by PRP (Base 4.1.1).
//!
//! On 32 lanes the warp copies together: a piece is 512 bytes, 16 from each lane, and eight
//! pieces are in flight before the first is stored, because one load at a time leaves a
//! PCIe round trip idle for each.

use nvme_wire::Status;
use warpstore_simt::warp;

use crate::command::Command;
use crate::memory::{DmaRanges, Image, Span};

/// Pieces in flight.
const PIECES: usize = 8;
/// Bytes of a piece: 32 lanes × 16 bytes.
const PIECE: u64 = 512;

/// Moves the data of each lane's command. Collective; returns the status of the lane's own.
///
/// A command that fails in the middle of a PRP list has moved what came before it.
#[inline(always)]
pub(crate) fn transfer<const LANES: u32>(
    mask: u32,
    lane: u32,
    image: Image,
    page: u64,
    command: &Command,
) -> Status {
    let moves = warp::ballot_sync(mask, command.media.len() != 0);
    if moves == 0 {
        return command.status;
    }
    let mut ranges = DmaRanges::of(image);
    if LANES == 32 {
        let buffer = small_buffer(&mut ranges, page, command);
        let small = buffer.len() != 0 || command.media.len() == 0;
        if warp::all_sync(mask, small) {
            copy_small(mask, lane, moves, buffer, command);
            return command.status;
        }
    }
    let mut status = command.status;
    let mut rest = moves;
    while rest != 0 {
        let source = warp::leader(rest);
        rest &= rest - 1;
        let walk = Walk {
            mask,
            lane,
            page,
            media: command.media.of_lane(mask, source),
            writing: warp::shuffle_sync(mask, command.writing() as u32, source) != 0,
        };
        let prp1 = warp::shuffle_sync(mask, command.prp1, source);
        let prp2 = warp::shuffle_sync(mask, command.prp2, source);
        let verdict = walk.run::<LANES>(&mut ranges, prp1, prp2);
        if lane == source {
            status = verdict;
        }
    }
    status
}

/// The buffer of a command of one aligned piece in one page; empty for any other command.
#[inline(always)]
fn small_buffer(ranges: &mut DmaRanges, page: u64, command: &Command) -> Span {
    let offset = command.prp1 & (page - 1);
    let fits = command.media.len() == PIECE && page - offset >= PIECE;
    if !fits || !command.prp1.is_multiple_of(16) {
        return Span::EMPTY;
    }
    ranges.span(command.prp1, PIECE).unwrap_or(Span::EMPTY)
}

/// Moves up to 32 commands of one piece each: addresses first, then loads, then stores.
#[inline(always)]
fn copy_small(mask: u32, lane: u32, moves: u32, buffer: Span, command: &Command) {
    let (from, to) = if command.writing() {
        (buffer, command.media)
    } else {
        (command.media, buffer)
    };
    let at = lane as u64 * 16;
    let mut first = 0;
    while first < 32 {
        if moves >> first & ((1 << PIECES) - 1) != 0 {
            let mut sources = [Span::EMPTY; PIECES];
            let mut targets = [Span::EMPTY; PIECES];
            let mut pairs = [[0; 2]; PIECES];
            for piece in 0..PIECES {
                sources[piece] = from.of_lane(mask, first + piece as u32);
                targets[piece] = to.of_lane(mask, first + piece as u32);
            }
            for piece in 0..PIECES {
                pairs[piece] = sources[piece].load16(at);
            }
            for piece in 0..PIECES {
                targets[piece].store16(at, pairs[piece]);
            }
        }
        first += PIECES as u32;
    }
}

/// One command's way through its PRPs. Everything here is the same on all lanes, but `lane`.
struct Walk {
    mask: u32,
    lane: u32,
    page: u64,
    media: Span,
    writing: bool,
}

impl Walk {
    #[inline(always)]
    fn run<const LANES: u32>(&self, ranges: &mut DmaRanges, prp1: u64, prp2: u64) -> Status {
        let len = self.media.len();
        let first = self.page - (prp1 & (self.page - 1));
        let first = if first < len { first } else { len };
        if !self.segment::<LANES>(ranges, prp1, 0, first) {
            return Status::DATA_TRANSFER_ERROR.with_dnr();
        }
        if first == len {
            Status::SUCCESS
        } else if len - first <= self.page {
            if self.segment::<LANES>(ranges, prp2, first, len - first) {
                Status::SUCCESS
            } else {
                Status::DATA_TRANSFER_ERROR.with_dnr()
            }
        } else {
            self.list::<LANES>(ranges, prp2, first)
        }
    }

    /// Follows the list at `list` for the data from `done` on. The last slot of a list page is
    /// the address of the next list if more than one page of data is left.
    #[inline(always)]
    fn list<const LANES: u32>(&self, ranges: &mut DmaRanges, list: u64, done: u64) -> Status {
        let len = self.media.len();
        let mut list = list;
        let mut done = done;
        while done < len {
            let slots = (self.page - (list & (self.page - 1))) / 8;
            // Not a division: a page is a power of two.
            let pages = (len - done + self.page - 1) >> self.page.trailing_zeros();
            let used = if pages < slots { pages } else { slots };
            let Some(entries) = ranges.span(list, used * 8) else {
                return Status::DATA_TRANSFER_ERROR.with_dnr();
            };
            let mut mine = 0;
            let mut index = 0;
            while index < used {
                let turn = index as u32 % LANES;
                if turn == 0 {
                    mine = entries.load8((index + self.lane as u64) * 8);
                }
                let entry = warp::shuffle_sync(self.mask, mine, turn);
                if entry & (self.page - 1) != 0 {
                    return Status::INVALID_PRP_OFFSET.with_dnr();
                }
                index += 1;
                if index == slots && pages > slots {
                    list = entry;
                } else {
                    let rest = len - done;
                    let bytes = if rest < self.page { rest } else { self.page };
                    if !self.segment::<LANES>(ranges, entry, done, bytes) {
                        return Status::DATA_TRANSFER_ERROR.with_dnr();
                    }
                    done += bytes;
                }
            }
        }
        Status::SUCCESS
    }

    /// Moves `bytes` between the media from `done` on and the buffer at `address`; false if the
    /// buffer is not mapped.
    #[inline(always)]
    fn segment<const LANES: u32>(
        &self,
        ranges: &mut DmaRanges,
        address: u64,
        done: u64,
        bytes: u64,
    ) -> bool {
        let Some(buffer) = ranges.span(address, bytes) else {
            return false;
        };
        let media = self.media.part(done, bytes);
        let (from, to) = if self.writing {
            (buffer, media)
        } else {
            (media, buffer)
        };
        copy::<LANES>(self.lane, from, to);
        true
    }
}

/// Copies `from` to `to`, which are equally long.
#[inline(always)]
fn copy<const LANES: u32>(lane: u32, from: Span, to: Span) {
    #[cfg(not(target_arch = "nvptx64"))]
    if LANES == 1 {
        to.copy_from(from);
        return;
    }
    if from.is_aligned() && to.is_aligned() {
        copy_aligned::<LANES>(lane, from, to);
    } else {
        copy_words::<LANES>(lane, from, to);
    }
}

#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "constant indices keep the array in registers"
)]
fn copy_aligned<const LANES: u32>(lane: u32, from: Span, to: Span) {
    let stride = LANES as u64 * 16;
    let mut at = lane as u64 * 16;
    while at < from.len() {
        let mut pairs = [[0; 2]; PIECES];
        for piece in 0..PIECES {
            pairs[piece] = from.load16(at + piece as u64 * stride);
        }
        for piece in 0..PIECES {
            to.store16(at + piece as u64 * stride, pairs[piece]);
        }
        at += PIECES as u64 * stride;
    }
}

/// The slow form, for buffers at odd dwords.
#[inline(always)]
fn copy_words<const LANES: u32>(lane: u32, from: Span, to: Span) {
    let stride = LANES as u64 * 4;
    let mut at = lane as u64 * 4;
    while at < from.len() {
        to.store4(at, from.load4(at));
        at += stride;
    }
}
