//! Flipped bytes: in a superblock the other one serves, in data `verify` says where.

use proptest::prelude::*;
use warpstore_device::Layout;
use warpstore_volume::{Audit, Damage, Error, Superblock, UNIT};

use crate::disk::Disk;
use crate::fixture::{Content, disks, open, read, written};

fn flashed(layout: Layout, count: usize, stripe: u64) -> (Vec<Disk>, Content) {
    let disks = disks(count, 30);
    let content = Content::random(1, &[5 * UNIT as usize + 3, 100, 0]);
    content.flash(&disks, layout, stripe).unwrap();
    (disks, content)
}

/// What `verify` finds on a sealed volume.
fn audited(disks: &[Disk]) -> Audit {
    let audit = open(disks).unwrap().verify(&mut |_, _| {});
    audit.unwrap().expect("a sealed volume")
}

#[test]
fn one_damaged_superblock_of_each_member_does_no_harm_and_is_told() {
    let (disks, content) = flashed(Layout::Stripe, 2, UNIT);
    disks[0].flip(77);
    disks[1].flip(30 * UNIT as usize - 9);
    let mut volume = open(&disks).unwrap();
    let remarks = volume.remarks().join("\n");
    assert!(remarks.contains("first superblock of file:d0 does not have the checksum"));
    assert!(remarks.contains("last superblock of file:d1 does not have the checksum"));
    assert_eq!(read(&mut volume), content);
    // The next change mends them.
    volume.seal(&mut |_, _| {}).unwrap();
    let mut volume = open(&disks).unwrap();
    assert_eq!(volume.remarks(), [""; 0]);
    assert_eq!(read(&mut volume), content);
}

#[test]
fn verify_names_array_bytes_and_member() {
    let (disks, _) = flashed(Layout::Stripe, 2, 2 * UNIT);
    // Units 0, 1 on d0, 2, 3 on d1, 4, 5 on d0: here byte 9 of unit 4.
    disks[0].flip((2 + 2) * UNIT as usize + 9);
    let audit = audited(&disks);
    assert_eq!((audit.count, audit.faults.len()), (1, 1));
    let told = audit.faults[0].to_string();
    assert_eq!(
        told,
        "array a0, bytes 262144 to 327679, at byte 262144 of file:d0"
    );
    // And the array is not handed out as if it were right.
    let error = open(&disks)
        .unwrap()
        .copy("a0", &mut Vec::new())
        .unwrap_err();
    assert!(error.to_string().contains("does not have the checksum"));
    open(&disks).unwrap().copy("a1", &mut Vec::new()).unwrap();
}

/// Never more than was announced, and all of it in the end.
#[test]
fn what_is_read_grows_up_to_what_was_announced() {
    for (layout, count) in [(Layout::Stripe, 2), (Layout::Replicate, 3)] {
        let (disks, _) = flashed(layout, count, UNIT);
        let mut volume = open(&disks).unwrap();
        let announced = volume.description().verified_bytes();
        let mut told = vec![0];
        volume.verify(&mut |_, bytes| told.push(bytes)).unwrap();
        assert!(told.is_sorted(), "{told:?}");
        assert_eq!(told.last(), Some(&announced));
        told = vec![0];
        volume.seal(&mut |_, bytes| told.push(bytes)).unwrap();
        assert!(told.is_sorted(), "{told:?}");
        assert_eq!(told.last(), Some(&announced));
    }
}

#[test]
fn of_replicas_the_wrong_one_is_named() {
    let (disks, content) = flashed(Layout::Replicate, 3, UNIT);
    for disk in &disks {
        assert!(disk.platter.borrow().durable[2 * UNIT as usize..].starts_with(&content.0[0].1));
    }
    disks[2].flip(2 * UNIT as usize);
    let audit = audited(&disks);
    assert_eq!(audit.faults.len(), 1);
    assert_eq!(audit.faults[0].member, "file:d2");
    // The table of checksums of another one, behind seven units of arrays.
    disks[0].flip((2 + 7) * UNIT as usize + 2);
    let audit = audited(&disks);
    let told: Vec<String> = audit.faults.iter().map(ToString::to_string).collect();
    assert_eq!(audit.count, 2, "{told:?}");
    assert!(told.contains(&"the table of checksums, at byte 589824 of file:d0".to_owned()));
}

#[test]
fn replicas_that_differ_are_not_sealed() {
    for damaged in [0, 1, 2] {
        let (disks, content) = flashed(Layout::Replicate, 3, UNIT);
        disks[damaged].flip((2 + 3) * UNIT as usize + 7);
        let before = written(&disks);
        let mut volume = open(&disks).unwrap();
        let error = volume.seal(&mut |_, _| {}).unwrap_err().to_string();
        let of = damaged.max(1);
        let place = format!("array a0, bytes 196608 to 262143, at byte 327680 of file:d{of}");
        assert!(error.contains(&place), "{error}");
        assert_eq!(written(&disks), before);
        // So `verify` still knows which one is wrong.
        let audit = volume.verify(&mut |_, _| {}).unwrap().unwrap();
        assert_eq!(audit.count, 1);
        assert_eq!(audit.faults[0].member, format!("file:d{damaged}"));
        assert_eq!(crate::fixture::content(&mut volume), content);
    }
}

#[test]
fn an_array_is_copied_from_replicas_that_are_right() {
    let (disks, content) = flashed(Layout::Replicate, 2, UNIT);
    // Of each replica another array, and the first one's table.
    disks[0].flip(2 * UNIT as usize);
    disks[1].flip((2 + 6) * UNIT as usize);
    disks[0].flip((2 + 7) * UNIT as usize);
    assert_eq!(crate::fixture::content(&mut open(&disks).unwrap()), content);
    // The same unit of both.
    disks[1].flip(2 * UNIT as usize + 1);
    let copied = open(&disks).unwrap().copy("a0", &mut Vec::new());
    assert!(matches!(copied, Err(Error::Checksum { .. })));
}

#[test]
fn of_each_unit_the_replica_that_is_right_is_taken() {
    let (disks, content) = flashed(Layout::Replicate, 2, UNIT);
    // Different units of one chunk.
    disks[0].flip(2 * UNIT as usize);
    disks[1].flip((2 + 3) * UNIT as usize + 5);
    assert_eq!(crate::fixture::content(&mut open(&disks).unwrap()), content);
}

#[test]
fn without_a_table_the_replica_that_is_right_as_a_whole_is_taken() {
    let (disks, content) = flashed(Layout::Replicate, 2, UNIT);
    for disk in &disks {
        disk.flip((2 + 7) * UNIT as usize);
    }
    // Of each array another one.
    disks[0].flip(2 * UNIT as usize);
    disks[1].flip((2 + 6) * UNIT as usize);
    assert_eq!(crate::fixture::content(&mut open(&disks).unwrap()), content);
    disks[1].flip(2 * UNIT as usize + 1);
    let copied = open(&disks).unwrap().copy("a0", &mut Vec::new());
    assert!(matches!(copied, Err(Error::Checksum { .. })));
}

#[test]
fn without_the_table_the_arrays_own_checksums_serve() {
    let (disks, _) = flashed(Layout::Stripe, 1, UNIT);
    disks[0].flip((2 + 7) * UNIT as usize);
    disks[0].flip((2 + 6) * UNIT as usize + 99);
    let audit = audited(&disks);
    let told: Vec<String> = audit.faults.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("the table of checksums"));
    assert!(told[1].starts_with("array a1, "));
}

#[test]
fn an_unsealed_volume_has_nothing_to_compare_with() {
    let (disks, content) = flashed(Layout::Stripe, 2, UNIT);
    let mut volume = open(&disks).unwrap();
    volume.unseal().unwrap();
    assert_eq!(volume.verify(&mut |_, _| {}).unwrap(), None);
    assert_eq!(crate::fixture::content(&mut open(&disks).unwrap()), content);
}

fn superblock() -> Vec<u8> {
    let (disks, _) = flashed(Layout::Stripe, 2, UNIT);
    disks[0].platter.borrow().durable[..UNIT as usize].to_vec()
}

/// Gives a superblock the checksum that it should have.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[20..24].fill(0);
    let sum = crc32c::crc32c(&bytes);
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn names_that_no_flash_gives_are_refused() {
    for name in ["\x1b[31mred", "two\nlines", "a b", "a,b", "\u{9b}31m"] {
        let mut bytes = superblock();
        bytes[128..128 + name.len()].copy_from_slice(name.as_bytes());
        let refused = Superblock::decode(&with_checksum(bytes));
        assert_eq!(refused, Err(Damage::Value("the name of an array")));
    }
}

#[test]
fn a_generation_that_none_can_follow_is_refused() {
    let (disks, content) = flashed(Layout::Stripe, 1, UNIT);
    let superblock = |generation: u64| {
        let mut bytes = disks[0].platter.borrow().durable[..UNIT as usize].to_vec();
        bytes[40..48].copy_from_slice(&generation.to_le_bytes());
        with_checksum(bytes)
    };
    let beyond = Superblock::decode(&superblock(u64::MAX));
    assert_eq!(beyond, Err(Damage::Value("the generation")));
    let last = superblock(u64::MAX - 1);
    for slot in [0, 29 * UNIT as usize] {
        disks[0].platter.borrow_mut().durable[slot..][..UNIT as usize].copy_from_slice(&last);
    }
    let before = disks[0].platter.borrow().written;
    let mut volume = open(&disks).unwrap();
    assert_eq!(read(&mut volume), content);
    let sealed = volume.seal(&mut |_, _| {});
    assert!(matches!(sealed, Err(Error::LastGeneration { .. })));
    let flashed = content.flash_over(&disks, Layout::Stripe, UNIT, |_| true);
    assert!(matches!(flashed, Err(Error::LastGeneration { .. })));
    assert_eq!(disks[0].platter.borrow().written, before);
}

proptest! {
    /// Any byte of a sealed volume: found in data, told in superblocks, and never believed.
    #[test]
    fn any_flipped_byte_is_noticed(disk in 0..2usize, at in 0..30 * UNIT as usize) {
        let (disks, content) = flashed(Layout::Stripe, 2, UNIT);
        disks[disk].flip(at);
        let mut volume = open(&disks).unwrap();
        let audit = volume.verify(&mut |_, _| {}).unwrap().unwrap();
        let unit = at as u64 / UNIT;
        // Seven units of arrays and the table, on two members.
        let (in_superblock, in_data) = (unit == 0 || unit == 29, (2..6).contains(&unit));
        prop_assert_eq!(audit.count, u64::from(in_data));
        prop_assert_eq!(volume.remarks().len(), usize::from(in_superblock));
        if !in_data {
            prop_assert_eq!(read(&mut volume), content);
        }
    }

    #[test]
    fn any_bytes_are_a_superblock_or_a_damage(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Superblock::decode(&bytes).is_err());
    }

    /// Values that cannot be, under a checksum that is right.
    #[test]
    fn values_are_checked_behind_the_checksum(at in 24..640usize, byte: u8) {
        let mut bytes = superblock();
        bytes[at] = byte;
        match Superblock::decode(&with_checksum(bytes)) {
            // What is not used must be zeros in a superblock of ours, and may be anything in another.
            Ok(superblock) => {
                let again = Superblock::decode(&superblock.encode());
                prop_assert_eq!(again, Ok(superblock));
            }
            Err(damage) => prop_assert!(matches!(damage, Damage::Value(_)), "{damage}"),
        }
    }
}
