//! Power cuts under kernels that write, on host threads: what `Session::flush` confirmed is on the media,
//! whenever the power goes ([PL-1] below the cache of lines), and no LBA is torn.
//!
//! The power goes after a number of commands, not after a time. A session keeps the files of an SSD
//! whose power was cut, so copies are opened: by another session or, now and then, in another process.

mod store;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warpstore::device::CacheMode;
use warpstore::device::prelude::*;
use warpstore::{Configuration, Medium, Session, SsdConfig, SsdSource};

/// Elements of each array: 32 LBAs, four times what the cache holds.
const ELEMENTS: u64 = 32 * PER_LBA;
/// Elements of an LBA.
const PER_LBA: u64 = 64;
/// Moments of a cut.
const MOMENTS: u64 = 102;
/// Every so many of them are looked at by another process.
const OTHER_PROCESS: u64 = 11;
/// Commands up to the last moment: some rounds.
const COMMANDS: u64 = 300;

/// Stamps every element with the round: those of `single` one by one, in the cache, so that an LBA may
/// have elements of different rounds; those of `whole` by the line, which goes to its SSD as it is.
#[kernel]
fn stamp(single: ArrayMut<u64>, whole: ArrayMut<u64>, round: u64) -> Result<(), IoError> {
    for index in thread::grid_stride(single.len()) {
        single.set(index, round << 32 | index)?;
    }
    let mut first = thread::index_1d() / 32 * whole.elements_per_line();
    while first < whole.len() {
        whole.write_line(first, |index| Ok(round << 32 | index))?;
        first += thread::grid_size() / 32 * whole.elements_per_line();
    }
    Ok(())
}

/// How often a command has to come before the power goes, and over what.
#[derive(Clone, Copy, Debug)]
struct Moment {
    seed: u64,
    commands: u64,
    mode: CacheMode,
    ssds: u32,
    /// LBAs of a line.
    line_lbas: u32,
}

impl Moment {
    fn of(seed: u64) -> Self {
        let modes = [CacheMode::Optimistic, CacheMode::None, CacheMode::BamReuse];
        // Multiples of the golden ratio: spread evenly, for each configuration too.
        let commands = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % COMMANDS;
        Self {
            seed,
            commands,
            mode: modes[seed as usize % 3],
            ssds: 1 + seed as u32 / 3 % 2,
            line_lbas: 1 + seed as u32 / 6 % 2,
        }
    }

    fn configuration(self, folder: &Path) -> Configuration {
        let small = store::configuration();
        let line_bytes = 512 * self.line_lbas;
        Configuration {
            ssd: SsdSource::Emulated(SsdConfig {
                medium: Medium::File {
                    path: folder.join("ssd"),
                    overwrite: false,
                },
                bytes: 64 << 10,
                volatile_write_cache: true,
                ..store::ssd()
            }),
            ssds: self.ssds,
            mode: self.mode,
            line_bytes,
            stripe_bytes: u64::from(line_bytes),
            depth: 16,
            timeout: Duration::from_millis(50),
            ..small
        }
    }
}

/// The rounds that may be found: the last that was confirmed, and the last that began.
type Rounds = (u64, u64);

/// Rounds of writes and flushes until the power is gone.
fn work(session: &Session) -> Rounds {
    let config = session.fill(&stamp).unwrap();
    let array = |name| session.array_mut(name).unwrap();
    let mut confirmed = 0;
    for round in 1.. {
        let args = (array("single"), array("whole"), round);
        if session.launch(&stamp, config, args).is_err() {
            return (confirmed, round);
        }
        // Every third round is not flushed: the SSD has what the cache had no room for.
        if round % 3 != 0 {
            if session.flush().is_err() {
                return (confirmed, round);
            }
            confirmed = round;
        }
    }
    unreachable!("the power is cut")
}

/// Works until the power is gone, and leaves what is on the media in `copy`.
fn cut(moment: Moment, copy: &Path) -> Rounds {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::open(moment.configuration(folder.path()), "").unwrap();
    let zeros: Vec<u64> = (0..ELEMENTS).collect();
    session.create_array("single", &zeros).unwrap();
    session.create_array("whole", &zeros).unwrap();
    let has_ended = AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        scope.spawn(|| {
            let completed = || {
                let counts = session.counts().unwrap().unwrap();
                counts.reads + counts.writes + counts.flushes
            };
            while completed() < moment.commands && !has_ended.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let seed = moment.seed;
            session
                .power_cut(seed.is_multiple_of(2).then_some(seed))
                .unwrap();
        });
        let rounds = work(&session);
        has_ended.store(true, Ordering::Relaxed);
        rounds
    });
    // The drives are gone: there is nothing to finish.
    session.finish().unwrap_err();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    rounds
}

/// Compares every element and every LBA in `folder`; how many elements are older than the last round.
fn check(moment: Moment, folder: &Path, (confirmed, last): Rounds) -> u64 {
    let session = Session::open(moment.configuration(folder), "").unwrap();
    let mut behind = 0;
    for name in ["single", "whole"] {
        session.existing_array::<u64>(name, ELEMENTS).unwrap();
        let stored = session.stored::<u64>(name).unwrap();
        for (index, word) in (0..).zip(&stored) {
            let round = word >> 32;
            assert_eq!(
                word & 0xffff_ffff,
                index,
                "{moment:?}: another element's value"
            );
            assert!(
                (confirmed..=last).contains(&round),
                "{moment:?}: element {index} of {name} is of round {round}, {confirmed} was \
                 confirmed, {last} the last"
            );
            behind += u64::from(round < last);
        }
        for (lba, words) in (0..).zip(stored.chunks(PER_LBA as usize)) {
            let round = words[0] >> 32;
            let is_torn = name == "whole" && words.iter().any(|word| word >> 32 != round);
            assert!(!is_torn, "{moment:?}: LBA {lba} is torn: {words:x?}");
        }
    }
    session.finish().unwrap();
    behind
}

const OTHER: &str = "WARPSTORE_TEST_POWER_CUT";

/// What [`check`] does, in a process of its own.
fn check_elsewhere(moment: Moment, folder: &Path, (confirmed, last): Rounds) {
    let mut other = Command::new(std::env::current_exe().unwrap());
    let what = format!("{} {confirmed} {last}", moment.seed);
    let output = other
        .args(["another_process_finds_what_was_confirmed", "--exact"])
        .arg("--ignored")
        .env(OTHER, what)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "a part of the other test, which runs it in a process of its own"]
fn another_process_finds_what_was_confirmed() {
    let what = std::env::var(OTHER).expect("what to look for");
    let numbers: Vec<u64> = what.split(' ').map(|word| word.parse().unwrap()).collect();
    let folder = std::env::current_dir().unwrap();
    check(Moment::of(numbers[0]), &folder, (numbers[1], numbers[2]));
}

#[test]
fn what_a_flush_confirmed_is_there_after_a_power_cut() {
    let (mut behind, mut rounds) = (0, 0);
    for seed in 0..MOMENTS {
        let moment = Moment::of(seed);
        let copy = tempfile::tempdir().unwrap();
        let found = cut(moment, copy.path());
        // First the other process, since whoever ends a session well leaves the files changed.
        if seed % OTHER_PROCESS == OTHER_PROCESS - 1 {
            check_elsewhere(moment, copy.path(), found);
        }
        behind += check(moment, copy.path(), found);
        rounds += found.0;
    }
    assert!(rounds > 0, "no flush was ever confirmed");
    assert!(behind > 0, "no write was ever lost");
}
