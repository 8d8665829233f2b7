//! Injected faults: each does what it says, to the commands it is meant for, and is counted.

use crate::rig::{
    CC, CSTS, Completion, PAGE, Pair, Rig, SERVERS, Server, admin_sqe, configuration, failed,
    io_sqe,
};
use nvme_model::{
    Commands, Configuration, ConfigurationError, Controller, Fault, Faults, Media, Rule, When,
};
use nvme_wire::Status;

fn faulty(rules: Vec<Rule>) -> Configuration {
    Configuration {
        faults: Faults { seed: 1, rules },
        ..configuration()
    }
}

fn nth(fault: Fault, place: u32) -> Rule {
    Rule::new(fault, When::Command(place))
}

/// A rig with a queue pair and a page of data.
struct Bench {
    rig: Rig,
    pair: Pair,
    page: u64,
}

impl Bench {
    fn new(rules: Vec<Rule>, server: Server, entries: u32) -> Self {
        let mut rig = Rig::up(faulty(rules), server);
        let pair = rig.create_pair(1, entries);
        let page = rig.memory.pages(PAGE);
        Self { rig, pair, page }
    }

    /// Submits reads of one LBA with these CIDs, and lets the controller work.
    fn reads(&mut self, cids: std::ops::Range<u16>) {
        let sqe = io_sqe(2, 1, 0, 1, self.page, 0);
        for cid in cids {
            self.pair.push(&self.rig, cid, sqe);
        }
        self.pair.ring(&self.rig);
        self.steps();
    }

    fn steps(&mut self) {
        (0..12).for_each(|_| self.rig.step());
    }

    /// CID and status of what has come.
    fn reap(&mut self) -> Vec<(u16, u16)> {
        let mut seen = Vec::new();
        while let Some(Completion { cid, status, .. }) = self.pair.reap(&self.rig) {
            seen.push((cid, status));
            self.rig.step();
        }
        seen
    }

    fn cids(&mut self) -> Vec<u16> {
        self.reap().into_iter().map(|(cid, _)| cid).collect()
    }

    fn hits(&self) -> Vec<u64> {
        self.rig.controller.faults()
    }
}

#[test]
fn every_class_of_status_can_be_had() {
    let statuses = [
        (Status::INTERNAL_ERROR, 0x006),
        (Status::NAMESPACE_NOT_READY.with_dnr(), failed(0, 0x82)),
        (Status::new(1, 0x81), 0x181),
        (Status::WRITE_TO_READ_ONLY_RANGE.with_dnr(), failed(1, 0x82)),
        (Status::UNRECOVERED_READ_ERROR, 0x281),
        (Status::WRITE_FAULT.with_dnr(), failed(2, 0x80)),
        (Status::INTERNAL_PATH_ERROR, 0x300),
        (Status::HOST_PATHING_ERROR.with_dnr(), failed(3, 0x70)),
        (Status::new(7, 0xff), 0x7ff),
    ];
    for (server, (status, bits)) in SERVERS.into_iter().flat_map(|s| statuses.map(|c| (s, c))) {
        let mut bench = Bench::new(vec![nth(Fault::Status(status), 2)], server, 8);
        bench.rig.memory.fill(bench.page, PAGE, 0x77);
        bench.reads(1..2);
        assert_eq!(bench.rig.memory.byte(bench.page), 0, "a read of zeros");
        bench.rig.memory.fill(bench.page, PAGE, 0x77);
        bench.reads(2..3);
        assert_eq!(bench.rig.memory.byte(bench.page), 0x77, "nothing is moved");
        bench.reads(3..4);
        assert_eq!(bench.reap(), [(1, 0), (2, bits), (3, 0)], "{server:?}");
        assert_eq!(bench.hits(), [1]);
        let counters = bench.rig.controller.counters()[0];
        assert_eq!((counters.reads, counters.errors), (2, 1));
    }
}

#[test]
fn a_dropped_completion_never_comes() {
    for server in SERVERS {
        let mut bench = Bench::new(vec![nth(Fault::Drop, 2)], server, 8);
        bench.reads(1..4);
        assert_eq!(bench.cids(), [1, 3], "{server:?}");
        bench.rig.now += 1 << 40;
        // The queue goes on, for laps.
        for lap in 1..5 {
            bench.reads(10 * lap..10 * lap + 6);
            assert_eq!(bench.cids(), (10 * lap..10 * lap + 6).collect::<Vec<_>>());
        }
        assert_eq!(bench.hits(), [1]);
        assert_eq!(bench.rig.controller.counters()[0].reads, 27, "carried out");
    }
}

#[test]
fn a_delayed_completion_comes_when_it_is_due() {
    for server in SERVERS {
        let delay = 1_000_000_000;
        let mut bench = Bench::new(vec![nth(Fault::Delay(delay), 1)], server, 64);
        bench.reads(1..60);
        assert_eq!(bench.cids(), (2..60).collect::<Vec<_>>(), "{server:?}");
        bench.rig.now += delay - 1;
        bench.steps();
        assert_eq!(bench.cids(), [], "{server:?}: a nanosecond early");
        bench.rig.now += 1;
        bench.steps();
        assert_eq!(bench.reap(), [(1, 0)], "{server:?}");
        assert_eq!(bench.hits(), [1]);
    }
}

#[test]
fn a_late_command_moves_nothing_until_it_is_due() {
    let late = 1_000_000_000;
    for server in SERVERS {
        let mut bench = Bench::new(
            vec![Rule::new(Fault::Late(late), When::First(2))],
            server,
            8,
        );
        let (page, other) = (bench.page, bench.rig.memory.pages(PAGE));
        bench.rig.memory.fill(page, PAGE, 0x66);
        bench.rig.memory.fill(other, PAGE, 0x77);
        let (write, read) = (io_sqe(1, 1, 3, 1, page, 0), io_sqe(2, 1, 9, 2, other, 0));
        bench.pair.push(&bench.rig, 1, write);
        bench.pair.push(&bench.rig, 2, read);
        bench.pair.ring(&bench.rig);
        bench.steps();
        // The ring's entries are others' by now.
        bench.reads(3..7);
        assert_eq!(bench.cids(), [3, 4, 5, 6], "{server:?}");
        bench.rig.memory.fill(page, PAGE, 0x67);
        bench.rig.now += late - 1;
        bench.steps();
        assert_eq!(bench.cids(), [], "{server:?}: a nanosecond early");
        assert_eq!(bench.rig.memory.byte(other), 0x77, "{server:?}");
        assert_eq!(bench.rig.controller.counters()[0].reads, 4, "{server:?}");
        bench.rig.now += 1;
        bench.steps();
        assert_eq!(bench.reap(), [(1, 0), (2, 0)], "{server:?}");
        assert_eq!(bench.rig.memory.bytes(other, 1025), {
            let mut expected = vec![0; 1024];
            expected.push(0x77);
            expected
        });
        let counters = bench.rig.controller.counters()[0];
        assert_eq!((counters.reads, counters.writes), (5, 1), "{server:?}");
        let read = io_sqe(2, 1, 3, 1, page, 0);
        assert_eq!(bench.pair.run(&mut bench.rig, read), 0);
        assert_eq!(
            bench.rig.memory.byte(page),
            0x67,
            "{server:?}: what the buffer held when it was due"
        );
        assert_eq!(bench.hits(), [2]);
    }
}

#[test]
fn a_late_command_ends_with_its_queue() {
    let late = 1_000_000_000;
    let rule = Rule::new(Fault::Late(late), When::First(1));
    let mut bench = Bench::new(vec![rule], Server::Thread, 8);
    bench.rig.memory.fill(bench.page, PAGE, 0x77);
    bench.reads(1..2);
    bench.rig.controller.write32(CC, 0);
    bench.rig.enable();
    bench.pair = bench.rig.create_pair(1, 8);
    bench.rig.now += late;
    bench.steps();
    assert_eq!(bench.cids(), []);
    assert_eq!(bench.rig.memory.byte(bench.page), 0x77);
}

#[test]
fn a_late_flush_is_durable_when_it_is_due() {
    let rule = Rule {
        commands: Commands::Flushes,
        ..Rule::new(Fault::Late(1_000_000), When::Always)
    };
    for waits in [0, 1_000_000] {
        let mut rig = Rig::up(
            Configuration {
                volatile_write_cache: true,
                ..faulty(vec![rule.clone()])
            },
            Server::Thread,
        );
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        rig.memory.fill(page, 512, 0x66);
        assert_eq!(pair.run(&mut rig, io_sqe(1, 1, 3, 1, page, 0)), 0);
        pair.push(&rig, 9, admin_sqe(0, 1, 0, 0, 0));
        pair.ring(&rig);
        (0..4).for_each(|_| rig.step());
        rig.now += waits;
        (0..4).for_each(|_| rig.step());
        let found = pair.reap(&rig).map(|done| (done.cid, done.status));
        assert_eq!(found, (waits != 0).then_some((9, 0)));
        rig.controller.power_cut(None);
        rig.controller.power_on();
        rig.enable();
        let mut pair = rig.create_pair(1, 8);
        assert_eq!(pair.run(&mut rig, io_sqe(2, 1, 3, 1, page, 0)), 0);
        assert_eq!(rig.memory.byte(page) == 0x66, waits != 0);
    }
}

#[test]
fn a_reordered_completion_is_overtaken() {
    for server in SERVERS {
        let mut bench = Bench::new(vec![nth(Fault::Reorder, 2)], server, 8);
        bench.reads(1..5);
        bench.rig.now += Fault::REORDER_NS;
        bench.steps();
        assert_eq!(bench.cids(), [1, 3, 4, 2], "{server:?}");
        assert_eq!(bench.hits(), [1]);
    }
}

#[test]
fn a_duplicate_comes_twice_and_waits_for_room() {
    // With two entries the second can only come when the first has been taken.
    for (server, entries) in SERVERS.into_iter().flat_map(|s| [2, 8].map(|e| (s, e))) {
        let mut bench = Bench::new(vec![nth(Fault::Duplicate, 2)], server, entries);
        let mut seen = Vec::new();
        for cid in 1..4 {
            bench.reads(cid..cid + 1);
            seen.extend(bench.cids());
        }
        assert_eq!(seen, [1, 2, 2, 3], "{server:?} {entries}");
        assert_eq!(bench.hits(), [1]);
    }
}

#[test]
fn an_unknown_cid_comes_before_the_right_one() {
    for server in SERVERS {
        let mut bench = Bench::new(vec![nth(Fault::UnknownCid, 2)], server, 8);
        bench.reads(1..4);
        let mut seen = bench.cids();
        // The right one waits for its next look, so others may come between.
        let right = seen.iter().position(|&cid| cid == 2).unwrap();
        assert!(seen.iter().position(|&cid| cid == 0xffff).unwrap() < right);
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 0xffff], "{server:?}");
        assert_eq!(bench.hits(), [1]);
    }
}

#[test]
fn a_stale_cid_is_that_of_a_lap_ago() {
    for server in SERVERS {
        let stale = Rule::new(Fault::StaleCid, When::Always);
        let mut bench = Bench::new(vec![stale], server, 4);
        let mut seen = Vec::new();
        for cid in 1..7 {
            bench.reads(cid..cid + 1);
            seen.extend(bench.cids());
        }
        assert_eq!(seen, [1, 2, 3, 4, 1, 5, 2, 6], "{server:?}");
        assert_eq!(bench.hits(), [2], "not in the first lap");
    }
}

#[test]
fn a_wrong_phase_hides_the_completion_and_all_after_it() {
    for server in SERVERS {
        let mut bench = Bench::new(vec![nth(Fault::WrongPhase, 2)], server, 8);
        bench.reads(1..4);
        assert_eq!(bench.cids(), [1], "{server:?}");
        let entry = |slot: u64| bench.rig.memory.word(bench.pair.cq + 16 * slot + 12);
        assert_eq!([1, 2].map(entry), [2, 3 | 1 << 16], "{server:?}: CID, P");
        bench.rig.now += 1 << 40;
        bench.steps();
        assert_eq!(bench.cids(), [], "{server:?}");
        assert_eq!(bench.hits(), [1]);
    }
}

#[test]
fn a_fatal_error_stops_the_controller_until_it_is_reset() {
    for server in SERVERS {
        let mut bench = Bench::new(vec![nth(Fault::Fatal, 2)], server, 8);
        bench.reads(1..4);

        assert_eq!(
            bench.rig.controller.read32(CSTS),
            0b11,
            "{server:?}: RDY and CFS"
        );
        // A thread has finished the first, a warp had fetched all three.
        let before: &[u16] = if server == Server::Thread { &[1] } else { &[] };
        assert_eq!(bench.cids(), before, "{server:?}");
        bench.rig.push_admin(admin_sqe(10, 0, 0, 7, 0));
        bench.rig.ring_admin();
        bench.steps();
        assert_eq!(bench.rig.reap_admin(), None, "the admin queue stands still");
        assert_eq!(bench.hits(), [1]);
        bench.rig.controller.write32(CC, 0);
        assert_eq!(bench.rig.controller.read32(CSTS), 0);
        bench.rig.enable();
        bench.pair = bench.rig.create_pair(1, 8);
        bench.reads(1..2);
        assert_eq!(bench.cids(), [1], "{server:?}: as new");
    }
}

#[test]
fn a_removed_controller_reads_all_ones() {
    for server in SERVERS {
        let mut bench = Bench::new(vec![nth(Fault::Removal, 1)], server, 8);
        bench.reads(1..3);
        for at in [0, 8, 0x14, CSTS, 0x24, 0x1000] {
            assert_eq!(bench.rig.controller.read32(at), u32::MAX, "{at:#x}");
        }
        bench.rig.controller.write32(CC, 0);
        bench.steps();
        assert_eq!(bench.rig.controller.read32(CSTS), u32::MAX);
        assert_eq!(bench.cids(), []);
        assert_eq!(bench.hits(), [1]);
        bench.rig.controller.power_on();
        bench.rig.enable();
    }
}

#[test]
fn a_failed_write_writes_nothing() {
    for server in SERVERS {
        let rule = Rule {
            commands: Commands::Writes,
            ..Rule::new(Fault::Status(Status::WRITE_FAULT), When::First(1))
        };
        let mut bench = Bench::new(vec![rule], server, 8);
        let page = bench.page;
        let (write, read) = (io_sqe(1, 1, 3, 1, page, 0), io_sqe(2, 1, 3, 1, page, 0));
        for (expected, found) in [(0x280, 0), (0, 0x66)] {
            bench.rig.memory.fill(page, 512, 0x66);
            assert_eq!(bench.pair.run(&mut bench.rig, write), expected);
            assert_eq!(bench.pair.run(&mut bench.rig, read), 0);
            assert_eq!(bench.rig.memory.byte(page), found, "{server:?}");
        }
        assert_eq!(bench.hits(), [1], "{server:?}");
    }
}

#[test]
fn a_failed_flush_makes_nothing_durable() {
    let rule = Rule {
        commands: Commands::Flushes,
        ..Rule::new(Fault::Status(Status::INTERNAL_ERROR), When::First(1))
    };
    let mut rig = Rig::up(
        Configuration {
            volatile_write_cache: true,
            ..faulty(vec![rule])
        },
        Server::Thread,
    );
    for expected in [0, 0x66] {
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        rig.memory.fill(page, 512, 0x66);
        assert_eq!(pair.run(&mut rig, io_sqe(1, 1, 3, 1, page, 0)), 0);
        let status = pair.run(&mut rig, admin_sqe(0, 1, 0, 0, 0));
        assert_eq!(status, if expected == 0 { 0x006 } else { 0 });
        rig.controller.power_cut(None);
        rig.controller.power_on();
        rig.enable();
        let mut pair = rig.create_pair(1, 8);
        assert_eq!(pair.run(&mut rig, io_sqe(2, 1, 3, 1, page, 0)), 0);
        assert_eq!(rig.memory.byte(page), expected);
        rig.controller.write32(CC, 0);
        rig.enable();
    }
}

#[test]
fn rules_keep_to_their_lbas_queues_and_number() {
    let bad = Fault::Status(Status::UNRECOVERED_READ_ERROR);
    for server in SERVERS {
        let rules = vec![
            Rule {
                lbas: Some(10..=11),
                ..Rule::new(bad, When::First(3))
            },
            Rule {
                queue: Some(2),
                ..Rule::new(Fault::Status(Status::INTERNAL_ERROR), When::Always)
            },
        ];
        let mut bench = Bench::new(rules, server, 8);
        let page = bench.page;
        let status = |bench: &mut Bench, lba, blocks| {
            let sqe = io_sqe(2, 1, lba, blocks, page, 0);
            bench.pair.run(&mut bench.rig, sqe)
        };
        for (lba, blocks) in [(9, 1), (12, 8), (2, 8)] {
            assert_eq!(status(&mut bench, lba, blocks), 0, "{server:?} {lba}");
        }
        for (lba, blocks) in [(10, 1), (11, 1), (8, 8)] {
            assert_eq!(status(&mut bench, lba, blocks), 0x281, "{server:?} {lba}");
        }
        assert_eq!(status(&mut bench, 10, 1), 0, "three times, then no more");
        assert_eq!(
            status(&mut bench, 4096, 1),
            failed(0, 0x80),
            "refused anyway"
        );
        let flush = admin_sqe(0, 1, 0, 0, 0);
        assert_eq!(bench.pair.run(&mut bench.rig, flush), 0);
        let mut second = bench.rig.create_pair(2, 8);
        let read = io_sqe(2, 1, 0, 1, page, 0);
        assert_eq!(second.run(&mut bench.rig, read), 0x006);
        assert_eq!(bench.hits(), [3, 1]);
    }
}

/// What a submitter makes of a stream of completions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    failed: u64,
    unknown: u64,
    stale: u64,
    duplicate: u64,
    lost: u64,
}

/// Reads one LBA at a time until `count` have come or are given up.
fn stream(bench: &mut Bench, count: u16) -> Seen {
    let mut seen = Seen::default();
    for cid in 0..count {
        let mut done = false;
        bench.reads(cid..cid + 1);
        bench.rig.now += 10_000_000;
        bench.steps();
        for (found, status) in bench.reap() {
            match found {
                0xffff => seen.unknown += 1,
                _ if found != cid => seen.stale += 1,
                _ if done => seen.duplicate += 1,
                _ => {
                    done = true;
                    seen.failed += (status != 0) as u64;
                }
            }
        }
        seen.lost += !done as u64;
    }
    seen
}

#[test]
fn what_chance_hits_is_what_the_submitter_sees() {
    let faults = [
        Fault::Status(Status::INTERNAL_ERROR),
        Fault::UnknownCid,
        Fault::StaleCid,
        Fault::Duplicate,
        Fault::Drop,
        Fault::Delay(5_000_000),
        Fault::Reorder,
    ];
    let mut all = Vec::new();
    for (server, entries) in SERVERS.into_iter().flat_map(|s| [2, 16].map(|e| (s, e))) {
        let rules = faults.map(|fault| Rule::new(fault, When::OneIn(8)));
        let mut bench = Bench::new(rules.to_vec(), server, entries);
        let seen = stream(&mut bench, 200);
        let hits = bench.hits();
        let told = Seen {
            failed: hits[0],
            unknown: hits[1],
            stale: hits[2],
            duplicate: hits[3],
            lost: hits[4],
        };
        assert_eq!(seen, told, "{server:?} {entries}");
        assert!(hits.iter().all(|&hits| (3..60).contains(&hits)), "{hits:?}");
        all.push(hits);
    }
    assert_eq!(all[0], all[2], "a seed hits the same commands");
    assert_eq!(all[1], all[3], "a seed hits the same commands");
}

#[test]
fn plans_that_cannot_be_followed_are_refused() {
    let error = Fault::Status(Status::INTERNAL_ERROR);
    for rules in [
        vec![nth(Fault::Drop, 1); Faults::MAX_RULES + 1],
        vec![nth(Fault::Status(Status::SUCCESS), 1)],
        vec![nth(error, 0)],
        vec![Rule::new(error, When::First(0))],
        vec![Rule::new(error, When::OneIn(0))],
        vec![nth(Fault::Delay(1 << 62), 1)],
        vec![nth(Fault::Late(1 << 62), 1)],
    ] {
        let media = Media::none();
        let refused = Controller::new(faulty(rules.clone()), media, None, None).err();
        let refused = refused.unwrap_or_else(|| panic!("{rules:?}"));
        assert!(
            matches!(refused, ConfigurationError::Faults(_)),
            "{refused}"
        );
    }
}
