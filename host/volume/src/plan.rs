//! What writing a new volume will do, decided before anything is written.

use std::collections::BTreeSet;

use uuid::Uuid;
use warpstore_device::Layout;

use crate::UNIT;
use crate::element::ElementType;
use crate::error::Error;
use crate::journal::Journal;
use crate::member::Members;
use crate::open::Chosen;
use crate::rules::may_name;
use crate::spread::Spread;
use crate::superblock::{ArrayEntry, Description, MAX_ARRAYS, State, Superblock, checks_bytes};
use crate::survey::{Found, Surveyed, next_generation};

/// Where the data of a member may begin: behind a superblock and the journal.
const DATA: u64 = 2 * UNIT;

/// An array that shall be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Its name: 1 to [`MAX_NAME`](crate::MAX_NAME) bytes.
    pub name: String,
    /// Type of its elements.
    pub element: ElementType,
    /// Number of elements.
    pub len: u64,
}

/// A volume that shall be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    layout: Layout,
    stripe: u64,
    arrays: Vec<ArrayEntry>,
    bytes: u64,
}

impl NewVolume {
    /// A volume of these arrays. `stripe` is the stripe unit in bytes; replicas have none, and it is
    /// [`UNIT`].
    ///
    /// # Errors
    /// A name that cannot be, or is there twice; too many or too large arrays; a stripe unit that is no
    /// multiple of [`UNIT`].
    pub fn new(layout: Layout, stripe: u64, arrays: &[ArrayShape]) -> Result<Self, Error> {
        let (given, most) = (arrays.len(), MAX_ARRAYS);
        if given == 0 || given > most {
            return Err(Error::NumberOfArrays { given, most });
        }
        if stripe == 0 || !stripe.is_multiple_of(UNIT) {
            return Err(Error::Stripe { stripe });
        }
        let mut names = BTreeSet::new();
        let mut offset = 0;
        let mut entries = Vec::new();
        for array in arrays {
            if !may_name(&array.name) {
                return Err(Error::Name {
                    name: array.name.clone(),
                });
            }
            if !names.insert(&array.name) {
                return Err(Error::SameName {
                    name: array.name.clone(),
                });
            }
            let bytes = array.len.saturating_mul(array.element.bytes());
            if bytes >= 1 << 60 || offset >= 1 << 60 {
                return Err(Error::TooLarge { bytes });
            }
            let entry = ArrayEntry {
                name: array.name.clone(),
                element: array.element,
                len: array.len,
                offset,
                crc: 0,
            };
            offset = entry.end();
            entries.push(entry);
        }
        Ok(Self {
            layout,
            stripe,
            arrays: entries,
            bytes: offset,
        })
    }

    /// Bytes that each of so many members needs, for the data alone.
    fn region_bytes(&self, members: u32) -> Result<u64, Error> {
        let spread = Spread::new(self.layout, members, self.stripe, 0);
        let bytes = self.bytes + checks_bytes(self.bytes).next_multiple_of(UNIT);
        let region = spread.member_bytes(bytes);
        region
            .filter(|&region| region < 1 << 62)
            .ok_or(Error::TooLarge { bytes })
    }

    /// The smallest size of each of so many members. Bytes.
    ///
    /// # Errors
    /// It is beyond all sizes.
    pub fn member_bytes(&self, members: u32) -> Result<u64, Error> {
        Ok(Members::FEWEST_BYTES.max(DATA + self.region_bytes(members)? + UNIT))
    }

    /// The size of each of so many members with which the volume can be written anew while this one
    /// is there. Bytes.
    ///
    /// # Errors
    /// It is beyond all sizes.
    pub fn member_bytes_for_two(&self, members: u32) -> Result<u64, Error> {
        Ok(Members::FEWEST_BYTES.max(DATA + 2 * self.region_bytes(members)? + UNIT))
    }
}

/// What writing will do. Nothing is written before [`Plan::write`].
pub struct Plan {
    /// The new volume; its checksums come while it is written.
    pub(crate) description: Description,
    /// What is on the members.
    pub(crate) surveyed: Vec<Surveyed>,
    /// The volume that is there and stays until the new one is in force.
    pub(crate) beside: Option<Chosen>,
    /// What is on the members goes first.
    pub(crate) wipes: bool,
    /// Bytes of the volume that an interrupted flash has written.
    pub(crate) done: u64,
    replaces: Option<Description>,
}

impl Plan {
    /// Looks at the members and decides. `may_destroy` tells whether the user wants what is on a member of
    /// this name to be lost.
    ///
    /// # Errors
    /// The members are too small; or they hold something that would be lost, and nobody said so.
    pub fn make(
        new: &NewVolume,
        members: &mut Members,
        may_destroy: impl Fn(&str) -> bool,
    ) -> Result<Self, Error> {
        let needed = new.member_bytes(members.count())?;
        for member in 0..members.count() as usize {
            let bytes = members.usable(member);
            if bytes < needed {
                return Err(Error::TooSmall {
                    member: members.name(member),
                    bytes,
                    needed,
                });
            }
        }
        let surveyed = Surveyed::all(members)?;
        let old = Chosen::of(members, &surveyed).ok();
        let region_bytes = new.region_bytes(members.count())?;
        let (start, wipes) = match &old {
            Some(old) => match free_beside(members, &old.description, region_bytes) {
                Ok(start) => (start, false),
                Err(free) => {
                    let names = members.names();
                    if let Some(member) = names.into_iter().find(|name| !may_destroy(name)) {
                        return Err(Error::NoRoomBeside {
                            member,
                            free,
                            needed: region_bytes,
                        });
                    }
                    (DATA, true)
                }
            },
            None => (DATA, check_nothing_lost(members, &surveyed, may_destroy)?),
        };
        let description = Description {
            uuid: old
                .as_ref()
                .map_or_else(Uuid::new_v4, |old| old.description.uuid),
            generation: next_generation(members, &surveyed)?,
            members: members.count(),
            layout: new.layout,
            stripe: new.stripe,
            state: State::Sealed,
            region: start..start + region_bytes,
            checks_offset: new.bytes,
            checks_crc: 0,
            arrays: new.arrays.clone(),
        };
        let replaces = old.as_ref().map(|old| old.description.clone());
        let mut plan = Self {
            description,
            surveyed,
            beside: old.filter(|_| !wipes),
            wipes,
            done: 0,
            replaces,
        };
        plan.go_on();
        Ok(plan)
    }

    /// Goes on where an interrupted flash of the same arrays has come to, on the same members in the same
    /// order.
    fn go_on(&mut self) {
        let fingerprint = self.fingerprint();
        let journals = self.surveyed.iter().map(|member| member.journal);
        let same = journals.collect::<Option<Vec<Journal>>>().filter(|all| {
            all.iter().enumerate().all(|(member, one)| {
                one.fingerprint == Journal::at_place(fingerprint, member) && one.uuid == all[0].uuid
            })
        });
        if let Some(all) = same {
            self.description.uuid = all[0].uuid;
            self.done = all.iter().map(|one| one.done).min().unwrap_or(0);
        }
    }

    /// Of what is written and where, to know it again in a journal.
    pub(crate) fn fingerprint(&self) -> u32 {
        let nameless = Superblock {
            description: Description {
                uuid: Uuid::nil(),
                generation: 0,
                ..self.description.clone()
            },
            member: 0,
            member_bytes: 0,
        };
        crc32c::crc32c(&nameless.encode())
    }

    /// The new volume; its checksums come while it is written.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The volume that the new one takes the place of.
    pub fn replaces(&self) -> Option<&Description> {
        self.replaces.as_ref()
    }

    /// Whether what is on the members is lost before the new volume is there.
    pub fn wipes(&self) -> bool {
        self.wipes
    }

    /// Bytes of the volume that an interrupted flash has written and that are not written again.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes of the volume, its checksums included.
    pub fn total(&self) -> u64 {
        self.description.bytes()
    }
}

/// Where each member has so many bytes free before or behind the data of a volume, or how many it has.
fn free_beside(members: &Members, old: &Description, needed: u64) -> Result<u64, u64> {
    let before = old.region.start - DATA;
    if before >= needed {
        return Ok(DATA);
    }
    let ends = (0..members.count() as usize).map(|member| members.usable(member) - UNIT);
    let end = ends.min().unwrap_or(0);
    match end.saturating_sub(old.region.end) {
        behind if behind >= needed => Ok(old.region.end),
        behind => Err(before.max(behind)),
    }
}

/// Checks that nothing is lost that nobody said may be; whether there is anything to be taken away.
fn check_nothing_lost(
    members: &Members,
    surveyed: &[Surveyed],
    may_destroy: impl Fn(&str) -> bool,
) -> Result<bool, Error> {
    let ours = interrupted(surveyed);
    let mut wipes = false;
    for (index, member) in surveyed.iter().enumerate() {
        let found = member.found();
        if found == Found::Empty || ours.is_some_and(|uuid| belongs(member, uuid)) {
            continue;
        }
        let name = members.name(index);
        if !may_destroy(&name) {
            return Err(Error::InTheWay {
                member: name,
                found,
            });
        }
        wipes = true;
    }
    Ok(wipes)
}

/// Whose first flash was interrupted on exactly these members, if one was.
fn interrupted(surveyed: &[Surveyed]) -> Option<Uuid> {
    let mut journals = surveyed.iter().filter_map(|member| member.journal);
    let first = journals.next()?;
    let same = |one: Journal| one.uuid == first.uuid && one.members == surveyed.len() as u32;
    (same(first) && journals.all(same)).then_some(first.uuid)
}

/// Whether all that is on a member is of the first flash of volume `uuid`.
fn belongs(member: &Surveyed, uuid: Uuid) -> bool {
    match member.found() {
        Found::Interrupted { .. } => true,
        Found::Member { .. } => {
            let mut readable = member.readable();
            member.journal.is_some() && readable.all(|copy| copy.description.uuid == uuid)
        }
        _ => false,
    }
}
