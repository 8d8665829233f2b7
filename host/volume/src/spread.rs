//! Where the bytes of a volume lie on its members.

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;

use warpstore_device::{Layout, StripeMap};

use crate::error::Error;
use crate::member::Members;

/// The mapping of a volume's bytes to its members': the kernels' own, with a line as large as a
/// stripe unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    map: StripeMap,
    stripe: u64,
    /// Byte of each member where the data begin.
    start: u64,
}

/// Bytes that lie together on one member.
struct Piece {
    member: usize,
    offset: u64,
    /// Which bytes of the caller's.
    range: Range<usize>,
}

impl Spread {
    /// # Panics
    /// If there are no members, or the stripe unit is 0.
    pub(crate) fn new(layout: Layout, members: u32, stripe: u64, start: u64) -> Self {
        let ssds = NonZeroU32::new(members).expect("a volume has members");
        assert!(stripe != 0, "a stripe unit has bytes");
        let map = StripeMap {
            unit_lines: NonZeroU64::MIN,
            ssds,
            layout,
        };
        Self { map, stripe, start }
    }

    /// Bytes that each member needs for so many bytes of the volume; `None` beyond 64 bits.
    pub(crate) fn member_bytes(&self, bytes: u64) -> Option<u64> {
        let units = bytes.div_ceil(self.stripe);
        let each = match self.map.layout {
            Layout::Stripe => units.div_ceil(u64::from(self.map.ssds.get())),
            Layout::Replicate => units,
        };
        each.checked_mul(self.stripe)
    }

    /// How many times everything is there.
    pub(crate) fn copies(&self) -> u32 {
        match self.map.layout {
            Layout::Stripe => 1,
            Layout::Replicate => self.map.ssds.get(),
        }
    }

    /// The member, and the byte of it, that has byte `offset` of the volume in copy `copy`.
    pub(crate) fn place(&self, offset: u64, copy: u32) -> (usize, u64) {
        let place = self.map.place(offset / self.stripe, copy);
        let within = self.start + place.line * self.stripe + offset % self.stripe;
        (place.ssd as usize, within)
    }

    fn pieces(&self, offset: u64, len: usize, copy: u32) -> impl Iterator<Item = Piece> {
        let mut done = 0;
        let spread = *self;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let rest = (len - done) as u64;
            let take = rest.min(spread.stripe - at % spread.stripe) as usize;
            let range = done..done + take;
            done += take;
            (take > 0).then(|| {
                let (member, offset) = spread.place(at, copy);
                Piece {
                    member,
                    offset,
                    range,
                }
            })
        })
    }

    /// Reads copy `copy` of the volume's bytes from `offset` on.
    pub(crate) fn read(
        &self,
        members: &mut Members,
        offset: u64,
        into: &mut [u8],
        copy: u32,
    ) -> Result<(), Error> {
        for piece in self.pieces(offset, into.len(), copy) {
            members.read(piece.member, piece.offset, &mut into[piece.range])?;
        }
        Ok(())
    }

    /// Writes all copies of the volume's bytes from `offset` on.
    pub(crate) fn write(
        &self,
        members: &mut Members,
        offset: u64,
        from: &[u8],
    ) -> Result<(), Error> {
        for copy in 0..self.copies() {
            for piece in self.pieces(offset, from.len(), copy) {
                members.write(piece.member, piece.offset, &from[piece.range])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UNIT;

    #[test]
    fn pieces_cover_what_was_asked_for_once() {
        for (layout, members) in [
            (Layout::Stripe, 3),
            (Layout::Stripe, 1),
            (Layout::Replicate, 2),
        ] {
            let spread = Spread::new(layout, members, 2 * UNIT, 7 * UNIT);
            let bytes = 11 * UNIT;
            let room = spread.member_bytes(bytes).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            let mut next = 0;
            for piece in spread.pieces(0, bytes as usize, 1) {
                assert_eq!(piece.range.start, next);
                next = piece.range.end;
                assert!(piece.offset >= 7 * UNIT);
                assert!(piece.offset + piece.range.len() as u64 <= 7 * UNIT + room);
                for unit in 0..piece.range.len() as u64 / UNIT {
                    assert!(seen.insert((piece.member, piece.offset + unit * UNIT)));
                }
            }
            assert_eq!(next as u64, bytes);
        }
    }
}
