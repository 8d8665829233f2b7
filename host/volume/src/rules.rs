//! Which values a superblock may have, its checksum being right.

use std::collections::BTreeSet;

use crate::UNIT;
use crate::member::Members;
use crate::superblock::{ArrayEntry, Damage, MAX_NAME, Superblock};

/// The last generation. Accepted beyond it, none could follow.
pub(crate) const LAST_GENERATION: u64 = u64::MAX - 1;

impl Superblock {
    /// Whether the values hold together, so that nobody behind needs to ask again.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        let of = &self.description;
        let rules = [
            (of.generation <= LAST_GENERATION, "the generation"),
            (
                (1..=Members::MAX as u32).contains(&of.members) && self.member < of.members,
                "the number of members",
            ),
            (
                of.stripe >= UNIT && of.stripe.is_multiple_of(UNIT),
                "the stripe unit",
            ),
            (
                of.region.start >= 2 * UNIT
                    && of.region.start.is_multiple_of(UNIT)
                    && of.region.start <= of.region.end
                    && self.member_bytes.is_multiple_of(UNIT)
                    && self.member_bytes >= UNIT
                    && of.region.end <= self.member_bytes - UNIT,
                "where the data are",
            ),
            (
                of.checks_offset.is_multiple_of(UNIT) && of.checks_offset < 1 << 62,
                "where the checksums are",
            ),
        ];
        if let Some((_, what)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(Damage::Value(what));
        }
        let room = of.region.end - of.region.start;
        if of
            .spread()
            .member_bytes(of.bytes())
            .is_none_or(|needed| needed > room)
        {
            return Err(Damage::Value("less room than the arrays need"));
        }
        check_arrays(&of.arrays, of.checks_offset)
    }
}

/// Whether an array may be called so: what a command line can say, and a terminal show.
pub(crate) fn may_name(name: &str) -> bool {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || ",=:/#".contains(c);
    (1..=MAX_NAME).contains(&name.len()) && !name.contains(is_wrong)
}

/// Arrays lie one behind the other, under names of their own.
fn check_arrays(arrays: &[ArrayEntry], end: u64) -> Result<(), Damage> {
    let mut names = BTreeSet::new();
    let mut expected = 0;
    for array in arrays {
        if !may_name(&array.name) || !names.insert(array.name.as_str()) {
            return Err(Damage::Value("the name of an array"));
        }
        let bytes = array.len.checked_mul(array.element.bytes());
        if array.offset != expected || bytes.is_none_or(|bytes| bytes > end - expected) {
            return Err(Damage::Value("where an array is"));
        }
        expected = array.end();
    }
    match expected == end {
        true => Ok(()),
        false => Err(Damage::Value("where the checksums are")),
    }
}
