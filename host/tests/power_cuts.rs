//! Power cuts under kernels that write, on host threads: what `Session::flush` confirmed is in the media
//! file, whenever the power goes ([PL-1] below the cache of lines).

mod store;

use std::path::Path;
use std::time::Duration;

use warpstore::device::prelude::*;
use warpstore::{Configuration, Medium, Session, SsdConfig, SsdSource};

/// Elements of the array: 32 lines, four times what the cache holds.
const ELEMENTS: u64 = 32 * 64;

/// Sets every element to its index and the round.
#[kernel]
fn stamp(numbers: ArrayMut<u64>, round: u64) -> Result<(), IoError> {
    for index in thread::grid_stride(numbers.len()) {
        numbers.set(index, round << 32 | index)?;
    }
    Ok(())
}

fn configuration(path: &Path) -> Configuration {
    let small = store::configuration();
    Configuration {
        ssd: SsdSource::Emulated(SsdConfig {
            medium: Medium::File {
                path: path.to_owned(),
                overwrite: false,
            },
            volatile_write_cache: true,
            ..store::ssd()
        }),
        depth: 16,
        timeout: Duration::from_millis(200),
        ..small
    }
}

/// Rounds of writes and flushes until the power is gone: the last that was confirmed, the last that
/// began.
fn work(session: &Session) -> (u64, u64) {
    let config = session.fill(&stamp).unwrap();
    let mut confirmed = 0;
    for round in 1.. {
        let numbers = session.array_mut("numbers").unwrap();
        if session.launch(&stamp, config, (numbers, round)).is_err() {
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

#[test]
fn what_a_flush_confirmed_is_there_after_a_power_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (mut behind, mut rounds) = (0, 0);
    for moment in 0..16u64 {
        // A session that could not be finished keeps its file.
        let path = folder.path().join(moment.to_string());
        let session = Session::open(configuration(&path), "").unwrap();
        let zeros: Vec<u64> = (0..ELEMENTS).collect();
        session.create_array("numbers", &zeros).unwrap();
        let (confirmed, last) = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Not a round number of rounds: they take about a millisecond.
                std::thread::sleep(Duration::from_micros(1500 + moment * 2737));
                session
                    .power_cut((moment % 2 == 0).then_some(moment))
                    .unwrap();
            });
            work(&session)
        });
        // The drive is gone: there is nothing to finish.
        session.finish().unwrap_err();
        let file = std::fs::read(&path).unwrap();
        let words = file
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word));
        for (index, word) in (0..ELEMENTS).zip(words) {
            let round = word >> 32;
            assert_eq!(word & 0xffff_ffff, index, "another element's value");
            assert!(
                (confirmed..=last).contains(&round),
                "element {index} is of round {round}, {confirmed} was confirmed, {last} the last"
            );
            behind += u64::from(round < last);
        }
        rounds += confirmed;
    }
    assert!(rounds > 0, "no flush was ever confirmed");
    assert!(behind > 0, "no write was ever lost");
}
