//! Members that do not make a volume, and flashes that would lose something.

use warpstore_device::Layout;
use warpstore_volume::{
    ArrayShape, ElementType, Error, MAX_ARRAYS, Members, NewVolume, Plan, UNIT,
};

use crate::disk::{Disk, members};
use crate::fixture::{Content, copies, disks, open, power, read, written};

fn refusal(disks: &[Disk]) -> String {
    match open(disks) {
        Ok(_) => panic!("it opens"),
        Err(error) => error.to_string(),
    }
}

fn holds(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "no {word:?} in {message:?}");
    }
}

fn flashed(seed: u64, count: usize) -> Vec<Disk> {
    let disks = disks(count, 20);
    let content = Content::random(seed, &[5 * UNIT as usize]);
    content.flash(&disks, Layout::Stripe, UNIT).unwrap();
    disks
}

#[test]
fn members_come_in_any_order() {
    let disks = disks(3, 20);
    let content = Content::random(1, &[7 * UNIT as usize + 1, 20]);
    content.flash(&disks, Layout::Stripe, UNIT).unwrap();
    for order in [[0, 1, 2], [2, 0, 1], [1, 0, 2], [2, 1, 0]] {
        let permuted: Vec<Disk> = order
            .iter()
            .map(|&index: &usize| disks[index].clone())
            .collect();
        let mut volume = open(&permuted).unwrap();
        assert_eq!(volume.member_names(), ["file:d0", "file:d1", "file:d2"]);
        assert_eq!(read(&mut volume), content);
    }
}

#[test]
fn a_missing_member_is_named() {
    let disks = flashed(1, 3);
    holds(
        &refusal(&disks[..1]),
        &["has 3 members, and 1 were given", "member 1 and member 2"],
    );
    holds(
        &refusal(&[disks[0].clone(), disks[2].clone()]),
        &["2 were given: member 1 of it"],
    );
}

#[test]
fn a_member_twice_or_of_another_volume_is_refused() {
    let (mut ours, theirs) = (flashed(1, 2), flashed(2, 2));
    ours[1] = ours[0].clone();
    holds(&refusal(&ours), &["file:d0", "are both member 0"]);
    ours[1] = theirs[1].clone();
    holds(&refusal(&ours), &["file:d1 belongs to volume", "file:d0"]);
}

#[test]
fn a_stale_member_is_refused_with_the_generations() {
    let disks = flashed(1, 2);
    let before = copies(&disks, &power());
    let content = Content::random(9, &[UNIT as usize]);
    content.flash(&disks, Layout::Stripe, UNIT).unwrap();
    let message = refusal(&[disks[0].clone(), before[1].clone()]);
    holds(
        &message,
        &["file:d1 is stale: it holds generation 1", "file:d0 holds 2"],
    );
    let mut volume = open(&disks).unwrap();
    volume.unseal().unwrap();
    let message = refusal(&[before[0].clone(), disks[1].clone()]);
    holds(
        &message,
        &["file:d0 is stale", "generation 1", "file:d1 holds 3"],
    );
}

#[test]
fn what_holds_no_volume_says_what_it_holds() {
    let disks = disks(1, 20);
    holds(
        &refusal(&disks),
        &["file:d0 is no member of a volume: it is empty"],
    );
    disks[0].flip(3);
    holds(&refusal(&disks), &["holds other data"]);
    let flashed = flashed(1, 1);
    flashed[0].flip(200);
    flashed[0].flip(19 * UNIT as usize + 30);
    holds(
        &refusal(&flashed),
        &["damaged", "first superblock does not have the checksum"],
    );
}

#[test]
fn a_member_of_another_size_is_refused() {
    let disks = flashed(1, 1);
    let grown = disks[0].clone();
    grown
        .platter
        .borrow_mut()
        .durable
        .resize(25 * UNIT as usize, 0);
    holds(
        &refusal(&[grown]),
        &["had 1310720 bytes", "has 1638400 now"],
    );
}

#[test]
fn what_is_there_is_lost_only_if_somebody_says_so() {
    let content = Content::random(3, &[UNIT as usize]);
    let flash = |disks: &[Disk], may: &str| {
        let done = content.flash_over(disks, Layout::Stripe, UNIT, |name| name == may);
        done.map(|_| ()).map_err(|error| error.to_string())
    };
    // A file system's signature at either end.
    for byte in [1080, 20 * UNIT as usize - 4096] {
        let disks = disks(2, 20);
        disks[1].flip(byte);
        let message = flash(&disks, "file:d0").unwrap_err();
        holds(
            &message,
            &["file:d1 holds other data", "--yes-destroy file:d1"],
        );
        assert_eq!(disks[1].platter.borrow().written, 0);
        flash(&disks, "file:d1").unwrap();
    }
    // A member of a volume whose other member is elsewhere.
    let others = flashed(4, 2);
    let message = flash(&others[..1], "").unwrap_err();
    holds(
        &message,
        &["file:d0 holds a member of volume", "--yes-destroy file:d0"],
    );
    assert!(open(&others).is_ok());
    // An older volume of exactly these members may go without asking, once the new one is there.
    flash(&others, "").unwrap();
}

#[test]
fn what_came_after_an_interrupted_flash_is_not_ours() {
    let content = Content::random(3, &[9 * UNIT as usize]);
    let disks = disks(1, 20);
    disks[0].power.set(8);
    assert!(content.flash(&disks, Layout::Stripe, UNIT).is_err());
    disks[0].power.set(u64::MAX);
    disks[0].cut(&mut crate::disk::Random::new(1));
    let message = refusal(&disks);
    holds(
        &message,
        &["holds an interrupted flash", "the same flash goes on"],
    );
    disks[0].flip(1080);
    let refused = content
        .flash(&disks, Layout::Stripe, UNIT)
        .map(|_| ())
        .unwrap_err();
    holds(&refused.to_string(), &["holds other data"]);
}

#[test]
fn members_that_are_too_small_are_told_with_the_numbers() {
    let content = Content::random(3, &[40 * UNIT as usize]);
    for (layout, needed) in [(Layout::Stripe, 24), (Layout::Replicate, 44)] {
        let error = content
            .flash(&disks(2, 20), layout, UNIT)
            .map(|_| ())
            .unwrap_err();
        let needed = (needed * UNIT).to_string();
        holds(&error.to_string(), &["file:d0 has 1310720 bytes", &needed]);
        assert_eq!(
            content
                .volume(layout, UNIT)
                .member_bytes(2)
                .unwrap()
                .to_string(),
            needed
        );
    }
    assert!(matches!(
        Members::new(Vec::new()),
        Err(Error::NumberOfMembers { given: 0 })
    ));
    let tiny = Box::new(disks(1, 3).remove(0));
    assert!(matches!(
        Members::new(vec![tiny]),
        Err(Error::TooSmall { .. })
    ));
}

#[test]
fn a_dry_run_writes_nothing() {
    let disks = flashed(1, 2);
    let before = written(&disks);
    let new = Content::random(2, &[30]).volume(Layout::Stripe, UNIT);
    let plan = Plan::make(&new, &mut members(&disks), |_| false).unwrap();
    assert!(plan.replaces().is_some() && !plan.wipes());
    assert_eq!(written(&disks), before);
}

#[test]
fn names_and_numbers_that_cannot_be_are_refused() {
    let shape = |name: &str| ArrayShape {
        name: name.to_owned(),
        element: ElementType::U64,
        len: 1,
    };
    let refused = |shapes: &[ArrayShape], stripe| {
        let new = NewVolume::new(Layout::Stripe, stripe, shapes);
        new.unwrap_err().to_string()
    };
    for name in ["", "a b", "a=b", "a/b", &"x".repeat(65)] {
        holds(&refused(&[shape(name)], UNIT), &["cannot name an array"]);
    }
    assert!(NewVolume::new(Layout::Stripe, UNIT, &[shape(&"x".repeat(64))]).is_ok());
    holds(
        &refused(&[shape("a"), shape("a")], UNIT),
        &["two arrays are called \"a\""],
    );
    holds(&refused(&[shape("a")], UNIT / 2), &["no multiple of 65536"]);
    holds(&refused(&[], UNIT), &["0 were given"]);
    let many: Vec<_> = (0..=MAX_ARRAYS)
        .map(|index| shape(&index.to_string()))
        .collect();
    holds(&refused(&many, UNIT), &["1 to 511 arrays, and 512"]);
    let huge = ArrayShape {
        len: u64::MAX,
        ..shape("a")
    };
    holds(&refused(&[huge], UNIT), &["too many"]);
}

#[test]
fn a_source_of_another_length_leaves_the_old_volume() {
    let disks = disks(2, 40);
    let old = Content::random(1, &[500]);
    old.flash(&disks, Layout::Stripe, UNIT).unwrap();
    let new = Content::random(2, &[900, 100]);
    for change in [-1, 1] {
        let mut members = members(&disks);
        let plan = Plan::make(&new.volume(Layout::Stripe, UNIT), &mut members, |_| false).unwrap();
        let mut wrong = new.clone();
        wrong.0[1].1.resize((100 + change) as usize, 0);
        let done = plan.write(&mut members, wrong.sources(), UNIT, &mut |_, _| {});
        holds(&done.unwrap_err().to_string(), &["\"a1\"", "100 bytes"]);
        assert_eq!(read(&mut open(&disks).unwrap()), old);
    }
}
