//! The decoder of a volume's superblock, on any bytes: it never panics, and what it decodes encodes to the
//! same bytes, but for those that the format leaves unused.
//!
//! Bytes are taken as they are, and once more as the beginning of a whole superblock with the checksum
//! that they should have: no fuzzer guesses one.
#![no_main]

use std::fmt::Write as _;

use libfuzzer_sys::fuzz_target;
use warpstore_volume::{MAX_ARRAYS, MAX_NAME, Superblock, UNIT};

/// Bytes of the header, and of the entry of an array.
const PART: usize = 128;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(superblock) = Superblock::decode(bytes) {
        check(&superblock, bytes);
    }
    let mut whole = bytes.to_vec();
    whole.resize(UNIT as usize, 0);
    sum(&mut whole);
    match Superblock::decode(&whole) {
        Ok(superblock) => check(&superblock, &whole),
        Err(damage) => {
            let mut text = String::new();
            write!(text, "{damage}").unwrap();
            assert!(!text.contains("checksum that it says"), "it has it");
        }
    }
});

/// Puts the checksum where it belongs.
fn sum(whole: &mut [u8]) {
    whole[20..24].fill(0);
    let sum = crc32c::crc32c(whole);
    whole[20..24].copy_from_slice(&sum.to_le_bytes());
}

fn check(superblock: &Superblock, bytes: &[u8]) {
    let description = &superblock.description;
    let arrays = &description.arrays;
    assert!(arrays.len() <= MAX_ARRAYS && superblock.member < description.members);
    let mut end = 0;
    for array in arrays {
        assert!(array.offset >= end && array.offset.is_multiple_of(UNIT));
        end = array.offset + array.bytes();
        assert_eq!(description.array(&array.name).ok(), Some(array));
    }
    assert!(end <= description.checks_offset);

    let encoded = superblock.encode();
    assert_eq!(encoded, used(bytes, arrays.len()));
    assert_eq!(Superblock::decode(&encoded).as_ref(), Ok(superblock));
}

/// The bytes, with zeros for those that say nothing.
fn used(bytes: &[u8], arrays: usize) -> Vec<u8> {
    let mut used = bytes.to_vec();
    used[112..PART].fill(0);
    let (entries, rest) = used[PART..].split_at_mut(arrays * PART);
    rest.fill(0);
    for entry in entries.chunks_mut(PART) {
        let name = entry.iter().position(|&byte| byte == 0);
        entry[name.unwrap_or(MAX_NAME).min(MAX_NAME)..MAX_NAME].fill(0);
        entry[88..].fill(0);
    }
    sum(&mut used);
    used
}
