//! Reading everything and comparing checksums.
//!
//! Beside the checksum of each array there is one for each [`UNIT`] of the volume, in a table behind the
//! arrays: it tells where something is wrong.

use std::fmt;
use std::ops::Range;

use crate::UNIT;
use crate::error::Error;
use crate::member::Members;
use crate::spread::Spread;
use crate::superblock::{Description, checks_bytes};
use crate::write::{CHUNK, Step};

/// Places that are told one by one.
const MOST_TOLD: u64 = 16;

/// The checksums of all units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checks(Vec<u32>);

impl Checks {
    /// Adds those of whole units.
    pub(crate) fn add(&mut self, units: &[u8]) {
        let sums = units.chunks(UNIT as usize).map(crc32c::crc32c);
        self.0.extend(sums);
    }

    /// The table as it lies on the members: whole units.
    pub(crate) fn table(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        bytes.resize(bytes.len().next_multiple_of(UNIT as usize), 0);
        bytes
    }

    /// CRC32C of the table, whole units.
    pub(crate) fn crc(&self) -> u32 {
        crc32c::crc32c(&self.table())
    }

    /// Whether these units, which begin at byte `offset` of the volume, are all right.
    fn hold(&self, offset: u64, units: &[u8]) -> bool {
        self.wrong(offset, units).next().is_none()
    }

    /// Where those of these units begin that are wrong. Bytes of the volume.
    fn wrong(&self, offset: u64, units: &[u8]) -> impl Iterator<Item = u64> {
        let units = (offset / UNIT..).zip(units.chunks(UNIT as usize));
        let wrong = units
            .filter(|(unit, bytes)| self.0.get(*unit as usize) != Some(&crc32c::crc32c(bytes)));
        wrong.map(|(unit, _)| unit * UNIT)
    }

    /// The table of the first copy that has the one that the superblocks speak of.
    pub(crate) fn of_any_copy(
        members: &mut Members,
        description: &Description,
    ) -> Result<Option<Self>, Error> {
        for copy in 0..description.spread().copies() {
            if let Some(checks) = Self::read(members, description, copy)? {
                return Ok(Some(checks));
            }
        }
        Ok(None)
    }

    /// Reads the table; `None` if it is not the one that the superblocks speak of.
    fn read(
        members: &mut Members,
        description: &Description,
        copy: u32,
    ) -> Result<Option<Self>, Error> {
        let len = checks_bytes(description.checks_offset) as usize;
        let mut table = vec![0; len.next_multiple_of(UNIT as usize)];
        let spread = description.spread();
        spread.read(members, description.checks_offset, &mut table, copy)?;
        let holds = crc32c::crc32c(&table) == description.checks_crc;
        let sums = table[..len].as_chunks::<4>().0.iter();
        Ok(holds.then(|| Self(sums.map(|sum| u32::from_le_bytes(*sum)).collect())))
    }
}

/// A place where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The member, as the user calls it.
    pub member: String,
    /// The first byte of the member that may be wrong; a unit of them may.
    pub member_offset: u64,
    /// The array, and which bytes of it; none for the table of checksums.
    pub array: Option<(String, Range<u64>)>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.array {
            Some((name, bytes)) => write!(
                f,
                "array {name}, bytes {} to {}, at byte {} of {}",
                bytes.start,
                bytes.end.saturating_sub(1),
                self.member_offset,
                self.member
            ),
            None => write!(
                f,
                "the table of checksums, at byte {} of {}",
                self.member_offset, self.member
            ),
        }
    }
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The first places where something is wrong.
    pub faults: Vec<Fault>,
    /// How many there are.
    pub count: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Audit {
    /// Compares everything with `checks`, and the arrays with the checksums in `description`; the table
    /// on the members too.
    pub(crate) fn of(
        members: &mut Members,
        description: &Description,
        checks: &Checks,
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<Self, Error> {
        let mut audit = Self::default();
        let spread = description.spread();
        for copy in 0..spread.copies() {
            if Checks::read(members, description, copy)?.as_ref() != Some(checks) {
                audit.note(members, description, description.checks_offset, copy);
            }
            for (index, array) in description.arrays.iter().enumerate() {
                let crc = audit.array(members, description, checks, (index, copy), watch)?;
                // Each unit is right, and not the whole: then the superblocks are not of these data.
                if crc != array.crc && audit.count == 0 {
                    audit.note(members, description, array.offset, copy);
                }
            }
        }
        Ok(audit)
    }

    /// As [`Audit::of`] with the table on the members, which must be right first.
    pub(crate) fn of_sealed(
        members: &mut Members,
        description: &Description,
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<Self, Error> {
        if let Some(checks) = Checks::of_any_copy(members, description)? {
            return Self::of(members, description, &checks, watch);
        }
        // Without the table arrays are right or wrong as a whole.
        let mut audit = Self::default();
        audit.note(members, description, description.checks_offset, 0);
        for array in &description.arrays {
            for copy in 0..description.spread().copies() {
                let mut crc = 0;
                let whole = array.offset..array.offset + array.bytes();
                read_each(members, &description.spread(), whole, copy, |_, bytes| {
                    crc = crc32c::crc32c_append(crc, bytes);
                })?;
                if crc != array.crc {
                    audit.note(members, description, array.offset, copy);
                }
            }
        }
        Ok(audit)
    }

    /// Compares the arrays of all copies but the first with `checks`, which are the first one's.
    pub(crate) fn of_replicas(
        members: &mut Members,
        description: &Description,
        checks: &Checks,
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<Self, Error> {
        let mut audit = Self::default();
        for copy in 1..description.spread().copies() {
            for index in 0..description.arrays.len() {
                audit.array(members, description, checks, (index, copy), watch)?;
            }
        }
        Ok(audit)
    }

    /// Compares one copy of one array, unit by unit; its CRC32C.
    fn array(
        &mut self,
        members: &mut Members,
        description: &Description,
        checks: &Checks,
        (index, copy): (usize, u32),
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<u32, Error> {
        let array = &description.arrays[index];
        let (mut crc, mut left) = (0, array.bytes());
        let mut wrong = Vec::new();
        let total = description.checks_offset * u64::from(copy);
        let spread = description.spread();
        read_each(
            members,
            &spread,
            array.offset..array.end(),
            copy,
            |offset, bytes| {
                let own = left.min(bytes.len() as u64);
                crc = crc32c::crc32c_append(crc, &bytes[..own as usize]);
                left -= own;
                wrong.extend(checks.wrong(offset, bytes));
                watch(Step::Verify, total + offset + bytes.len() as u64);
            },
        )?;
        self.bytes += array.bytes();
        for offset in wrong {
            self.note(members, description, offset, copy);
        }
        Ok(crc)
    }

    /// Notes that the unit at `offset` of the volume is wrong.
    fn note(&mut self, members: &Members, description: &Description, offset: u64, copy: u32) {
        self.count += 1;
        if self.count > MOST_TOLD {
            return;
        }
        let (member, member_offset) = description.spread().place(offset, copy);
        let mut arrays = description.arrays.iter();
        let array = arrays.find(|array| (array.offset..array.end()).contains(&offset));
        let array = array.map(|array| {
            let first = offset - array.offset;
            (array.name.clone(), first..array.bytes().min(first + UNIT))
        });
        self.faults.push(Fault {
            member: members.name(member),
            member_offset,
            array,
        });
    }
}

/// Reads bytes of the volume, a chunk at a time; `see` gets each chunk with its offset.
pub(crate) fn read_each(
    members: &mut Members,
    spread: &Spread,
    range: Range<u64>,
    copy: u32,
    mut see: impl FnMut(u64, &[u8]),
) -> Result<(), Error> {
    in_chunks(range, |offset, take, chunk| {
        spread.read(members, offset, chunk, copy)?;
        see(offset, &chunk[..take]);
        Ok(())
    })
}

/// As [`read_each`], of whole units, each chunk from the first copy that can be read and is right by
/// `checks`; if none is, from the last one.
pub(crate) fn read_right(
    members: &mut Members,
    spread: &Spread,
    range: Range<u64>,
    checks: &Checks,
    mut see: impl FnMut(u64, &[u8]),
) -> Result<(), Error> {
    in_chunks(range, |offset, _, chunk| {
        let mut read = Ok(());
        for copy in 0..spread.copies() {
            read = spread.read(members, offset, chunk, copy);
            if read.is_ok() && checks.hold(offset, chunk) {
                break;
            }
        }
        read?;
        see(offset, chunk);
        Ok(())
    })
}

/// Goes through bytes of the volume; `each` gets the offset of a chunk, how many of its bytes are in
/// `range`, and where to put it: whole units, as members are read in whole blocks.
fn in_chunks(
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
