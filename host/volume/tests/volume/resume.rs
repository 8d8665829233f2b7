//! A flash that was interrupted goes on where it was, and trusts nothing that it finds.

use warpstore_device::Layout;
use warpstore_volume::{Error, Found, Plan, UNIT};

use crate::disk::{Disk, Random, members};
use crate::fixture::{Content, disks, open, read, written};

/// Writes and flushes until the journal of the first chunk is durable: that of the beginning, the
/// chunk, its flushes and journals, the next chunk and its flushes.
const DURABLE: u64 = 4 + 64 + 2 + 2 + 64 + 2;

/// 130 units, more than two chunks.
fn content(seed: u64) -> Content {
    Content::random(seed, &[130 * UNIT as usize])
}

/// Flashes until the power goes after so many operations; what was not flushed is lost.
fn interrupted(content: &Content, operations: u64) -> Vec<Disk> {
    let disks = disks(2, 300);
    disks[0].power.set(operations);
    assert!(content.flash(&disks, Layout::Stripe, UNIT).is_err());
    disks[0].power.set(u64::MAX);
    disks
        .iter()
        .for_each(|disk| disk.cut(&mut Random::new(operations)));
    disks
}

fn plan(content: &Content, disks: &[Disk]) -> Plan {
    Plan::make(
        &content.volume(Layout::Stripe, UNIT),
        &mut members(disks),
        |_| false,
    )
    .unwrap()
}

#[test]
fn what_is_durable_is_not_written_again() {
    let content = content(1);
    // Two chunks of 64 units are durable, and the journal that tells of the first.
    let disks = interrupted(&content, DURABLE);
    let done = plan(&content, &disks).done();
    assert_eq!(done, 64 * UNIT);
    match open(&disks) {
        Err(Error::NoVolume { found, .. }) => {
            assert!(matches!(found, Found::Interrupted { done, .. } if done == 64 * UNIT));
        }
        _ => panic!("it opens"),
    }
    let before = written(&disks);
    content.flash(&disks, Layout::Stripe, UNIT).unwrap();
    let again = written(&disks) - before;
    assert!((66 * UNIT..76 * UNIT).contains(&again), "{again} bytes");
    assert_eq!(read(&mut open(&disks).unwrap()), content);
}

#[test]
fn other_arrays_begin_anew() {
    let disks = interrupted(&content(1), DURABLE);
    let longer = Content::random(2, &[131 * UNIT as usize]);
    assert_eq!(plan(&longer, &disks).done(), 0);
    longer.flash(&disks, Layout::Stripe, UNIT).unwrap();
    assert_eq!(read(&mut open(&disks).unwrap()), longer);
}

/// The files changed, or the disk did, between the two runs: that is found by reading back, and the
/// run after that writes everything.
#[test]
fn what_is_there_is_not_believed() {
    let disks = interrupted(&content(1), DURABLE);
    let other = content(2);
    assert_eq!(plan(&other, &disks).done(), 64 * UNIT);
    match other.flash(&disks, Layout::Stripe, UNIT) {
        Err(Error::ReadBack { count, .. }) => assert_eq!(count, 64),
        _ => panic!("a mixture was put in force"),
    }
    assert!(open(&disks).is_err());
    other.flash(&disks, Layout::Stripe, UNIT).unwrap();
    assert_eq!(read(&mut open(&disks).unwrap()), other);
}

/// Each member has what belongs to its place, so another order is another flash.
#[test]
fn members_in_another_order_begin_anew() {
    let content = content(1);
    let mut disks = interrupted(&content, DURABLE);
    disks.reverse();
    assert_eq!(plan(&content, &disks).done(), 0);
    content.flash(&disks, Layout::Stripe, UNIT).unwrap();
    assert_eq!(read(&mut open(&disks).unwrap()), content);
}
