//! An open volume.

use std::io::Write;

use crate::UNIT;
use crate::audit::{Audit, Checks};
use crate::commit::{commit, repair};
use crate::error::Error;
use crate::journal::Journal;
use crate::member::Members;
use crate::open::Chosen;
use crate::reading::{read_each, read_right};
use crate::spread::Spread;
use crate::superblock::{ArrayEntry, Description, State, Superblock};
use crate::survey::{Surveyed, next_generation, slots};
use crate::write::Step;

/// A volume whose members are all there and agree.
pub struct Volume {
    members: Members,
    description: Description,
    /// What is not as it should be, and does no harm.
    remarks: Vec<String>,
}

impl Volume {
    /// Opens the volume that the members hold; they may come in any order.
    ///
    /// # Errors
    /// A member is missing, of another volume, of an older generation, there twice, of another size
    /// than it had, or holds no volume.
    pub fn open(mut members: Members) -> Result<Self, Error> {
        let surveyed = Surveyed::all(&mut members)?;
        let chosen = Chosen::of(&members, &surveyed)?;
        let remarks = remarks(&members, &chosen, &surveyed);
        Ok(Self {
            members: members.reordered(&chosen.order),
            description: chosen.description,
            remarks,
        })
    }

    /// What the volume is.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The names of its members, in its order.
    pub fn member_names(&self) -> Vec<String> {
        self.members.names()
    }

    /// What is not as it should be and does no harm, a sentence each: a superblock that is damaged or of
    /// another generation while the other one of that member holds.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The array of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn array(&self, name: &str) -> Result<&ArrayEntry, Error> {
        self.description.array(name)
    }

    /// The superblocks of each member as they lie there, first and last: to tell whether anybody wrote
    /// them since.
    ///
    /// # Errors
    /// A member cannot be read.
    pub fn superblocks(&mut self) -> Result<Vec<[Vec<u8>; 2]>, Error> {
        let each = 0..self.members.count() as usize;
        each.map(|member| {
            let mut copies = [(); 2].map(|()| vec![0; UNIT as usize]);
            for (copy, slot) in copies.iter_mut().zip(slots(&self.members, member)) {
                self.members.read(member, slot, copy)?;
            }
            Ok(copies)
        })
        .collect()
    }

    /// Reads everything and compares it with the checksums; of replicas each copy. `watch` is told how many
    /// bytes that has come to. `None` if the volume is not sealed: then there is nothing to compare with.
    ///
    /// What cannot be read is a fault as well, up to so much that the member must have failed as a whole.
    ///
    /// # Errors
    /// A member fails.
    pub fn verify(&mut self, watch: &mut dyn FnMut(Step, u64)) -> Result<Option<Audit>, Error> {
        match self.description.state {
            State::Unsealed => Ok(None),
            State::Sealed => {
                Audit::of_sealed(&mut self.members, &self.description, watch).map(Some)
            }
        }
    }

    /// Copies the bytes of an array to `into`; of replicas, what one that is right holds.
    ///
    /// # Errors
    /// A member cannot be read, `into` cannot be written, or the array of a sealed volume does not have
    /// the checksum that it should; what was copied is wrong then.
    pub fn copy(&mut self, name: &str, into: &mut dyn Write) -> Result<(), Error> {
        let array = self.description.array(name)?.clone();
        let (mut crc, mut left) = (0, array.bytes());
        let see = |_, bytes: &[u8]| {
            let own = &bytes[..left.min(bytes.len() as u64) as usize];
            crc = crc32c::crc32c_append(crc, own);
            left -= own.len() as u64;
            into.write_all(own).map_err(|source| Error::Copy {
                array: name.to_owned(),
                source,
            })
        };
        let is_sealed = self.description.state == State::Sealed;
        let spread = self.description.spread();
        let (members, range) = (&mut self.members, array.offset..array.end());
        let checks = match is_sealed {
            true => Checks::of_any_copy(members, &self.description),
            false => None,
        };
        match checks {
            Some(checks) => read_right(members, &spread, range, &checks, see)?,
            None if is_sealed => {
                let copy = right_copy(members, &spread, &array)?;
                read_each(members, &spread, range, copy, see)?;
            }
            None => read_each(members, &spread, range, 0, see)?,
        }
        match !is_sealed || crc == array.crc {
            true => Ok(()),
            false => Err(Error::Checksum { name: array.name }),
        }
    }

    /// Says durably, before anybody writes to the arrays, that the checksums do not hold any more ([VL-3]).
    ///
    /// # Errors
    /// A member fails; then nobody may write.
    pub fn unseal(&mut self) -> Result<(), Error> {
        self.change(|description| description.state = State::Unsealed)
    }

    /// Reads everything anew and seals the volume with the checksums of what is there now.
    ///
    /// # Errors
    /// Replicas differ; nothing has been written then. Or a member fails; the volume may be unsealed
    /// then.
    pub fn seal(&mut self, watch: &mut dyn FnMut(Step, u64)) -> Result<(), Error> {
        let spread = self.description.spread();
        let mut sealed = self.description.clone();
        let mut checks = Checks::default();
        for array in &mut sealed.arrays {
            let (mut crc, mut left) = (0, array.bytes());
            let range = array.offset..array.end();
            read_each(&mut self.members, &spread, range, 0, |offset, bytes| {
                let own = left.min(bytes.len() as u64);
                crc = crc32c::crc32c_append(crc, &bytes[..own as usize]);
                left -= own;
                checks.add(bytes);
                watch(Step::Verify, offset + bytes.len() as u64);
                Ok(())
            })?;
            array.crc = crc;
        }
        let replicas = Audit::of_replicas(&mut self.members, &sealed, &checks, watch)?;
        if let Some(first) = replicas.faults.first() {
            return Err(Error::ReplicasDiffer {
                place: first.to_string(),
                other: self.members.name(0),
                count: replicas.count,
            });
        }
        self.unseal()?;
        sealed.checks_crc = checks.crc();
        sealed.state = State::Sealed;
        spread.write(&mut self.members, sealed.checks_offset, &checks.table())?;
        self.members.flush()?;
        self.change(|description| *description = sealed)
    }

    /// Puts a changed description in force, with a generation of its own.
    fn change(&mut self, change: impl FnOnce(&mut Description)) -> Result<(), Error> {
        let surveyed = Surveyed::all(&mut self.members)?;
        let in_force = Chosen::of(&self.members, &surveyed)?;
        let generation = next_generation(&self.members, &surveyed)?;
        let mut description = in_force.description.clone();
        repair(&mut self.members, &in_force, &surveyed)?;
        Journal::clear(&mut self.members)?;
        change(&mut description);
        description.generation = generation;
        commit(&mut self.members, &description)?;
        self.description = description;
        Ok(())
    }
}

/// The copy of an array that has its checksum as a whole, for want of a table of checksums; of one copy
/// alone, that one.
///
/// # Errors
/// None has it.
fn right_copy(members: &mut Members, spread: &Spread, array: &ArrayEntry) -> Result<u32, Error> {
    if spread.copies() == 1 {
        return Ok(0);
    }
    let range = array.offset..array.offset + array.bytes();
    let mut first_error = None;
    for copy in 0..spread.copies() {
        let mut crc = 0;
        let read = read_each(members, spread, range.clone(), copy, |_, bytes| {
            crc = crc32c::crc32c_append(crc, bytes);
            Ok(())
        });
        match read {
            Ok(()) if crc == array.crc => return Ok(copy),
            Ok(()) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(Error::Checksum {
        name: array.name.clone(),
    }))
}

impl Description {
    /// The array of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn array(&self, name: &str) -> Result<&ArrayEntry, Error> {
        let mut arrays = self.arrays.iter();
        arrays
            .find(|array| array.name == name)
            .ok_or_else(|| Error::NoArray {
                name: name.to_owned(),
                arrays: self.names().join(", "),
            })
    }

    /// The names of the arrays, in order.
    pub fn names(&self) -> Vec<&str> {
        let names = self.arrays.iter().map(|array| array.name.as_str());
        names.collect()
    }
}

fn remarks(members: &Members, chosen: &Chosen, surveyed: &[Surveyed]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (given, member) in surveyed.iter().enumerate() {
        for (copy, place) in member.copies.iter().zip(["first", "last"]) {
            let name = members.name(given);
            match copy {
                Ok(Superblock { description, .. }) if *description == chosen.description => {}
                Ok(Superblock { description, .. }) => remarks.push(format!(
                    "the {place} superblock of {name} is of generation {}, and generation {} is in force",
                    description.generation, chosen.description.generation
                )),
                Err(damage) => remarks.push(format!(
                    "the {place} superblock of {name} {damage}; the other one is in force"
                )),
            }
        }
    }
    remarks
}
