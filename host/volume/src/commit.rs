//! Changes of the superblocks, in an order that no interruption turns into a mixture: [VL-1], [VL-4].

use crate::UNIT;
use crate::error::Error;
use crate::member::Members;
use crate::open::Chosen;
use crate::superblock::{Description, Superblock};
use crate::survey::{Surveyed, slots};

/// Puts a new generation in force; the members are in its order, and what it says of the data is
/// durable. Before, both superblocks of each member are of the generation in force, or there is
/// none.
///
/// Until the first of each member's superblocks are all durable the old generation is in force by the
/// last ones; from then on the new one is ([VL-1]).
pub(crate) fn commit(members: &mut Members, description: &Description) -> Result<(), Error> {
    for copy in 0..2 {
        for member in 0..members.count() as usize {
            let superblock = Superblock {
                description: description.clone(),
                member: member as u32,
                member_bytes: members.usable(member),
            };
            let slot = slots(members, member)[copy];
            members.write(member, slot, &superblock.encode())?;
        }
        members.flush()?;
    }
    Ok(())
}

/// Makes both superblocks of each member those of the generation in force, after an interruption or
/// damage. A superblock that is right is not touched, so the generation stays in force. The members
/// are in the order in which they were given.
pub(crate) fn repair(
    members: &mut Members,
    in_force: &Chosen,
    surveyed: &[Surveyed],
) -> Result<(), Error> {
    let mut repaired = false;
    for (member, &given) in in_force.order.iter().enumerate() {
        let right = Superblock {
            description: in_force.description.clone(),
            member: member as u32,
            member_bytes: members.usable(given),
        };
        let slots = slots(members, given);
        for (slot, copy) in slots.into_iter().zip(&surveyed[given].copies) {
            if copy.as_ref() != Ok(&right) {
                members.write(given, slot, &right.encode())?;
                repaired = true;
            }
        }
    }
    match repaired {
        true => members.flush(),
        false => Ok(()),
    }
}

/// Takes all superblocks away, durably: there is no volume any more.
pub(crate) fn wipe(members: &mut Members) -> Result<(), Error> {
    for member in 0..members.count() as usize {
        for slot in slots(members, member) {
            members.write(member, slot, &vec![0; UNIT as usize])?;
        }
    }
    members.flush()
}
