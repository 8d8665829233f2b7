//! Reading a volume's bytes: a chunk at a time, and around what is wrong or cannot be read, a unit at a time.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::UNIT;
use crate::audit::Checks;
use crate::error::Error;
use crate::member::Members;
use crate::spread::Spread;
use crate::write::CHUNK;

/// Units that could not be read, by the byte of the volume where each begins, and why.
pub(crate) type Unread = BTreeMap<u64, Error>;

/// Reads bytes of the volume, a chunk at a time; `see` gets each chunk with its offset, and ends it by an
/// error of its own.
pub(crate) fn read_each(
    members: &mut Members,
    spread: &Spread,
    range: Range<u64>,
    copy: u32,
    mut see: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    in_chunks(range, |offset, take, chunk| {
        spread.read(members, offset, chunk, copy)?;
        see(offset, &chunk[..take])
    })
}

/// As [`read_each`], of whole units, each unit from a copy that can be read and is right by `checks`; if
/// none is, from one that can be read.
///
/// # Errors
/// A unit can be read from no copy, or `see` has ended it.
pub(crate) fn read_right(
    members: &mut Members,
    spread: &Spread,
    range: Range<u64>,
    checks: &Checks,
    mut see: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let copies = spread.copies();
    // Where to begin: not with a copy that fails as a whole.
    let mut first = 0;
    in_chunks(range, |offset, _, chunk| {
        let mut unread = read_units(members, spread, offset, chunk, first);
        let others: Vec<u32> = (1..copies).map(|next| (first + next) % copies).collect();
        if unread.len() as u64 * UNIT == chunk.len() as u64 {
            first = (first + 1) % copies;
        }
        for (at, unit) in units_mut(offset, chunk) {
            let error = unread.remove(&at);
            if error.is_none() && checks.hold(at, unit) {
                continue;
            }
            read_other(members, spread, (at, unit), &others, checks, error)?;
        }
        see(offset, chunk)
    })
}

/// Takes a unit from the first of these copies that is right; if none is, leaves one that could be read.
/// `error` says why it could not be read so far, if it could not.
fn read_other(
    members: &mut Members,
    spread: &Spread,
    (at, unit): (u64, &mut [u8]),
    copies: &[u32],
    checks: &Checks,
    mut error: Option<Error>,
) -> Result<(), Error> {
    let mut other = vec![0; unit.len()];
    for &copy in copies {
        if spread.read(members, at, &mut other, copy).is_err() {
            continue;
        }
        let (was_unread, is_right) = (error.take().is_some(), checks.hold(at, &other));
        if is_right || was_unread {
            unit.copy_from_slice(&other);
        }
        if is_right {
            break;
        }
    }
    error.map_or(Ok(()), Err)
}

/// Reads whole units of one copy. Those that cannot be read are zeros.
pub(crate) fn read_units(
    members: &mut Members,
    spread: &Spread,
    offset: u64,
    into: &mut [u8],
    copy: u32,
) -> Unread {
    let mut unread = Unread::new();
    if spread.read(members, offset, into, copy).is_ok() {
        return unread;
    }
    // Which of them: most are there.
    for (at, unit) in units_mut(offset, into) {
        if let Err(error) = spread.read(members, at, unit, copy) {
            unit.fill(0);
            unread.insert(at, error);
        }
    }
    unread
}

/// Units with the bytes of the volume where they begin.
fn units_mut(offset: u64, bytes: &mut [u8]) -> impl Iterator<Item = (u64, &mut [u8])> {
    let units = bytes.chunks_mut(UNIT as usize);
    (offset..).step_by(UNIT as usize).zip(units)
}

/// Goes through bytes of the volume; `each` gets the offset of a chunk, how many of its bytes are in
/// `range`, and where to put it: whole units, as members are read in whole blocks.
pub(crate) fn in_chunks(
    range: Range<u64>,
    mut each: impl FnMut(u64, usize, &mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut chunk = vec![0; CHUNK.min((range.end - range.start).next_multiple_of(UNIT)) as usize];
    let mut offset = range.start;
    while offset < range.end {
        let take = CHUNK.min(range.end - offset) as usize;
        each(
            offset,
            take,
            &mut chunk[..take.next_multiple_of(UNIT as usize)],
        )?;
        offset += take as u64;
    }
    Ok(())
}
