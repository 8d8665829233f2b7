//! Completions come when the model's formula says, on a clock that the test turns.

use crate::rig::{PAGE, Pair, Rig, SERVERS, Server, configuration, failed, io_sqe};
use nvme_model::{Configuration, Generation, Link, Media, PROFILES, Profile, Published};

const MIN: u64 = 9_000;

fn profile() -> Profile {
    Profile {
        name: "test",
        product: "test",
        occupation_ns: [1000, 4000, 8000, 5000],
        min_latency_ns: [MIN, 20_000],
        link: None,
        published: Published::NOTHING,
    }
}

fn timed(server: Server) -> (Rig, Pair, u64) {
    let mut rig = Rig::up(
        Configuration {
            profile: profile(),
            ..configuration()
        },
        server,
    );
    let pair = rig.create_pair(1, 64);
    let pages = rig.memory.pages(16 * PAGE);
    (rig, pair, pages)
}

/// Turns the clock to each of `times` (after the start) and returns what completes there.
fn completions(
    rig: &mut Rig,
    pair: &mut Pair,
    times: impl IntoIterator<Item = u64>,
) -> Vec<(u64, u16)> {
    let start = rig.now;
    let mut seen = Vec::new();
    for time in times {
        rig.now = start + time;
        rig.step();
        seen.extend(std::iter::from_fn(|| pair.reap(rig)).map(|done| (time, done.cid)));
    }
    rig.now = start;
    seen
}

/// Lets a queue fetch everything that was rung, at one time.
fn fetch_all(rig: &mut Rig, pair: &Pair) {
    pair.ring(rig);
    (0..64).for_each(|_| rig.step());
}

#[test]
fn one_unit_works_one_command_after_another() {
    for server in SERVERS {
        let (mut rig, mut pair, page) = timed(server);
        (0..5).for_each(|cid| pair.push(&rig, cid, io_sqe(2, 1, 40, 1, page, 0)));
        fetch_all(&mut rig, &pair);
        let times = (1..6).flat_map(|k| [MIN + k * 1000 - 1, MIN + k * 1000]);
        let expected: Vec<_> = (1..6).map(|k| (MIN + k * 1000, k as u16 - 1)).collect();
        assert_eq!(
            completions(&mut rig, &mut pair, times),
            expected,
            "{server:?}"
        );
        // An idle unit does not save up time: the next command starts when it comes.
        rig.now += 1_000_000;
        pair.push(&rig, 9, io_sqe(2, 1, 40, 1, page, 0));
        fetch_all(&mut rig, &pair);
        let times = [MIN + 999, MIN + 1000];
        assert_eq!(
            completions(&mut rig, &mut pair, times),
            [(MIN + 1000, 9)],
            "{server:?}"
        );
    }
}

#[test]
fn size_and_direction_set_the_time() {
    // (opcode, blocks, occupation, minimum)
    let cases = [
        (2, 1, 1000, MIN),
        (2, 2, 1000 + 3000 * 512 / 3584, MIN),
        (2, 4, 1000 + 3000 * 1536 / 3584, MIN),
        (2, 8, 4000, MIN),
        (2, 12, 6000, MIN),
        (2, 16, 8000, MIN),
        (1, 1, 8000, 20_000),
        (1, 8, 5000, 20_000),
        (1, 16, 10_000, 20_000),
    ];
    for (server, (opcode, blocks, occupation, min)) in SERVERS
        .into_iter()
        .flat_map(|server| cases.map(|case| (server, case)))
    {
        let (mut rig, mut pair, page) = timed(server);
        pair.push(&rig, 1, io_sqe(opcode, 1, 0, blocks, page, page + PAGE));
        fetch_all(&mut rig, &pair);
        let due = occupation + min;
        let seen = completions(&mut rig, &mut pair, [due - 2, due, due + 1]);
        assert_eq!(
            seen.len(),
            1,
            "{server:?}: opcode {opcode}, {blocks} blocks: {seen:?}"
        );
        assert!(
            seen[0].0 >= due,
            "{server:?}: opcode {opcode}, {blocks} blocks: too early"
        );
    }
}

#[test]
fn eight_units_work_side_by_side() {
    for server in SERVERS {
        let (mut rig, mut pair, page) = timed(server);
        (0..48).for_each(|cid| pair.push(&rig, cid, io_sqe(2, 1, cid as u64, 1, page, 0)));
        fetch_all(&mut rig, &pair);
        let seen = completions(&mut rig, &mut pair, (1..49).map(|k| MIN + k * 1000));
        assert_eq!(seen.len(), 48);
        let at = |k: u64| seen.iter().filter(|done| done.0 == MIN + k * 1000).count();
        assert_eq!(at(1), 8, "{server:?}: every unit has a first command");
        assert!(
            (1..48).all(|k| at(k) >= at(k + 1)),
            "{server:?}: no unit pauses"
        );
        assert!(at(12) == 0, "{server:?}: LBAs spread over the units");
    }
}

#[test]
fn a_quick_command_overtakes_a_slow_one() {
    for server in SERVERS {
        let (mut rig, mut pair, page) = timed(server);
        pair.push(&rig, 1, io_sqe(1, 1, 0, 16, page, page + PAGE));
        (0..8).for_each(|cid| pair.push(&rig, 10 + cid, io_sqe(2, 1, cid as u64, 1, page, 0)));
        fetch_all(&mut rig, &pair);
        let seen = completions(&mut rig, &mut pair, (1..40).map(|k| k * 1000));
        assert_eq!(seen.len(), 9, "{server:?}");
        let place = seen.iter().position(|done| done.1 == 1).unwrap();
        assert!(
            place >= 5,
            "{server:?}: reads on other units come first: {seen:?}"
        );
        assert_eq!(seen[place].0, 30_000, "{server:?}");
    }
}

#[test]
fn refused_commands_take_no_time() {
    for server in SERVERS {
        let (mut rig, mut pair, page) = timed(server);
        assert_eq!(
            pair.run(&mut rig, io_sqe(2, 9, 0, 1, page, 0)),
            failed(0, 0x0b)
        );
    }
}

#[test]
fn pending_commands_hold_their_completion_slots() {
    for server in SERVERS {
        let configuration = Configuration {
            profile: profile(),
            ..configuration()
        };
        let mut rig = Rig::up(configuration, server);
        let page = rig.memory.pages(PAGE);
        let cq = rig.memory.pages(4 * 16);
        let sq = rig.memory.pages(16 * 64);
        rig.memory.fill(cq, 64, 0);
        assert_eq!(rig.create_cq(1, 4, cq), 0);
        assert_eq!(rig.create_sq(1, 16, 1, sq), 0);
        let mut pair = Pair {
            qid: 1,
            entries: 16,
            sq,
            cq,
            tail: 0,
            head: 0,
            phase: 1,
        };
        (0..11).for_each(|cid| pair.push(&rig, cid, io_sqe(2, 1, cid as u64, 1, page, 0)));
        fetch_all(&mut rig, &pair);
        pair.entries = 4;
        let mut seen = Vec::new();
        while seen.len() < 11 {
            assert_eq!(pair.peek(&rig), None, "{server:?}: nothing is due");
            rig.now += 100_000;
            (0..64).for_each(|_| rig.step());
            let posted: Vec<_> = std::iter::from_fn(|| pair.peek(&rig)).collect();
            assert!((1..4).contains(&posted.len()), "{server:?}: {posted:?}");
            seen.extend(posted.iter().map(|done| done.cid));
            pair.release(&rig);
            (0..64).for_each(|_| rig.step());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..11).collect::<Vec<_>>(), "{server:?}");
    }
}

#[test]
fn drives_of_one_link_share_it() {
    let link = Link::new();
    let profile = Profile {
        occupation_ns: [0, 0, 0, 0],
        min_latency_ns: [1, 1],
        link: Some(Generation::Gen4),
        ..profile()
    };
    let mut last = 0.0;
    for _ in 0..2 {
        let configuration = Configuration {
            profile,
            ..configuration()
        };
        let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
        let mut rig = Rig::with(configuration, Server::Thread, media, Some(link.clone()));
        rig.enable();
        let mut pair = rig.create_pair(1, 64);
        let page = rig.memory.pages(PAGE);
        (0..50).for_each(|cid| pair.push(&rig, cid, io_sqe(2, 1, cid as u64, 8, page, 0)));
        fetch_all(&mut rig, &pair);
        let seen = completions(&mut rig, &mut pair, 1..30_000);
        assert_eq!(seen.len(), 50);
        // Bytes on the wire ÷ raw rate of 16 lanes at 16 GT/s, 128b/130b.
        let wire = 50.0 * 4096.0 * 1.28 / (16.0 * 16e9 / 8.0 * 128.0 / 130.0) * 1e9;
        last += wire;
        let error = seen[49].0 as f64 - last;
        assert!(
            error.abs() < 2.0 * 50.0,
            "{} ns, expected {last}",
            seen[49].0
        );
    }
}

#[test]
fn profiles_have_the_published_rates() {
    // Millions of random reads at 512 bytes and 4 KiB per second.
    let published = [
        ("p5800x", 5.1, 1.5),
        ("pm1735", 1.1, 1.6),
        ("980pro", 0.75, 0.75),
        ("pm1753", 3.86, 3.54),
        ("pm1763", 6.92, 6.8),
        ("gp1", 10.0, 6.8),
        ("future100m", 100.0, 13.7),
    ];
    for (name, at_512, at_4096) in published {
        let profile = Profile::by_name(name).unwrap();
        let rate = |ns: u64| 8.0 / ns as f64 * 1e3;
        for (found, expected) in [
            (rate(profile.occupation_ns[0]), at_512),
            (rate(profile.occupation_ns[1]), at_4096),
        ] {
            assert!(
                (found / expected - 1.0).abs() < 0.01,
                "{name}: {found}, not {expected}"
            );
        }
        assert!(profile.is_timed());
    }
    assert_eq!(PROFILES.len(), published.len() + 1);
    assert!(!Profile::by_name("ideal").unwrap().is_timed());
    assert_eq!(Profile::by_name("p5801x"), None);
}

#[test]
fn a_head_beyond_what_was_posted_takes_no_room_from_what_waits() {
    for server in SERVERS {
        let (mut rig, _, page) = timed(server);
        let mut pair = rig.create_pair(2, 4);
        (0..3).for_each(|cid| pair.push(&rig, cid, io_sqe(2, 1, 40, 1, page, 0)));
        fetch_all(&mut rig, &pair);
        // Three completions wait for three free entries; this would leave none.
        rig.controller.write32(rig.doorbell(2, true), 1);
        rig.step();
        assert_eq!(rig.controller.counters()[1].bad_doorbells, 1, "{server:?}");
        rig.now += 1_000_000;
        (0..3).for_each(|_| rig.step());
        let posted = std::iter::from_fn(|| pair.peek(&rig));
        assert_eq!(posted.map(|done| done.cid).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
