//! Cells, pairs and bytes on the host.
#![allow(unsafe_code, reason = "cells are raw addresses")]

use warpstore_simt::{
    Cell, Cells, Device, Native, NativeBytes, NativeCells, Order, Platform, System,
};

/// Aligned as the handles ask.
#[repr(align(16))]
struct Words([u64; 4]);

fn words(words: &mut Words) -> NativeCells<u64, Device> {
    // SAFETY: the test holds the words for as long as the handle, on one thread.
    unsafe { NativeCells::new(words.0.as_mut_ptr(), 4) }
}

fn bytes(words: &mut Words) -> NativeBytes<System> {
    // SAFETY: as in words; 32 bytes are more than any access.
    unsafe { NativeBytes::new(words.0.as_mut_ptr().cast(), 32) }
}

#[test]
fn every_operation_gives_the_old_value() {
    let mut memory = Words([5, u64::MAX, 0, 0]);
    let cells = words(&mut memory);
    assert_eq!((cells.len(), cells.is_empty()), (4, false));
    assert_eq!(cells.at(1).fetch_add(2, Order::AcqRel), u64::MAX);
    assert_eq!(cells.at(1).load(Order::Acquire), 1, "additions wrap");
    assert_eq!(cells.at(1).fetch_or(6, Order::Relaxed), 1);
    assert_eq!(cells.at(1).fetch_and(3, Order::Release), 7);
    assert_eq!(cells.at(1).compare_exchange(3, 9, Order::AcqRel), Ok(3));
    assert_eq!(cells.at(1).compare_exchange(3, 10, Order::Acquire), Err(9));
    cells.at(0).store(8, Order::Release);
    Native::fence::<System>(Order::AcqRel);
    assert_eq!(memory.0, [8, 9, 0, 0]);
}

#[test]
fn words_of_32_bits_wrap_at_32() {
    let mut memory = [u32::MAX, 7];
    // SAFETY: as in words.
    let cells = unsafe { NativeCells::<u32, System>::new(memory.as_mut_ptr(), 2) };
    assert_eq!(cells.at(0).fetch_add(1, Order::Relaxed), u32::MAX);
    Native::ring(cells.at(1), 8);
    assert_eq!(memory, [0, 8]);
}

#[test]
fn pairs_and_bytes_are_little_endian_and_in_order() {
    let mut memory = Words([0; 4]);
    Native::store_pair(
        words(&mut memory),
        2,
        [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09],
    );
    assert_eq!(
        Native::load_pair(words(&mut memory), 2)[1],
        0x100f_0e0d_0c0b_0a09
    );
    let bytes = bytes(&mut memory);
    assert_eq!((bytes.len(), bytes.is_empty()), (32, false));
    assert_eq!(bytes.load_u8(16), 1);
    assert_eq!(bytes.load_u8(31), 16);
    assert_eq!(bytes.load_u16(18), 0x0403);
    assert_eq!(bytes.load_u32(28), 0x100f_0e0d);
    assert_eq!(bytes.load_u64(16), 0x0807_0605_0403_0201);
    assert_eq!(
        bytes.load_u128(16),
        [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09]
    );
}

/// Whatever an index or offset is, the access stays inside: debug builds say so, others clamp.
#[test]
fn no_index_leads_outside() {
    let mut memory = Words([1, 2, 3, 4]);
    let cells = words(&mut memory);
    let bytes = bytes(&mut memory);
    type Access<'a> = (&'a str, Box<dyn Fn() -> u64 + 'a>);
    let accesses: [Access; 6] = [
        ("word 4", Box::new(|| cells.at(4).load(Order::Relaxed))),
        (
            "word MAX",
            Box::new(|| cells.at(u64::MAX).load(Order::Relaxed)),
        ),
        ("pair 4", Box::new(|| Native::load_pair(cells, 4)[0])),
        ("byte 32", Box::new(|| bytes.load_u8(32).into())),
        ("8 bytes at 25", Box::new(|| bytes.load_u64(25))),
        (
            "16 bytes at MAX - 15",
            Box::new(|| bytes.load_u128(u64::MAX - 15)[0]),
        ),
    ];
    for (what, access) in accesses {
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(access));
        if cfg!(debug_assertions) {
            assert!(read.is_err(), "{what}");
        } else {
            assert_eq!(read.ok(), Some(1), "{what}");
        }
    }
}

#[test]
fn time_goes_on() {
    let before = Native::now_ns();
    while Native::now_ns() == before {
        Native::pause(0);
    }
    assert!(Native::now_ns() > before);
}
