//! Reading everything and comparing checksums.
//!
//! Beside the checksum of each array there is one for each [`UNIT`] of the volume, in a table behind the
//! arrays: it tells where something is wrong.

use std::fmt;
use std::ops::Range;

use crate::UNIT;
use crate::error::Error;
use crate::member::Members;
use crate::reading::{in_chunks, read_units};
use crate::superblock::{Description, checks_bytes};
use crate::write::Step;

/// Places that are told one by one.
const MOST_TOLD: u64 = 16;
/// Units that cannot be read before the member counts as one that failed as a whole: each may have taken
/// a command's whole time.
const MOST_UNREAD: u64 = 64;

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

    /// Whether the unit at byte `offset` of the volume is right.
    pub(crate) fn hold(&self, offset: u64, unit: &[u8]) -> bool {
        self.0.get((offset / UNIT) as usize) == Some(&crc32c::crc32c(unit))
    }

    /// The table of the first copy that has the one that the superblocks speak of.
    pub(crate) fn of_any_copy(members: &mut Members, description: &Description) -> Option<Self> {
        let mut copies = 0..description.spread().copies();
        copies.find_map(|copy| Self::read(members, description, copy).ok()?)
    }

    /// Reads the table; `None` if it is not the one that the superblocks speak of.
    ///
    /// # Errors
    /// Where it cannot be read, the first byte of the volume, and why.
    fn read(
        members: &mut Members,
        description: &Description,
        copy: u32,
    ) -> Result<Option<Self>, (u64, Error)> {
        let len = checks_bytes(description.checks_offset) as usize;
        let mut table = vec![0; len.next_multiple_of(UNIT as usize)];
        let spread = description.spread();
        let mut unread = read_units(
            members,
            &spread,
            description.checks_offset,
            &mut table,
            copy,
        );
        if let Some(first) = unread.pop_first() {
            return Err(first);
        }
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
    /// Why it could not be read; none if it was read, and is wrong.
    pub unread: Option<String>,
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
        }?;
        match &self.unread {
            Some(reason) => write!(f, ", cannot be read: {reason}"),
            None => Ok(()),
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
        let mut auditor = Auditor::new(members, description, MOST_UNREAD);
        for copy in 0..description.copies() {
            auditor.table(Some(checks), copy)?;
            for (index, array) in description.arrays.iter().enumerate() {
                let crc = auditor.array(checks, (index, copy), watch)?;
                // Each unit is right, and not the whole: then the superblocks are not of these data.
                if crc != array.crc && auditor.audit.count == 0 {
                    auditor.note(array.offset, copy, None);
                }
            }
        }
        Ok(auditor.audit)
    }

    /// As [`Audit::of`] with the table on the members, which must be right first.
    pub(crate) fn of_sealed(
        members: &mut Members,
        description: &Description,
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<Self, Error> {
        if let Some(checks) = Checks::of_any_copy(members, description) {
            return Self::of(members, description, &checks, watch);
        }
        // Without the table arrays are right or wrong as a whole.
        let mut auditor = Auditor::new(members, description, MOST_UNREAD);
        for copy in 0..description.copies() {
            auditor.table(None, copy)?;
            for index in 0..description.arrays.len() {
                auditor.whole(index, copy)?;
            }
        }
        Ok(auditor.audit)
    }

    /// Compares the arrays of all copies but the first with `checks`, which are the first one's.
    ///
    /// # Errors
    /// One cannot be read.
    pub(crate) fn of_replicas(
        members: &mut Members,
        description: &Description,
        checks: &Checks,
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<Self, Error> {
        let mut auditor = Auditor::new(members, description, 0);
        for copy in 1..description.copies() {
            for index in 0..description.arrays.len() {
                auditor.array(checks, (index, copy), watch)?;
            }
        }
        Ok(auditor.audit)
    }
}

/// A comparison under way.
struct Auditor<'a> {
    members: &'a mut Members,
    description: &'a Description,
    /// Units that may yet turn out to be unreadable; then it ends.
    patience: u64,
    audit: Audit,
}

impl<'a> Auditor<'a> {
    fn new(members: &'a mut Members, description: &'a Description, patience: u64) -> Self {
        Self {
            members,
            description,
            patience,
            audit: Audit::default(),
        }
    }

    /// Compares the table of one copy; with none, it is known to be wrong.
    fn table(&mut self, right: Option<&Checks>, copy: u32) -> Result<(), Error> {
        match Checks::read(self.members, self.description, copy) {
            Ok(Some(found)) if Some(&found) == right => {}
            Ok(_) => self.note(self.description.checks_offset, copy, None),
            Err((offset, error)) => self.note_unread(offset, copy, error)?,
        }
        Ok(())
    }

    /// Compares one copy of one array, unit by unit; its CRC32C, if all of it can be read.
    fn array(
        &mut self,
        checks: &Checks,
        (index, copy): (usize, u32),
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<u32, Error> {
        let array = &self.description.arrays[index];
        let (mut crc, mut left) = (0, array.bytes());
        let total = self.description.checks_offset * u64::from(copy);
        let spread = self.description.spread();
        in_chunks(array.offset..array.end(), |offset, _, chunk| {
            let mut unread = read_units(self.members, &spread, offset, chunk, copy);
            let own = left.min(chunk.len() as u64);
            crc = crc32c::crc32c_append(crc, &chunk[..own as usize]);
            left -= own;
            let units = chunk.chunks(UNIT as usize);
            for (at, unit) in (offset..).step_by(UNIT as usize).zip(units) {
                match unread.remove(&at) {
                    Some(error) => self.note_unread(at, copy, error)?,
                    None if checks.hold(at, unit) => {}
                    None => self.note(at, copy, None),
                }
            }
            watch(Step::Verify, total + offset + chunk.len() as u64);
            Ok(())
        })?;
        self.audit.bytes += array.bytes();
        Ok(crc)
    }

    /// Compares one copy of one array with its own checksum alone.
    fn whole(&mut self, index: usize, copy: u32) -> Result<(), Error> {
        let array = &self.description.arrays[index];
        let (mut crc, mut is_whole) = (0, true);
        let spread = self.description.spread();
        let range = array.offset..array.offset + array.bytes();
        in_chunks(range, |offset, take, chunk| {
            for (at, error) in read_units(self.members, &spread, offset, chunk, copy) {
                is_whole = false;
                self.note_unread(at, copy, error)?;
            }
            crc = crc32c::crc32c_append(crc, &chunk[..take]);
            Ok(())
        })?;
        if is_whole && crc != array.crc {
            self.note(array.offset, copy, None);
        }
        Ok(())
    }

    /// Notes that the unit at `offset` of the volume cannot be read.
    ///
    /// # Errors
    /// Too many cannot.
    fn note_unread(&mut self, offset: u64, copy: u32, error: Error) -> Result<(), Error> {
        let Some(patience) = self.patience.checked_sub(1) else {
            return Err(error);
        };
        self.patience = patience;
        let reason = match error {
            // The fault says where.
            Error::Member { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        self.note(offset, copy, Some(reason));
        Ok(())
    }

    /// Notes that the unit at `offset` of the volume is wrong, or could not be read.
    fn note(&mut self, offset: u64, copy: u32, unread: Option<String>) {
        self.audit.count += 1;
        if self.audit.count > MOST_TOLD {
            return;
        }
        let (member, member_offset) = self.description.spread().place(offset, copy);
        let mut arrays = self.description.arrays.iter();
        let array = arrays.find(|array| (array.offset..array.end()).contains(&offset));
        let array = array.map(|array| {
            let first = offset - array.offset;
            (array.name.clone(), first..array.bytes().min(first + UNIT))
        });
        self.audit.faults.push(Fault {
            member: self.members.name(member),
            member_offset,
            array,
            unread,
        });
    }
}
