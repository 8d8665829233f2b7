//! Sectors that cannot be read: what is right somewhere else is found there, and the place is told.

use warpstore_device::Layout;
use warpstore_volume::{Audit, Error, UNIT};

use crate::disk::{Disk, Random};
use crate::fixture::{Content, content, disks, open, read};

const BYTES_OF_UNIT: usize = UNIT as usize;
/// Units of a disk.
const UNITS: usize = 150;
/// The table of checksums: behind the superblock, the journal and the arrays' 71 units.
const TABLE: usize = 2 + 71;

/// Arrays over more than a chunk.
fn flashed(layout: Layout) -> (Vec<Disk>, Content) {
    let disks = disks(2, UNITS as u64);
    let content = Content::random(1, &[69 * BYTES_OF_UNIT + 3, 100]);
    content.flash(&disks, layout, UNIT).unwrap();
    (disks, content)
}

fn audited(disks: &[Disk]) -> Audit {
    let audit = open(disks).unwrap().verify(&mut |_, _| {});
    audit.unwrap().expect("a sealed volume")
}

fn told(disks: &[Disk]) -> Vec<String> {
    let audit = audited(disks);
    assert_eq!(audit.count, audit.faults.len() as u64);
    audit.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn a_superblock_that_cannot_be_read_is_a_damaged_one() {
    let (disks, content) = flashed(Layout::Stripe);
    disks[0].spoil(700);
    disks[1].spoil(UNITS * BYTES_OF_UNIT - 1);
    let mut volume = open(&disks).unwrap();
    let remarks = volume.remarks().join("\n");
    for words in [
        "first superblock of file:d0 cannot be read: medium error",
        "last superblock of file:d1 cannot be read: medium error",
    ] {
        assert!(remarks.contains(words), "{remarks}");
    }
    assert_eq!(read(&mut volume), content);
    // A member that fails as a whole is told as that.
    disks[0].spoil(UNITS * BYTES_OF_UNIT - 1);
    let error = open(&disks).err().expect("no superblock").to_string();
    assert!(error.contains("file:d0: cannot read"), "{error}");
}

#[test]
fn a_journal_that_cannot_be_read_is_none() {
    let (disks, content) = flashed(Layout::Stripe);
    disks[1].spoil(BYTES_OF_UNIT);
    assert_eq!(read(&mut open(&disks).unwrap()), content);
}

#[test]
fn what_cannot_be_read_is_taken_from_the_other_replica() {
    let (disks, content_) = flashed(Layout::Replicate);
    disks[0].spoil((2 + 5) * BYTES_OF_UNIT);
    disks[1].spoil((2 + 6) * BYTES_OF_UNIT);
    disks[0].spoil(TABLE * BYTES_OF_UNIT);
    assert_eq!(content(&mut open(&disks).unwrap()), content_);
    let told = told(&disks);
    assert_eq!(
        told,
        [
            "the table of checksums, at byte 4784128 of file:d0, cannot be read: medium error",
            "array a0, bytes 327680 to 393215, at byte 458752 of file:d0, cannot be read: medium error",
            "array a0, bytes 393216 to 458751, at byte 524288 of file:d1, cannot be read: medium error",
        ]
    );
}

#[test]
fn verify_goes_on_behind_what_cannot_be_read() {
    let (disks, _) = flashed(Layout::Stripe);
    // Units 4 and 64 of the volume: the first chunk, and the next one.
    disks[0].spoil((2 + 2) * BYTES_OF_UNIT + 9);
    disks[0].flip((2 + 32) * BYTES_OF_UNIT);
    assert_eq!(
        told(&disks),
        [
            "array a0, bytes 262144 to 327679, at byte 262144 of file:d0, cannot be read: medium error",
            "array a0, bytes 4194304 to 4259839, at byte 2228224 of file:d0",
        ]
    );
    let mut volume = open(&disks).unwrap();
    let error = volume.copy("a0", &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("file:d0: cannot read"), "{error}");
    volume.copy("a1", &mut Vec::new()).unwrap();
    // Nor is it sealed.
    let sealed = volume.seal(&mut |_, _| {});
    assert!(matches!(sealed, Err(Error::Member { .. })));
}

#[test]
fn without_a_table_the_place_is_told_all_the_same() {
    let (disks, _) = flashed(Layout::Stripe);
    disks[1].spoil((2 + 35) * BYTES_OF_UNIT);
    disks[0].spoil((2 + 2) * BYTES_OF_UNIT);
    let told = told(&disks).join("\n");
    for words in [
        "the table of checksums, at byte 2424832 of file:d1, cannot be read",
        "array a0, bytes 262144 to 327679, at byte 262144 of file:d0, cannot be read",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

/// A member that is gone is not asked for each of its units.
#[test]
fn verify_ends_with_a_member_that_fails_as_a_whole() {
    let (disks, _) = flashed(Layout::Replicate);
    let mut volume = open(&disks).unwrap();
    (2..UNITS).for_each(|unit| disks[1].spoil(unit * BYTES_OF_UNIT));
    let error = volume.verify(&mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("file:d1: cannot read"), "{error}");
}

#[test]
fn replicas_that_cannot_be_read_are_not_sealed() {
    let (disks, _) = flashed(Layout::Replicate);
    disks[1].spoil((2 + 5) * BYTES_OF_UNIT);
    let sealed = open(&disks).unwrap().seal(&mut |_, _| {});
    let error = sealed.unwrap_err().to_string();
    assert!(error.contains("file:d1: cannot read"), "{error}");
}

/// What cannot be read may be somebody's, who came after the interruption.
#[test]
fn an_interrupted_flash_does_not_go_over_what_cannot_be_read() {
    let content = Content::random(3, &[9 * BYTES_OF_UNIT]);
    let disks = disks(1, 20);
    disks[0].power.set(8);
    assert!(content.flash(&disks, Layout::Stripe, UNIT).is_err());
    disks[0].power.set(u64::MAX);
    disks[0].cut(&mut Random::new(1));
    disks[0].spoil(0);
    let refused = content.flash(&disks, Layout::Stripe, UNIT).map(|_| ());
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("first superblock cannot be read"),
        "{refused}"
    );
    let mut volume = content
        .flash_over(&disks, Layout::Stripe, UNIT, |_| true)
        .unwrap();
    assert_eq!(read(&mut volume), content);
}
