//! Writes that an SSD fails for good, and SSDs that fail while kernels write: who is told what, and what
//! works on.

mod store;

use std::path::Path;
use std::time::Duration;

use warpstore::device::parts::nvme_wire::Status;
use warpstore::device::prelude::*;
use warpstore::device::{CacheMode, ErrorKind};
use warpstore::{
    Commands, Configuration, Error, Fault, Faults, Medium, Rule, Session, SsdConfig, SsdSource,
    When,
};

/// Elements of a line.
const PER_LINE: u64 = 128;
const LINES: u64 = 64;
const MARK: u32 = 5;
/// The line that cannot be written, and its LBA.
const BAD: u64 = 21;

fn configuration(rules: Vec<Rule>) -> Configuration {
    Configuration {
        ssd: SsdSource::Emulated(SsdConfig {
            faults: Faults { seed: 3, rules },
            ..store::ssd()
        }),
        ..store::configuration()
    }
}

/// LBA [`BAD`] takes no write.
fn bad_lba() -> Rule {
    Rule {
        lbas: Some(BAD..=BAD),
        commands: Commands::Writes,
        ..Rule::new(Fault::Status(Status::WRITE_FAULT), When::Always)
    }
}

fn open(configuration: Configuration) -> Session {
    let session = Session::open(configuration, "").unwrap();
    let zeros = vec![0u32; (LINES * PER_LINE) as usize];
    session.create_array("n", &zeros).unwrap();
    session
}

/// The lines without a mark on the media.
fn missing(session: &Session) -> Vec<u64> {
    let stored = session.stored::<u32>("n").unwrap();
    let lines = (0..).zip(stored.chunks(PER_LINE as usize));
    let unmarked = lines.filter(|(_, line)| line[0] != MARK);
    unmarked.map(|(index, _)| index).collect()
}

/// All that a message says of a failed write of line [`BAD`].
fn names_it(text: &str) {
    for part in ["queue", "CID", "line 21", "LBA 21 of SSD 0", "Write Fault"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// Marks the lines from `first` up to `end`, a lane each; `failed` counts failures, of line `bad` and of
/// others.
#[kernel]
fn mark(n: ArrayMut<u32>, first: u64, end: u64, bad: u64, failed: Atomics<u64>) {
    for line in thread::grid_stride(end) {
        if line >= first && n.set(line * PER_LINE, MARK).is_err() {
            failed
                .at(u64::from(line != bad))
                .fetch_add(1, Order::Relaxed);
        }
    }
}

#[test]
fn a_line_that_cannot_be_written_stops_no_other() {
    for cache_lines in [1, 2, 7] {
        let session = open(Configuration {
            cache_lines,
            ..configuration(vec![bad_lba()])
        });
        let failed = session.memory::<u64>(2).unwrap();
        let config = session.fill(&mark).unwrap();
        let launch = |first, end| {
            let array = session.array_mut("n").unwrap();
            let args = (array, first, end, BAD, failed.atomics());
            session.launch(&mark, config, args).unwrap();
        };
        // It is in the cache, and stays there: nobody else gets its slot.
        launch(BAD, BAD + 1);
        assert_eq!(failed.to_vec().unwrap(), [0, 0]);
        launch(0, BAD);
        launch(BAD + 1, LINES);
        assert_eq!(failed.to_vec().unwrap(), [0, 0], "{cache_lines} lines");
        for _ in 0..2 {
            let error = session.flush().expect_err("a line cannot be written");
            names_it(&error.to_string());
            let Error::Flush { first, lba, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((first.status(), first.line()), (Status::WRITE_FAULT, BAD));
            assert_eq!(lba, Some((0, BAD)));
            assert_eq!(missing(&session), [BAD], "{cache_lines} lines");
        }
        names_it(&session.finish().unwrap_err().to_string());
    }
}

/// Writes `line` whole.
#[kernel]
fn write_whole(n: ArrayMut<u32>, line: u64) -> Result<(), IoError> {
    if thread::index_1d() < 32 {
        n.write_line(line * PER_LINE, |_| Ok(MARK))?;
    }
    Ok(())
}

/// Marks `line` in one lane.
#[kernel]
fn mark_one(n: ArrayMut<u32>, line: u64) -> Result<(), IoError> {
    if thread::index_1d() == 0 {
        n.set(line * PER_LINE, MARK)?;
    }
    Ok(())
}

#[test]
fn an_access_beside_the_cache_names_its_own_failed_write() {
    let session = open(Configuration {
        mode: CacheMode::None,
        ..configuration(vec![bad_lba()])
    });
    let config = session.fill(&mark_one).unwrap();
    let n = session.array_mut("n").unwrap();
    let set = |line| session.launch(&mark_one, config, (n, line));
    let whole = |line| session.launch(&write_whole, config, (n, line));
    for (ended, lanes) in [(set(BAD), 1), (whole(BAD), 32)] {
        let error = ended.expect_err("the line cannot be written");
        names_it(&error.to_string());
        let Error::Kernel {
            lanes: found,
            first,
            lba,
            ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!((found, lba), (lanes, Some((0, BAD))));
        assert_eq!(first.kind(), ErrorKind::Status);
        assert_eq!((first.status(), first.line()), (Status::WRITE_FAULT, BAD));
    }
    set(BAD - 1).unwrap();
    whole(BAD + 1).unwrap();
    let marked: Vec<u64> = (0..LINES).filter(|line| line.abs_diff(BAD) != 1).collect();
    assert_eq!(missing(&session), marked);
    // Nothing of it is left to be written.
    session.flush().unwrap();
    session.finish().unwrap();
}

/// Sets every element to `value`.
#[kernel]
fn fill(n: ArrayMut<u32>, value: u32) -> Result<(), IoError> {
    for index in thread::grid_stride(n.len()) {
        n.set(index, value)?;
    }
    Ok(())
}

fn on_file(folder: &Path, mode: CacheMode, rules: Vec<Rule>) -> Configuration {
    let medium = Medium::File {
        path: folder.join("ssd"),
        overwrite: false,
    };
    let config = configuration(rules);
    let ssd = config.ssd.emulated().unwrap().clone();
    Configuration {
        ssd: SsdSource::Emulated(SsdConfig { medium, ..ssd }),
        mode,
        ..config
    }
}

/// Fills the array with `value`; the first error of the kernel or of the flush.
fn filled(session: &Session, value: u32) -> Result<(), Error> {
    let config = session.fill(&fill).unwrap();
    let array = session.array_mut("n").unwrap();
    session.launch(&fill, config, (array, value))?;
    session.flush()
}

#[test]
fn a_controller_that_fails_under_writes_is_an_error_and_the_next_session_works() {
    for (fault, word) in [(Fault::Fatal, "fatal"), (Fault::Removal, "removed")] {
        for (mode, place) in [
            (CacheMode::Optimistic, 2),
            (CacheMode::Optimistic, 30),
            (CacheMode::BamReuse, 17),
            (CacheMode::None, 2),
            (CacheMode::None, 100),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let rule = Rule {
                commands: Commands::All,
                queue: Some(1),
                ..Rule::new(fault, When::Command(place))
            };
            let session = open(Configuration {
                timeout: Duration::from_millis(1000),
                ..on_file(folder.path(), mode, vec![rule])
            });
            let about = format!("{fault:?} {mode:?} {place}");
            filled(&session, MARK).expect_err(&about);
            assert_eq!(session.injected_faults().unwrap(), [1], "{about}");
            let error = session.finish().expect_err(&about).to_string();
            assert!(
                error.contains("SSD") || error.contains(word),
                "{about}: {error}"
            );
            // A controller that could not be stopped keeps its file, as it keeps its memory.
            let copy = tempfile::tempdir().unwrap();
            std::fs::copy(folder.path().join("ssd"), copy.path().join("ssd")).unwrap();
            let session = Session::open(on_file(copy.path(), mode, Vec::new()), "").unwrap();
            session
                .existing_array::<u32>("n", LINES * PER_LINE)
                .unwrap();
            let stored = session.stored::<u32>("n").unwrap();
            assert!(
                stored.iter().all(|value| [0, MARK].contains(value)),
                "{about}"
            );
            filled(&session, MARK + 1).unwrap();
            let stored = session.stored::<u32>("n").unwrap();
            assert!(stored.iter().all(|&value| value == MARK + 1), "{about}");
            session.finish().unwrap();
        }
    }
}
