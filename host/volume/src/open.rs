//! Which generation of a volume is in force: the newest that every member has.
//!
//! A change writes one superblock of each member, then flushes, then the others. So at any moment
//! either the old generation or the new one is on all members, and the newest that is on all is
//! one whose data were durable before.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::error::Error;
use crate::member::Members;
use crate::superblock::{Description, Superblock};
use crate::survey::Surveyed;

/// The volume that members hold.
pub(crate) struct Chosen {
    pub description: Description,
    /// For each member of the volume, which of the given ones it is.
    pub order: Vec<usize>,
}

impl Chosen {
    /// Finds the generation that is in force.
    pub(crate) fn of(members: &Members, surveyed: &[Surveyed]) -> Result<Self, Error> {
        for (index, member) in surveyed.iter().enumerate() {
            if member.newest().is_none() {
                return Err(Error::NoVolume {
                    member: members.name(index),
                    found: member.found(),
                });
            }
        }
        let candidates: BTreeSet<(u64, Uuid)> = surveyed
            .iter()
            .flat_map(Surveyed::readable)
            .map(|copy| (copy.description.generation, copy.description.uuid))
            .collect();
        for &(generation, uuid) in candidates.iter().rev() {
            let of_it = |copy: &&Superblock| {
                copy.description.generation == generation && copy.description.uuid == uuid
            };
            let copies = surveyed.iter().map(|member| member.readable().find(of_it));
            if let Some(copies) = copies.collect::<Option<Vec<_>>>() {
                return Self::checked(members, &copies);
            }
        }
        Err(Self::why_not(members, surveyed))
    }

    /// The volume of which each member has a superblock of the same generation.
    fn checked(members: &Members, copies: &[&Superblock]) -> Result<Self, Error> {
        let description = copies[0].description.clone();
        let uuid = description.uuid;
        if copies.iter().any(|copy| copy.description != description) {
            let generation = description.generation;
            return Err(Error::Mixture { uuid, generation });
        }
        let mut order = vec![None; description.members as usize];
        for (given, copy) in copies.iter().enumerate() {
            if let Some(other) = order[copy.member as usize].replace(given) {
                return Err(Error::Twice {
                    member: members.name(given),
                    other: members.name(other),
                    index: copy.member,
                    uuid,
                });
            }
            let is = members.usable(given);
            if copy.member_bytes != is {
                return Err(Error::Resized {
                    member: members.name(given),
                    was: copy.member_bytes,
                    is,
                });
            }
        }
        let missing: Vec<usize> = (0..order.len())
            .filter(|&member| order[member].is_none())
            .collect();
        if !missing.is_empty() {
            let list: Vec<String> = missing
                .iter()
                .map(|member| format!("member {member}"))
                .collect();
            return Err(Error::Missing {
                uuid,
                members: description.members,
                given: members.count(),
                missing: list.join(" and "),
            });
        }
        Ok(Self {
            description,
            order: order.into_iter().flatten().collect(),
        })
    }

    /// Why no generation is on every member. Each has a superblock that can be read.
    fn why_not(members: &Members, surveyed: &[Surveyed]) -> Error {
        let newest: Vec<&Description> = surveyed
            .iter()
            .filter_map(|member| Some(&member.newest()?.description))
            .collect();
        let foreign = newest.iter().position(|of| of.uuid != newest[0].uuid);
        if let Some(index) = foreign {
            return Error::Foreign {
                member: members.name(index),
                uuid: newest[index].uuid,
                other_member: members.name(0),
                other: newest[0].uuid,
            };
        }
        let by_generation = |&index: &usize| newest[index].generation;
        let oldest = (0..newest.len()).min_by_key(by_generation).unwrap_or(0);
        let latest = (0..newest.len()).max_by_key(by_generation).unwrap_or(0);
        Error::Stale {
            member: members.name(oldest),
            generation: newest[oldest].generation,
            newer: members.name(latest),
            newest: newest[latest].generation,
            uuid: newest[latest].uuid,
        }
    }
}
