//! [VL-1], [VL-2], [VL-4]: whatever write or flush is the last, the old volume or the new one is there.

use warpstore_device::Layout;
use warpstore_volume::{State, UNIT, Volume};

use crate::disk::{Disk, Random};
use crate::fixture::{Content, content, copies, disks, open, power, read};

const LAYOUTS: [(Layout, usize, u64); 4] = [
    (Layout::Stripe, 1, 1),
    (Layout::Stripe, 2, 1),
    (Layout::Stripe, 3, 2),
    (Layout::Replicate, 2, 1),
];
const SEEDS: u64 = 4;

/// Runs `change` on copies of the disks with power for 0, 1, 2… writes and flushes, until it ends by
/// itself; then the power is cut, and `check` sees the disks.
fn interrupt(
    disks: &[Disk],
    change: impl Fn(&[Disk]) -> bool,
    check: impl Fn(&[Disk], &str, &mut Random),
) {
    for operations in 0.. {
        let mut completed = true;
        for seed in 0..SEEDS {
            let power = power();
            let disks = copies(disks, &power);
            power.set(operations);
            completed = change(&disks);
            power.set(u64::MAX);
            let mut random = Random::new(operations * SEEDS + seed);
            disks.iter().for_each(|disk| disk.cut(&mut random));
            let when = format!("{operations} operations, seed {seed}");
            check(&disks, &when, &mut random);
        }
        if completed {
            assert!(operations > 5, "nothing was interrupted");
            return;
        }
    }
}

#[test]
fn a_volume_written_anew_is_the_old_one_or_the_new_one() {
    for (layout, count, stripe) in LAYOUTS {
        let stripe = stripe * UNIT;
        let old = Content::random(1, &[3 * UNIT as usize + 5, 700]);
        let new = Content::random(2, &[100, 2 * UNIT as usize, 2 * UNIT as usize - 1]);
        let disks = disks(count, 40);
        old.flash(&disks, layout, stripe).unwrap();
        let (mut olds, mut news) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        interrupt(
            &disks,
            |disks| new.flash(disks, layout, stripe).is_ok(),
            |disks, when, _| {
                let found = read(&mut open(disks).expect(when));
                match found == old {
                    true => olds.set(olds.get() + 1),
                    false => {
                        assert!(found == new, "{when}: a mixture");
                        news.set(news.get() + 1);
                    }
                }
                // Interrupted or not, the same flash again ends well.
                let again = new.flash(disks, layout, stripe).expect(when);
                assert_eq!(again.remarks(), [""; 0], "{when}");
                assert!(read(&mut open(disks).unwrap()) == new, "{when}");
            },
        );
        assert!(*olds.get_mut() > 0 && *news.get_mut() > 0);
    }
}

/// [VL-4]: what an interrupted change left is put right before the next one begins.
#[test]
fn a_second_interruption_finds_what_the_first_one_left() {
    let contents = [1, 2, 3].map(|seed| Content::random(seed, &[UNIT as usize, seed as usize]));
    let [first, second, third] = &contents;
    let disks = disks(2, 20);
    first.flash(&disks, Layout::Stripe, UNIT).unwrap();
    interrupt(
        &disks,
        |disks| second.flash(disks, Layout::Stripe, UNIT).is_ok(),
        |disks, when, random| {
            let found = read(&mut open(disks).expect(when));
            assert!([first, second].contains(&&found), "{when}");
            for _ in 0..25 {
                let power = power();
                let disks = copies(disks, &power);
                let operations = random.below(25);
                power.set(operations);
                let _ = third.flash(&disks, Layout::Stripe, UNIT);
                power.set(u64::MAX);
                disks.iter().for_each(|disk| disk.cut(random));
                let again = read(&mut open(&disks).expect(when));
                assert!([&found, third].contains(&&again), "{when}, {operations}");
            }
        },
    );
}

#[test]
fn a_first_volume_is_there_or_is_not() {
    for (layout, count, stripe) in LAYOUTS {
        let stripe = stripe * UNIT;
        let new = Content::random(3, &[2 * UNIT as usize + 1, 8]);
        interrupt(
            &disks(count, 20),
            |disks| new.flash(disks, layout, stripe).is_ok(),
            |disks, when, _| {
                if let Ok(mut volume) = open(disks) {
                    assert!(read(&mut volume) == new, "{when}");
                }
                new.flash(disks, layout, stripe).expect(when);
                assert!(read(&mut open(disks).unwrap()) == new, "{when}");
            },
        );
    }
}

#[test]
fn a_volume_that_must_go_first_is_whole_or_gone() {
    for (layout, count, stripe) in LAYOUTS {
        let stripe = stripe * UNIT;
        let old = Content::random(4, &[6 * UNIT as usize]);
        let new = Content::random(5, &[6 * UNIT as usize + 9]);
        // Room for one, never for two.
        let shares = layout == Layout::Stripe && count > 1;
        let units = if shares { 8 } else { 14 };
        let disks = disks(count, units);
        old.flash(&disks, layout, stripe).unwrap();
        assert!(new.flash(&disks, layout, stripe).is_err());
        interrupt(
            &disks,
            |disks| new.flash_over(disks, layout, stripe, |_| true).is_ok(),
            |disks, when, _| {
                if let Ok(mut volume) = open(disks) {
                    let found = read(&mut volume);
                    assert!(found == old || found == new, "{when}: a mixture");
                }
                new.flash_over(disks, layout, stripe, |_| true).expect(when);
                assert!(read(&mut open(disks).unwrap()) == new, "{when}");
            },
        );
    }
}

/// [VL-3]: once `unseal` has returned, no interruption brings the seal back.
#[test]
fn a_volume_is_unsealed_before_anything_is_written() {
    let old = Content::random(6, &[UNIT as usize, 3]);
    let disks = disks(2, 20);
    old.flash(&disks, Layout::Stripe, UNIT).unwrap();
    let unsealed = |disks: &[Disk]| -> Option<Volume> {
        let mut volume = open(disks).unwrap();
        volume.unseal().is_ok().then_some(volume)
    };
    interrupt(
        &disks,
        |disks| unsealed(disks).is_some(),
        |disks, when, _| {
            let mut volume = open(disks).expect(when);
            assert!(content(&mut volume) == old, "{when}");
        },
    );
    // After the last operation of it, however little of the cache reaches the disk.
    let volume = unsealed(&disks).unwrap();
    assert_eq!(volume.description().state, State::Unsealed);
    for seed in 0..20 {
        let disks = copies(&disks, &power());
        disks
            .iter()
            .for_each(|disk| disk.cut(&mut Random::new(seed)));
        assert_eq!(open(&disks).unwrap().description().state, State::Unsealed);
    }
}

#[test]
fn sealing_again_is_done_or_not() {
    let old = Content::random(7, &[2 * UNIT as usize, 3]);
    let disks = disks(2, 20);
    old.flash(&disks, Layout::Stripe, UNIT)
        .unwrap()
        .unseal()
        .unwrap();
    // What a kernel would write.
    disks[1].flip(2 * UNIT as usize + 77);
    let written = content(&mut open(&disks).unwrap());
    assert!(written != old);
    interrupt(
        &disks,
        |disks| open(disks).unwrap().seal(&mut |_, _| {}).is_ok(),
        |disks, when, _| {
            let mut volume = open(disks).expect(when);
            match volume.description().state {
                State::Sealed => assert!(read(&mut volume) == written, "{when}"),
                State::Unsealed => assert!(content(&mut volume) == written, "{when}"),
            }
        },
    );
}
