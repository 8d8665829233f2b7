//! Volumes to test with: their arrays, writing them, and what must be read again.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

use warpstore_device::Layout;
use warpstore_volume::{ArrayShape, ElementType, Error, Members, NewVolume, Plan, UNIT, Volume};

use crate::disk::{Disk, Power, Random, members};

/// Arrays with their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(pub Vec<(String, Vec<u8>)>);

impl Content {
    /// Random bytes of these lengths.
    pub fn random(seed: u64, lengths: &[usize]) -> Self {
        let mut random = Random::new(seed);
        let arrays = lengths.iter().enumerate().map(|(index, &len)| {
            let bytes = (0..len).map(|_| random.next() as u8).collect();
            (format!("a{index}"), bytes)
        });
        Self(arrays.collect())
    }

    pub fn volume(&self, layout: Layout, stripe: u64) -> NewVolume {
        let shape = |(name, bytes): &(String, Vec<u8>)| ArrayShape {
            name: name.clone(),
            element: ElementType::U8,
            len: bytes.len() as u64,
        };
        let shapes: Vec<_> = self.0.iter().map(shape).collect();
        NewVolume::new(layout, stripe, &shapes).unwrap()
    }

    pub fn sources(&self) -> Vec<Box<dyn Read + '_>> {
        let sources = self.0.iter();
        sources
            .map(|(_, bytes)| Box::new(&bytes[..]) as Box<dyn Read>)
            .collect()
    }

    /// Flashes it; nothing may be destroyed.
    pub fn flash(&self, disks: &[Disk], layout: Layout, stripe: u64) -> Result<Volume, Error> {
        self.flash_over(disks, layout, stripe, |_| false)
    }

    pub fn flash_over(
        &self,
        disks: &[Disk],
        layout: Layout,
        stripe: u64,
        may_destroy: impl Fn(&str) -> bool,
    ) -> Result<Volume, Error> {
        let mut members = members(disks);
        let plan = Plan::make(&self.volume(layout, stripe), &mut members, may_destroy)?;
        plan.write(&mut members, self.sources(), 2 * UNIT, &mut |_, _| {})?;
        Volume::open(members)
    }
}

/// Everything that a volume holds, which must be sealed and right.
pub fn read(volume: &mut Volume) -> Content {
    let audit = volume
        .verify(&mut |_, _| {})
        .unwrap()
        .expect("a sealed volume");
    assert_eq!(audit.faults, []);
    content(volume)
}

/// Everything that a volume holds.
pub fn content(volume: &mut Volume) -> Content {
    let names: Vec<String> = volume
        .description()
        .names()
        .iter()
        .map(ToString::to_string)
        .collect();
    let copy = |name: String| {
        let mut bytes = Vec::new();
        volume.copy(&name, &mut bytes).unwrap();
        (name, bytes)
    };
    Content(names.into_iter().map(copy).collect())
}

pub fn power() -> Power {
    Rc::new(Cell::new(u64::MAX))
}

/// So many disks of so many units.
pub fn disks(count: usize, units: u64) -> Vec<Disk> {
    let power = power();
    let named = (0..count).map(|index| format!("d{index}"));
    named
        .map(|name| Disk::new(&name, (units * UNIT) as usize, &power))
        .collect()
}

pub fn copies(disks: &[Disk], power: &Power) -> Vec<Disk> {
    disks.iter().map(|disk| disk.copy(power)).collect()
}

pub fn open(disks: &[Disk]) -> Result<Volume, Error> {
    let members: Members = members(disks);
    Volume::open(members)
}

/// Bytes that were ever written to the disks.
pub fn written(disks: &[Disk]) -> u64 {
    let written = disks.iter().map(|disk| disk.platter.borrow().written);
    written.sum()
}
