//! What kernels on host threads make of SSDs that do wrong: every access ends, with right data or with
//! an error that says where, and nothing waits for ever.

mod store;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpstore::device::parts::nvme_wire::Status;
use warpstore::device::prelude::*;
use warpstore::device::{CacheMode, ErrorKind};
use warpstore::{
    Commands, Configuration, Error, Fault, Faults, Medium, Protocol, Rule, Session, SsdConfig,
    SsdSource, When,
};

/// Elements of the array: 64 lines.
const ELEMENTS: u64 = 64 * 128;

fn element(index: u64) -> u32 {
    (index as u32).wrapping_mul(0x9e37_79b9)
}

/// Reads every element; counts those that are right and those that are wrong.
#[kernel]
fn compare(elements: Array<u32>, counts: Atomics<u64>) -> Result<(), IoError> {
    for index in thread::grid_stride(elements.len()) {
        let found = elements.get(index)?;
        let right = found == (index as u32).wrapping_mul(0x9e37_79b9);
        counts.at(u64::from(!right)).fetch_add(1, Order::Relaxed);
    }
    Ok(())
}

/// Lets one test run at a time, as in `threads.rs`.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where what is right must come in the end.
const PATIENT: Duration = Duration::from_secs(120);
/// Where it cannot.
const SHORT: Duration = Duration::from_millis(1000);

fn ssd(seed: u64, rules: Vec<Rule>) -> SsdSource {
    SsdSource::Emulated(SsdConfig {
        faults: Faults { seed, rules },
        ..store::ssd()
    })
}

fn configuration(rules: Vec<Rule>, timeout: Duration) -> Configuration {
    let well = store::configuration();
    Configuration {
        ssd: ssd(7, rules),
        depth: 16,
        timeout,
        ..well
    }
}

/// A session with the array, and what came of reading all of it.
struct Run {
    session: Session,
    result: Result<f64, Error>,
    right: u64,
}

impl Run {
    fn of(configuration: Configuration) -> Self {
        let session = Session::open(configuration, "").unwrap();
        let elements: Vec<u32> = (0..ELEMENTS).map(element).collect();
        let array = session.create_array("elements", &elements).unwrap();
        let counts = session.memory::<u64>(2).unwrap();
        let config = session.fill(&compare).unwrap();
        let result = session.launch(&compare, config, (array, counts.atomics()));
        let mut found = [0; 2];
        counts.read(0, &mut found).unwrap();
        assert_eq!(found[1], 0, "wrong data");
        Self {
            session,
            result,
            right: found[0],
        }
    }

    fn succeeds(&self) {
        let ssd = self.session.configuration().ssd.emulated();
        let rules = &ssd.expect("they are emulated").faults.rules;
        if let Err(error) = &self.result {
            panic!("{rules:?}: {error}");
        }
        assert_eq!(self.right, ELEMENTS, "{rules:?}");
    }

    /// The error of the first access that failed, and the message for people.
    fn fails(&self) -> (IoError, String) {
        match &self.result {
            Err(error @ Error::Kernel { first, .. }) => (*first, error.to_string()),
            other => panic!("{other:?} instead of a failed access"),
        }
    }

    /// Reads all of it once more.
    fn again(&self) -> Result<f64, Error> {
        let array = self.session.array::<u32>("elements").unwrap();
        let counts = self.session.memory::<u64>(2).unwrap();
        let config = self.session.fill(&compare).unwrap();
        self.session
            .launch(&compare, config, (array, counts.atomics()))
    }

    fn hits(&self) -> Vec<u64> {
        self.session.injected_faults().unwrap()
    }
}

#[test]
fn a_status_that_passes_is_retried() {
    let _alone = alone();
    for status in [
        Status::INTERNAL_ERROR,
        Status::NAMESPACE_NOT_READY,
        Status::INTERNAL_PATH_ERROR,
    ] {
        // Four in a row would be a failure: too seldom to meet.
        let rule = Rule::new(Fault::Status(status), When::OneIn(30));
        let run = Run::of(configuration(vec![rule], PATIENT));
        run.succeeds();
        let (failed, _) = run.session.failed_commands().unwrap();
        assert!(failed > 0);
        assert_eq!([failed], run.hits()[..], "{}", status.name());
    }
}

#[test]
fn a_status_that_stays_names_queue_cid_line_and_status() {
    let _alone = alone();
    for status in [
        Status::LBA_OUT_OF_RANGE,
        Status::INTERNAL_ERROR,
        Status::INTERNAL_ERROR.with_dnr(),
        Status::new(1, 0x81),
        Status::UNRECOVERED_READ_ERROR,
        Status::HOST_PATHING_ERROR.with_dnr(),
        Status::new(7, 0x12),
    ] {
        let rule = Rule {
            lbas: Some(21..=21),
            ..Rule::new(Fault::Status(status), When::Always)
        };
        let run = Run::of(configuration(vec![rule], PATIENT));
        let (first, text) = run.fails();
        assert_eq!(first.kind(), ErrorKind::Status, "{text}");
        assert_eq!((first.status(), first.line()), (status, 21), "{text}");
        let (failed, records) = run.session.failed_commands().unwrap();
        assert_eq!([failed], run.hits()[..]);
        assert!(records.iter().all(|record| record.status == status.bits()));
        for part in ["queue", "CID", "line 21", "LBA 21 of SSD 0", status.name()] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        // Others read all other lines, but for what the failed lanes left.
        assert!(
            run.right > 0 && run.right <= ELEMENTS - 128,
            "{}",
            run.right
        );
    }
}

#[test]
fn completions_too_many_change_nothing() {
    let _alone = alone();
    for fault in [Fault::Duplicate, Fault::UnknownCid, Fault::StaleCid] {
        for depth in [2, 4, 16] {
            let rule = Rule::new(fault, When::OneIn(3));
            let run = Run::of(Configuration {
                depth,
                ..configuration(vec![rule], PATIENT)
            });
            run.succeeds();
            assert!(run.hits()[0] > 0, "{fault:?}");
        }
    }
}

#[test]
fn late_and_overtaken_completions_are_waited_for() {
    let _alone = alone();
    for (fault, when) in [
        (Fault::Reorder, When::OneIn(5)),
        (Fault::Delay(20_000_000), When::OneIn(10)),
        (Fault::Delay(1_000_000_000), When::Command(5)),
    ] {
        let run = Run::of(configuration(vec![Rule::new(fault, when)], PATIENT));
        run.succeeds();
        assert!(run.hits()[0] > 0, "{fault:?}");
    }
}

#[test]
fn what_never_comes_is_an_error_at_the_deadline_and_a_new_session_works() {
    let _alone = alone();
    for fault in [
        Fault::Drop,
        Fault::WrongPhase,
        Fault::Delay(3_600_000_000_000),
    ] {
        let rule = Rule {
            queue: Some(1),
            ..Rule::new(fault, When::Command(9))
        };
        let run = Run::of(configuration(vec![rule], SHORT));
        let (first, text) = run.fails();
        let kinds = [ErrorKind::Timeout, ErrorKind::QueueDead];
        assert!(kinds.contains(&first.kind()), "{fault:?}: {text}");
        assert!(text.contains("queue") && text.contains("line"), "{text}");
        // Who was first may have met the dead queue only.
        let names = ["LBA", "CID", "never came back"];
        let named = names.iter().all(|part| text.contains(part));
        assert!(named || first.kind() == ErrorKind::QueueDead, "{text}");
        assert_eq!(run.hits(), [1], "{fault:?}");
        run.session.finish().unwrap();
        Run::of(configuration(Vec::new(), PATIENT)).succeeds();
    }
}

#[test]
fn a_session_that_does_not_end_well_lets_go_of_its_media_file() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let with = |rules| {
        let SsdSource::Emulated(each) = ssd(7, rules) else {
            panic!("they are emulated")
        };
        let medium = Medium::File {
            path: folder.path().join("media"),
            overwrite: false,
        };
        Run::of(Configuration {
            ssd: SsdSource::Emulated(SsdConfig { medium, ..each }),
            ..configuration(Vec::new(), SHORT)
        })
    };
    for finishes in [true, false] {
        let removed = with(vec![Rule::new(Fault::Removal, When::Command(9))]);
        removed.result.as_ref().expect_err("the controller is gone");
        if finishes {
            removed
                .session
                .finish()
                .expect_err("the controller is gone");
        } else {
            drop(removed);
        }
        with(Vec::new()).succeeds();
    }
}

#[test]
fn a_dead_queue_refuses_and_the_others_do_its_work() {
    let _alone = alone();
    let rule = Rule {
        queue: Some(1),
        ..Rule::new(Fault::Drop, When::Command(1))
    };
    let run = Run::of(configuration(vec![rule], SHORT));
    let (first, text) = run.fails();
    // Who was first may have waited, on the other queue, for the line whose command was lost.
    assert!(
        first.queue() == 0 || text.contains("of queue 0 for line"),
        "{text}"
    );
    run.again().unwrap();
    assert_eq!(run.hits(), [1], "no command enters it any more");
}

#[test]
fn without_a_living_queue_an_access_says_so() {
    let _alone = alone();
    for (protocol, queues) in [(Protocol::Hop, 1), (Protocol::Bam, 2)] {
        let rule = Rule {
            queue: Some(1),
            ..Rule::new(Fault::Drop, When::Command(1))
        };
        let run = Run::of(Configuration {
            queues,
            protocol,
            depth: 64,
            ..configuration(vec![rule], SHORT)
        });
        run.fails();
        let again = run.again();
        let Err(Error::Kernel { first, .. }) = again else {
            panic!("{protocol:?}: {again:?}")
        };
        assert_eq!((first.kind(), first.queue()), (ErrorKind::QueueDead, 0));
    }
}

#[test]
fn a_mixture_ends_with_right_data_and_equal_counts() {
    let _alone = alone();
    let one_in = |fault, count| Rule::new(fault, When::OneIn(count));
    let mut total = vec![0; 6];
    for seed in 0..4 {
        let rules = vec![
            one_in(Fault::Status(Status::INTERNAL_ERROR), 30),
            one_in(Fault::Duplicate, 20),
            one_in(Fault::UnknownCid, 20),
            one_in(Fault::StaleCid, 20),
            one_in(Fault::Reorder, 20),
            Rule {
                commands: Commands::Reads,
                ..one_in(Fault::Delay(3_000_000), 20)
            },
        ];
        let mut configuration = configuration(Vec::new(), PATIENT);
        configuration.ssd = ssd(seed, rules);
        configuration.ssds = 3;
        configuration.depth = [2, 4, 16, 64][seed as usize];
        configuration.mode = [CacheMode::Optimistic, CacheMode::None][seed as usize % 2];
        let run = Run::of(configuration);
        run.succeeds();
        let hits = run.hits();
        let (failed, _) = run.session.failed_commands().unwrap();
        assert_eq!(failed, hits[0], "seed {seed}");
        assert_eq!(run.session.counts().unwrap().unwrap().errors, hits[0]);
        for (total, hits) in total.iter_mut().zip(hits) {
            *total += hits;
        }
    }
    assert!(total.iter().all(|&hits| hits > 0), "{total:?}");
}

#[test]
fn every_completion_too_many_is_counted_by_the_queues() {
    let _alone = alone();
    for depth in [2, 4, 16] {
        let rules = [Fault::Duplicate, Fault::UnknownCid, Fault::StaleCid]
            .map(|fault| Rule::new(fault, When::First(12)));
        let run = Run::of(Configuration {
            depth,
            ..configuration(rules.to_vec(), PATIENT)
        });
        run.succeeds();
        assert_eq!(run.hits(), [12, 12, 12], "depth {depth}");
        // Whoever reads again also takes what the first reading left in the rings.
        run.again().unwrap();
        let refused = run.session.refused_completions().unwrap();
        // The slot of a duplicate may have another owner when it comes: then it is a stale one.
        let repeated = refused.duplicate + refused.stale;
        assert_eq!((refused.unknown, repeated, refused.foreign), (12, 24, 0));
    }
}

#[test]
fn the_baselines_end_the_same_way() {
    let _alone = alone();
    for (protocol, depth) in [
        (Protocol::Bam, 64),
        (Protocol::Lock, 2),
        (Protocol::Lock, 16),
    ] {
        let with = |fault, when, timeout| {
            Run::of(Configuration {
                protocol,
                depth,
                ..configuration(vec![Rule::new(fault, when)], timeout)
            })
        };
        for (fault, when) in [
            (Fault::Status(Status::INTERNAL_ERROR), When::OneIn(30)),
            (Fault::Reorder, When::OneIn(5)),
            (Fault::Delay(20_000_000), When::OneIn(10)),
        ] {
            let run = with(fault, when, PATIENT);
            run.succeeds();
            assert!(run.hits()[0] > 0, "{protocol:?} {fault:?}");
        }
        let stays = Status::INTERNAL_ERROR.with_dnr();
        let (first, text) = with(Fault::Status(stays), When::Command(9), PATIENT).fails();
        assert_eq!(
            (first.kind(), first.status()),
            (ErrorKind::Status, stays),
            "{text}"
        );
        let (first, text) = with(Fault::Drop, When::Command(9), SHORT).fails();
        let kinds = [ErrorKind::Timeout, ErrorKind::QueueDead];
        assert!(kinds.contains(&first.kind()), "{protocol:?}: {text}");
        // A completion of nobody stops a queue of BaM's, until the deadline; the other drops it.
        match protocol {
            Protocol::Bam => {
                let (first, text) = with(Fault::UnknownCid, When::Command(9), SHORT).fails();
                assert!(kinds.contains(&first.kind()), "{text}");
            }
            _ => with(Fault::UnknownCid, When::OneIn(3), PATIENT).succeeds(),
        }
    }
}

/// Sets element `i` to `i + added`, the lines that fit no longer written back by whoever needs room.
#[kernel]
fn fill(numbers: ArrayMut<u32>, added: u32) -> Result<(), IoError> {
    for index in thread::grid_stride(numbers.len()) {
        numbers.set(index, index as u32 + added)?;
    }
    Ok(())
}

/// A session whose kernel has set every element; what the flush said.
fn filled(rules: Vec<Rule>) -> (Session, Result<(), Error>) {
    let mut configuration = configuration(rules, PATIENT);
    // All lines stay in the cache until the flush.
    configuration.cache_lines = 64;
    let session = Session::open(configuration, "").unwrap();
    session
        .create_array("numbers", &vec![0u32; ELEMENTS as usize])
        .unwrap();
    let config = session.fill(&fill).unwrap();
    let numbers = session.array_mut("numbers").unwrap();
    session.launch(&fill, config, (numbers, 5)).unwrap();
    let flushed = session.flush();
    (session, flushed)
}

fn is_on_the_media(session: &Session) -> bool {
    let stored = session.stored::<u32>("numbers").unwrap();
    (5..).zip(stored).all(|(expected, found)| found == expected)
}

/// A rule for one kind of commands.
fn only(commands: Commands, fault: Fault, when: When) -> Rule {
    Rule {
        commands,
        ..Rule::new(fault, when)
    }
}

#[test]
fn a_write_that_fails_for_a_while_is_tried_again() {
    let _alone = alone();
    let fault = Fault::Status(Status::INTERNAL_ERROR);
    for commands in [Commands::Writes, Commands::Flushes] {
        let (session, flushed) = filled(vec![only(commands, fault, When::First(2))]);
        flushed.unwrap();
        assert_eq!(session.injected_faults().unwrap(), [2], "{commands:?}");
        assert!(is_on_the_media(&session));
        session.finish().unwrap();
    }
}

#[test]
fn a_write_that_fails_is_told_by_the_flush_and_its_line_stays_dirty() {
    let _alone = alone();
    let rule = Rule {
        lbas: Some(21..=21),
        ..only(
            Commands::Writes,
            Fault::Status(Status::WRITE_FAULT),
            When::First(1),
        )
    };
    let (session, flushed) = filled(vec![rule]);
    let error = flushed.expect_err("a line was not written");
    let text = error.to_string();
    for part in ["queue", "CID", "line 21", "Write Fault"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    let Error::Flush { first, .. } = error else {
        panic!("{text}")
    };
    assert_eq!((first.status(), first.line()), (Status::WRITE_FAULT, 21));
    assert!(!is_on_the_media(&session));
    session.flush().unwrap();
    assert!(
        is_on_the_media(&session),
        "the line was still there, and dirty"
    );
    session.finish().unwrap();
}

#[test]
fn a_flush_that_fails_is_told() {
    let _alone = alone();
    let fault = Fault::Status(Status::WRITE_FAULT.with_dnr());
    let (session, flushed) = filled(vec![only(Commands::Flushes, fault, When::First(1))]);
    let Err(Error::Flush { first, .. }) = flushed else {
        panic!("{flushed:?}")
    };
    assert_eq!(first.status().code(), Status::WRITE_FAULT);
    session.flush().unwrap();
    session.finish().unwrap();
}
