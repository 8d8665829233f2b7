//! Commands that an SSD carries out long after their access has been given up: what they move lands
//! in nobody else's memory, carries nobody else's bytes, and holds nothing else up.
//!
//! Line [`LATE_LINE`] lies on SSD 0, its neighbours of odd numbers on SSD 1, which does nothing wrong.

mod sockets;
mod store;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpstore::device::launch::Kernel;
use warpstore::device::parts::simt::{Native, Platform};
use warpstore::device::prelude::*;
use warpstore::device::{CacheMode, ErrorKind};
use warpstore::{
    Commands, Configuration, Error, Fault, Faults, LaunchConfig, Medium, Protocol, Rule, Session,
    SsdConfig, SsdSource, When,
};

/// Elements of a line.
const PER_LINE: u64 = 128;
const LINES: u64 = 64;
/// LBA 20 of SSD 0; the same of SSD 1, line 41, is left alone.
const LATE_LINE: u64 = 40;
/// What an access has.
const DEADLINE: Duration = Duration::from_millis(1000);
/// When the late command is carried out.
const LATE: Duration = Duration::from_millis(2200);
/// What kernels write.
const MARK: u32 = 7;

fn element(index: u64) -> u32 {
    (index as u32).wrapping_mul(0x9e37_79b9)
}

/// Lets one test run at a time, as in `threads.rs`.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the SSDs are.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// In this process, on files in a folder: slots are reached directly.
    Here,
    /// In another, so that lines are staged ([ST-1]).
    Elsewhere,
}

/// Does the same in both places, side by side: most of the time is waiting.
fn everywhere(test: impl Fn(Where) + Sync) {
    let _alone = alone();
    std::thread::scope(|scope| {
        scope.spawn(|| test(Where::Here));
        test(Where::Elsewhere);
    });
}

/// A session with an array "n", whose SSD 0 carries out the first such command on [`LATE_LINE`] late.
struct Store {
    session: Session,
    folder: tempfile::TempDir,
    configuration: Configuration,
}

impl Store {
    fn open(place: Where, late: Commands, shape: Configuration) -> Self {
        let rule = Rule {
            lbas: Some(20..=20),
            commands: late,
            // The first warp's; the host has a queue of its own to SSDs elsewhere.
            queue: Some(1),
            ..Rule::new(Fault::Late(LATE.as_nanos() as u64), When::First(1))
        };
        let faults = Faults {
            seed: 1,
            rules: vec![rule],
        };
        let folder = tempfile::tempdir().unwrap();
        let configuration = match place {
            Where::Here => on_files(shape, folder.path(), faults),
            Where::Elsewhere => sockets::behind_sockets(shape, &faults),
        };
        let configuration = Configuration {
            timeout: DEADLINE,
            ..configuration
        };
        let session = Session::open(configuration.clone(), "").unwrap();
        let elements: Vec<u32> = (0..LINES * PER_LINE).map(element).collect();
        session.create_array("n", &elements).unwrap();
        Self {
            session,
            folder,
            configuration,
        }
    }

    fn array(&self) -> ArrayMut<u32> {
        self.session.array_mut("n").unwrap()
    }

    /// Runs a kernel on two warps, which have a queue of each SSD to themselves.
    fn launch<K: Kernel>(&self, kernel: &K, args: K::Args) -> Result<(), Error> {
        let two_warps = LaunchConfig {
            blocks: 1,
            threads: 64,
        };
        self.session.launch(kernel, two_warps, args).map(|_| ())
    }

    /// Compares lines of SSD 1, `count` of them, one lane after the other; all are right.
    fn neighbours_are_right(&self, count: u64) {
        let wrong = self.session.memory::<u64>(1).unwrap();
        let args = (*self.array(), 1, count, wrong.atomics());
        self.launch(&compare_odd_lines, args).unwrap();
        assert_eq!(wrong.to_vec().unwrap(), [0], "another line's bytes");
    }

    /// Waits until the SSDs have completed so many commands.
    fn wait_for(&self, reads: u64, writes: u64) {
        let begin = Instant::now();
        loop {
            let counts = self.session.counts().unwrap().unwrap();
            if counts.reads >= reads && counts.writes >= writes {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{counts:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.session.injected_faults().unwrap(), [1]);
    }

    /// Line `line` as it is on its SSD.
    fn stored(&self, line: u64) -> Vec<u32> {
        let stored = self.session.stored::<u32>("n").unwrap();
        stored
            .chunks(PER_LINE as usize)
            .nth(line as usize)
            .unwrap()
            .to_vec()
    }

    /// Ends the session, however that ends, and opens another one on the same SSDs if they outlive it:
    /// element `index` is `expected(index)`.
    fn reopen(self, expected: impl Fn(u64) -> u32) {
        let is_here = self.configuration.ssd.emulated().is_some();
        let _ = self.session.finish();
        if !is_here {
            return;
        }
        let well = on_files(self.configuration, self.folder.path(), Faults::none());
        let session = Session::open(well, "").unwrap();
        let array = session
            .existing_array::<u32>("n", LINES * PER_LINE)
            .unwrap();
        let wrong = session.memory::<u64>(1).unwrap();
        let config = session.fill(&compare_odd_lines).unwrap();
        let args = (array, 1, LINES / 2, wrong.atomics());
        session.launch(&compare_odd_lines, config, args).unwrap();
        assert_eq!(wrong.to_vec().unwrap(), [0]);
        let stored = session.stored::<u32>("n").unwrap();
        for (index, found) in (0..).zip(stored) {
            assert_eq!(found, expected(index), "element {index}");
        }
        session.finish().unwrap();
    }
}

/// A small cache over two SSDs with two queues each.
fn shape() -> Configuration {
    Configuration {
        ssds: 2,
        cache_lines: 4,
        ..store::configuration()
    }
}

fn on_files(shape: Configuration, folder: &Path, faults: Faults) -> Configuration {
    let medium = Medium::File {
        path: folder.join("ssd"),
        overwrite: false,
    };
    Configuration {
        ssd: SsdSource::Emulated(SsdConfig {
            medium,
            faults,
            ..store::ssd()
        }),
        timeout: Duration::from_secs(120),
        ..shape
    }
}

fn is_a_timeout(ended: Result<(), Error>) {
    match ended {
        Err(Error::Kernel { first, .. }) => assert_eq!(first.kind(), ErrorKind::Timeout),
        other => panic!("{other:?} instead of a time-out"),
    }
}

/// Compares every element of `count` lines from `first` on, every second one, in the first lane.
#[kernel]
fn compare_odd_lines(
    n: Array<u32>,
    first: u64,
    count: u64,
    wrong: Atomics<u64>,
) -> Result<(), IoError> {
    if thread::index_1d() == 0 {
        for index in 0..count * PER_LINE {
            let index = (first + index / PER_LINE * 2) * PER_LINE + index % PER_LINE;
            if n.get(index)? != (index as u32).wrapping_mul(0x9e37_79b9) {
                wrong.at(0).fetch_add(1, Order::Relaxed);
            }
        }
    }
    Ok(())
}

/// Reads the first element of `line` in one lane.
#[kernel]
fn read_one(n: Array<u32>, line: u64, lane: u64, found: Atomics<u64>) -> Result<(), IoError> {
    if thread::index_1d() == lane {
        let value = n.get(line * PER_LINE)?;
        found.at(0).store(u64::from(value), Order::Relaxed);
    }
    Ok(())
}

/// A fetch that comes after its time ([LC-7], [ST-1]).
fn a_late_fetch(place: Where, shape: Configuration) {
    let store = Store::open(place, Commands::Reads, shape);
    let found = store.session.memory::<u64>(1).unwrap();
    let read = |lane| (*store.array(), LATE_LINE, lane, found.atomics());
    is_a_timeout(store.launch(&read_one, read(0)));
    // Another queue still gets the line itself.
    store.launch(&read_one, read(32)).unwrap();
    assert_eq!(
        found.to_vec().unwrap(),
        [u64::from(element(LATE_LINE * PER_LINE))]
    );
    // As many lines as there are slots: if the late one's was given away, it is one of theirs.
    store.neighbours_are_right(4);
    // One command each, and the late one.
    store.wait_for(6, 0);
    store.neighbours_are_right(4);
    store.reopen(element);
}

#[test]
fn a_late_fetch_lands_in_no_other_lines_slot() {
    everywhere(|place| a_late_fetch(place, shape()));
    for protocol in [Protocol::Lock, Protocol::Bam] {
        let _alone = alone();
        let shape = Configuration {
            protocol,
            ..shape()
        };
        a_late_fetch(Where::Here, shape);
    }
}

/// Holds `late`, which is not to come, and then line 1 while time passes; compares it at the beginning
/// and at the end.
#[kernel]
fn hold_two(n: Array<u32>, late: u64, ns: u64, counts: Atomics<u64>) -> Result<(), IoError> {
    if thread::index_1d() == 0 {
        let failed = n.line(late * PER_LINE, |_| ()).is_err();
        counts.at(0).store(u64::from(failed), Order::Relaxed);
        n.line(PER_LINE, |line| {
            let end = Native::now_ns() + ns;
            let mut turn = 0;
            loop {
                let is_over = Native::now_ns() >= end;
                for index in line.indices() {
                    if line.get(index) != Some((index as u32).wrapping_mul(0x9e37_79b9)) {
                        counts.at(1).fetch_add(1, Order::Relaxed);
                    }
                }
                if is_over {
                    break;
                }
                Native::pause(turn);
                turn += 1;
            }
        })?;
    }
    Ok(())
}

#[test]
fn a_late_read_lands_in_no_other_lines_buffer() {
    everywhere(|place| {
        let shape = Configuration {
            mode: CacheMode::None,
            ..shape()
        };
        let store = Store::open(place, Commands::Reads, shape);
        let counts = store.session.memory::<u64>(2).unwrap();
        let args = (
            *store.array(),
            LATE_LINE,
            LATE.as_nanos() as u64,
            counts.atomics(),
        );
        store.launch(&hold_two, args).unwrap();
        assert_eq!(
            counts.to_vec().unwrap(),
            [1, 0],
            "{place:?}: failed, and wrong"
        );
        store.wait_for(2, 0);
        store.neighbours_are_right(4);
        store.reopen(element);
    });
}

/// The first warp writes `late` whole, which fails, and then every odd line below 16.
#[kernel]
fn write_whole(n: ArrayMut<u32>, late: u64, failed: Atomics<u64>) -> Result<(), IoError> {
    if thread::index_1d() < 32 {
        let whole = |line: u64| n.write_line(line * PER_LINE, |index| Ok(MARK + index as u32));
        failed
            .at(0)
            .fetch_add(u64::from(whole(late).is_err()), Order::Relaxed);
        for line in 0..8 {
            whole(2 * line + 1)?;
        }
    }
    Ok(())
}

/// The same with the element in the middle of each line.
#[kernel]
fn write_ones(n: ArrayMut<u32>, late: u64, failed: Atomics<u64>) -> Result<(), IoError> {
    if thread::index_1d() == 0 {
        let one = |line: u64| {
            let index = line * PER_LINE + PER_LINE / 2;
            n.set(index, MARK + index as u32)
        };
        failed
            .at(0)
            .fetch_add(u64::from(one(late).is_err()), Order::Relaxed);
        for line in 0..8 {
            one(2 * line + 1)?;
        }
    }
    Ok(())
}

/// What is written beside the cache and carried out after its time ([WB-5]): `is_written` says of the
/// places in a line whether they are.
fn a_late_write<K>(place: Where, kernel: &K, lanes: u64, is_written: fn(u64) -> bool)
where
    K: Kernel<Args = <write_whole as Kernel>::Args>,
{
    let shape = Configuration {
        mode: CacheMode::None,
        ..shape()
    };
    let store = Store::open(place, Commands::Writes, shape);
    let failed = store.session.memory::<u64>(1).unwrap();
    let args = (store.array(), LATE_LINE, failed.atomics());
    store.launch(kernel, args).unwrap();
    assert_eq!(failed.to_vec().unwrap(), [lanes], "{place:?}");
    store.wait_for(0, 9);
    let expected = |index: u64| {
        let line = index / PER_LINE;
        let touched = line == LATE_LINE || line % 2 == 1 && line < 16;
        if touched && is_written(index % PER_LINE) {
            MARK + index as u32
        } else {
            element(index)
        }
    };
    for line in 0..LINES {
        let whole: Vec<u32> = (line * PER_LINE..(line + 1) * PER_LINE)
            .map(expected)
            .collect();
        assert_eq!(store.stored(line), whole, "{place:?}: line {line}");
    }
    let _ = store.session.finish();
}

#[test]
fn a_late_write_carries_no_other_lines_bytes() {
    everywhere(|place| {
        a_late_write(place, &write_whole, 32, |_| true);
        a_late_write(place, &write_ones, 1, |at| at == PER_LINE / 2);
    });
}

/// Sets the first element of a line.
#[kernel]
fn set_one(n: ArrayMut<u32>, line: u64) -> Result<(), IoError> {
    if thread::index_1d() == 0 {
        n.set(line * PER_LINE, MARK)?;
    }
    Ok(())
}

fn with_mark(index: u64) -> u32 {
    if index == LATE_LINE * PER_LINE {
        MARK
    } else {
        element(index)
    }
}

/// The write of a flush ([WB-2], [WB-4]).
#[test]
fn a_late_flush_writes_no_other_lines_slot() {
    everywhere(|place| {
        let store = Store::open(place, Commands::Writes, shape());
        store.launch(&set_one, (store.array(), LATE_LINE)).unwrap();
        // The second may have another queue, and is told all the same.
        for _ in 0..2 {
            let Err(Error::Flush { first, .. }) = store.session.flush() else {
                panic!("{place:?}: the line is not on its SSD");
            };
            assert_eq!(first.line(), LATE_LINE, "{place:?}");
        }
        // As many as there are slots.
        store.neighbours_are_right(4);
        store.wait_for(0, 1);
        assert_eq!(store.stored(LATE_LINE)[0], MARK, "{place:?}");
        assert_eq!(
            store.stored(LATE_LINE)[1],
            element(LATE_LINE * PER_LINE + 1)
        );
        store.neighbours_are_right(4);
        store.reopen(with_mark);
    });
}

/// The write of a line that gives way ([WB-4]): it may be as late as it likes.
#[test]
fn a_late_write_back_fails_nobody() {
    everywhere(|place| {
        let one_line = Configuration {
            cache_lines: 1,
            ..shape()
        };
        let store = Store::open(place, Commands::Writes, one_line);
        store.launch(&set_one, (store.array(), LATE_LINE)).unwrap();
        store.neighbours_are_right(1);
        store.wait_for(0, 1);
        store.neighbours_are_right(4);
        store.session.flush().unwrap();
        assert_eq!(store.session.injected_faults().unwrap(), [1], "{place:?}");
        assert_eq!(store.stored(LATE_LINE)[0], MARK, "{place:?}");
        store.reopen(with_mark);
    });
}
