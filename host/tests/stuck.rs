//! Writes that never come back: what they touch is lost or told, and nothing else suffers.

mod store;

use std::time::Duration;

use warpstore::device::parts::nvme_wire::Status;
use warpstore::device::prelude::*;
use warpstore::{
    Commands, Configuration, Fault, Faults, Rule, Session, SsdConfig, SsdSource, When,
};

/// Elements of a line.
const PER_LINE: u64 = 128;
const MARK: u32 = 5;

/// Marks the lines `first`, `first + step`, … below `end`, but `skip`.
#[kernel]
fn mark(n: ArrayMut<u32>, first: u64, step: u64, end: u64, skip: u64) -> Result<(), IoError> {
    for i in thread::grid_stride(end) {
        let line = first + i * step;
        if line < end && line != skip {
            n.set(line * PER_LINE, MARK)?;
        }
    }
    Ok(())
}

/// Reads an element of each of these lines; `ended` counts those that were read and those that were
/// not.
#[kernel]
fn read_lines(
    n: Array<u32>,
    first: u64,
    step: u64,
    end: u64,
    ended: Atomics<u64>,
) -> Result<(), IoError> {
    for i in thread::grid_stride(end) {
        let line = first + i * step;
        if line < end {
            let failed = n.get(line * PER_LINE).is_err();
            ended.at(u64::from(failed)).fetch_add(1, Order::Relaxed);
        }
    }
    Ok(())
}

/// The first warp writes `line` whole, `times` times; counts as in `read_lines`, by lanes.
#[kernel]
fn write_whole(n: ArrayMut<u32>, line: u64, times: u64, ended: Atomics<u64>) {
    if thread::index_1d() < 32 {
        let mut done = 0;
        while done < times {
            let failed = n.write_line(line * PER_LINE, |_| Ok(9)).is_err();
            ended.at(u64::from(failed)).fetch_add(1, Order::Relaxed);
            done += 1;
        }
    }
}

fn configuration(rules: Vec<Rule>) -> Configuration {
    let well = store::configuration();
    Configuration {
        ssd: SsdSource::Emulated(SsdConfig {
            faults: Faults { seed: 7, rules },
            ..store::ssd()
        }),
        ssds: 2,
        queues: 1,
        depth: 16,
        cache_lines: 256,
        timeout: Duration::from_millis(500),
        ..well
    }
}

fn lost_writes(when: When) -> Rule {
    Rule {
        commands: Commands::Writes,
        ..Rule::new(Fault::Drop, when)
    }
}

fn open(configuration: Configuration, lines: u64) -> (Session, ArrayMut<u32>) {
    let session = Session::open(configuration, "").unwrap();
    session
        .create_array("n", &vec![0u32; (lines * PER_LINE) as usize])
        .unwrap();
    let array = session.array_mut("n").unwrap();
    (session, array)
}

/// The lines without a mark on the media.
fn missing(session: &Session) -> Vec<u64> {
    let stored = session.stored::<u32>("n").unwrap();
    let lines = (0..).zip(stored.chunks(PER_LINE as usize));
    lines
        .filter(|(_, line)| line[0] != MARK)
        .map(|(index, _)| index)
        .collect()
}

#[test]
fn a_flush_reaches_the_other_queues_of_an_ssd() {
    let rule = Rule {
        queue: Some(1),
        ..lost_writes(When::First(1))
    };
    let configuration = Configuration {
        ssds: 1,
        queues: 2,
        ..configuration(vec![rule])
    };
    let (session, array) = open(configuration, 256);
    let config = session.fill(&mark).unwrap();
    session
        .launch(&mark, config, (array, 0, 1, 256, u64::MAX))
        .unwrap();
    session.flush().unwrap_err();
    session.flush().unwrap_err();
    // What a warp had begun to write when its queue died may be under way, and nothing more.
    let missing = missing(&session);
    assert!((1..=32).contains(&missing.len()), "{missing:?}");
}

#[test]
fn a_flush_reaches_the_other_ssd() {
    let rule = Rule {
        lbas: Some(20..=20),
        ..lost_writes(When::First(1))
    };
    let (session, array) = open(configuration(vec![rule]), 256);
    let config = session.fill(&mark).unwrap();
    // LBA 20 is line 40 of SSD 0 and line 41 of SSD 1.
    session
        .launch(&mark, config, (array, 0, 1, 256, 40))
        .unwrap();
    for _ in 0..4 {
        let error = session.flush().unwrap_err().to_string();
        assert!(error.contains("queue 1"), "{error}");
    }
    let healthy: Vec<u64> = missing(&session)
        .into_iter()
        .filter(|line| line % 2 == 0 && *line != 40)
        .collect();
    assert!(healthy.is_empty(), "{healthy:?}");
}

#[test]
fn a_write_that_fails_when_the_time_is_up_can_be_repeated_by_the_next_flush() {
    let fails_once = Rule {
        commands: Commands::Writes,
        lbas: Some(20..=20),
        ..Rule::new(Fault::Status(Status::INTERNAL_ERROR), When::First(1))
    };
    let never_comes = Rule {
        lbas: Some(30..=31),
        ..lost_writes(When::Always)
    };
    let configuration = Configuration {
        // A ring of two holds one command: the next one waits, and so does its warp.
        depth: 2,
        ..configuration(vec![fails_once, never_comes])
    };
    let (session, array) = open(configuration, 64);
    let config = session.fill(&mark).unwrap();
    // LBA 20 of SSD 0; then LBAs 30 and 31 of SSD 1, of which the second finds no room.
    for line in [40, 61, 63] {
        session
            .launch(&mark, config, (array, line, 1, line + 1, u64::MAX))
            .unwrap();
    }
    session.flush().unwrap_err();
    assert!(missing(&session).contains(&40), "it was to fail");
    session.flush().unwrap_err();
    assert!(!missing(&session).contains(&40));
}

#[test]
fn a_stuck_ssd_does_not_stop_another() {
    for (depth, cache_lines) in [(2, 8), (16, 8), (2, 64), (16, 64)] {
        let rule = Rule {
            lbas: Some(100..=999),
            ..lost_writes(When::Always)
        };
        let configuration = Configuration {
            depth,
            cache_lines,
            // Nobody is meant to wait for so long, but the last flush.
            timeout: Duration::from_secs(2),
            ..configuration(vec![rule])
        };
        let (session, array) = open(configuration, 512);
        let config = session.fill(&mark).unwrap();
        // Half of the cache is dirty with lines of SSD 1, which loses what is written to it.
        let end = 201 + cache_lines;
        session
            .launch(&mark, config, (array, 201, 2, end, u64::MAX))
            .unwrap();
        let config = session.fill(&read_lines).unwrap();
        for round in 0..3 {
            let ended = session.memory::<u64>(2).unwrap();
            let args = (*array, 0, 2, 128, ended.atomics());
            session.launch(&read_lines, config, args).unwrap();
            assert_eq!(
                ended.to_vec().unwrap(),
                [64, 0],
                "depth {depth}, {cache_lines} lines, round {round}"
            );
        }
    }
}

#[test]
fn refused_lines_leave_their_buffers() {
    let rule = Rule {
        lbas: Some(20..=20),
        ..lost_writes(When::First(1))
    };
    let (session, array) = open(configuration(vec![rule]), 64);
    let config = session.fill(&write_whole).unwrap();
    let writes = |line, times| {
        let ended = session.memory::<u64>(2).unwrap();
        let args = (array, line, times, ended.atomics());
        session.launch(&write_whole, config, args).unwrap();
        ended.to_vec().unwrap()
    };
    assert_eq!(writes(2, 10), [320, 0]);
    assert_eq!(writes(41, 1), [0, 32], "the write that is lost");
    // More often than there are buffers.
    assert_eq!(writes(43, 200), [0, 6400], "the queue is dead");
    assert_eq!(writes(2, 10), [320, 0], "of the other SSD");
}

#[test]
fn flushes_that_wait_leave_their_buffers() {
    let rule = Rule {
        lbas: Some(0..=0),
        ..lost_writes(When::First(1))
    };
    let configuration = Configuration {
        timeout: Duration::from_millis(100),
        ..configuration(vec![rule])
    };
    let (session, array) = open(configuration, 64);
    let config = session.fill(&mark).unwrap();
    session
        .launch(&mark, config, (array, 0, 1, 1, u64::MAX))
        .unwrap();
    for _ in 0..80 {
        session.flush().unwrap_err();
    }
    // A line of the other SSD still gets through.
    session
        .launch(&mark, config, (array, 9, 1, 10, u64::MAX))
        .unwrap();
    session.flush().unwrap_err();
    assert!(!missing(&session).contains(&9));
}
