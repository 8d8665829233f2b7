//! Reads by reference counts, the baselines: right in caches of any size, and no lane leaves a pin
//! behind.

mod store;

use warpstore::device::CacheMode;
use warpstore::device::counted::{Bam, BamReuse, Counted, Naive, Reader};
use warpstore::device::launch::Kernel;
use warpstore::device::prelude::*;
use warpstore::{Configuration, Session};

/// Elements of a line.
const PER_LINE: u64 = 64;
const ELEMENTS: u64 = 20 * PER_LINE;

/// Adds up what it reads here and there, and what it should have read: every element is three
/// times its index.
fn wander(mut reader: impl Reader<u64>, rounds: u64, sums: Atomics<u64>) -> Result<(), IoError> {
    let (lane, n) = (thread::index_1d(), reader.len());
    let (mut found, mut indices) = (0, 0);
    for round in 0..rounds {
        // A line for the warp, a line for each lane, two lines in turn.
        for index in [
            (lane + round * 32) % n,
            (lane * PER_LINE + round * 7) % n,
            round % 2 * PER_LINE + lane % PER_LINE,
        ] {
            found += reader.get(index)?;
            indices += index;
        }
        // Lanes of a warp part here.
        let first = (lane * 37 + round * 11) % (n - 8);
        for index in first..first + lane % 8 {
            found += reader.get(index)?;
            indices += index;
        }
        for (index, element) in (first..first + 8).zip(reader.range(first..first + 8)) {
            found += element?;
            indices += index;
        }
    }
    sums.at(0).fetch_add(found, Order::Relaxed);
    sums.at(1).fetch_add(indices * 3, Order::Relaxed);
    Ok(())
}

/// Reads the first line, then the second, then the first, all lanes together.
fn go_and_come(mut reader: impl Reader<u64>) -> Result<(), IoError> {
    let lane = u64::from(warp::lane_id());
    for line in [0, 0, 1, 1, 0, 0] {
        reader.get(line * PER_LINE + lane)?;
    }
    Ok(())
}

macro_rules! kernels {
    ($manner:ident, $wander:ident, $go_and_come:ident) => {
        #[kernel]
        fn $wander(array: Array<u64>, rounds: u64, sums: Atomics<u64>) -> Result<(), IoError> {
            wander(Counted::<u64, $manner>::of(array), rounds, sums)
        }

        #[kernel]
        fn $go_and_come(array: Array<u64>) -> Result<(), IoError> {
            go_and_come(Counted::<u64, $manner>::of(array))
        }
    };
}
kernels!(Naive, wander_naive, go_and_come_naive);
kernels!(Bam, wander_bam, go_and_come_bam);
kernels!(BamReuse, wander_reuse, go_and_come_reuse);

fn configuration(mode: CacheMode, cache_lines: u64) -> Configuration {
    Configuration {
        mode,
        cache_lines,
        ..store::configuration()
    }
}

fn elements() -> Vec<u64> {
    (0..ELEMENTS).map(|index| index * 3).collect()
}

fn wandering_reads_what_is_there<K: Kernel<Args = <wander_naive as Kernel>::Args>>(
    kernel: &K,
    mode: CacheMode,
) {
    for (seed, cache_lines) in [1, 2, 7, 64, 1, 2, 7].into_iter().enumerate() {
        let configuration = configuration(mode, cache_lines);
        let session = Session::open_interleaved(configuration, seed as u64).unwrap();
        let array = session.create_array("elements", &elements()).unwrap();
        let sums = session.memory::<u64>(2).unwrap();
        let config = session.fill(kernel).unwrap();
        let args = (array, 8, sums.atomics());
        session
            .launch(kernel, config, args)
            .unwrap_or_else(|error| panic!("{error} with {cache_lines} lines, seed {seed}"));
        let [found, expected] = sums.to_vec().unwrap()[..] else {
            panic!("two sums")
        };
        assert_eq!(found, expected, "{cache_lines} lines, seed {seed}");
        session.finish().unwrap();
    }
}

/// [RC-1], [RC-3]
#[test]
fn naive_lanes_read_what_is_there() {
    wandering_reads_what_is_there(&wander_naive, CacheMode::Naive);
}

/// [RC-1], [RC-3]
#[test]
fn coalesced_lanes_read_what_is_there() {
    wandering_reads_what_is_there(&wander_bam, CacheMode::Bam);
}

/// [RC-1], [RC-3], [RC-4]
#[test]
fn lanes_that_keep_a_line_read_what_is_there() {
    wandering_reads_what_is_there(&wander_reuse, CacheMode::BamReuse);
}

/// Two lines in a cache that holds both are read once each. Afterwards either gives way to a third:
/// a line that was still pinned would stay, and the others go round the cache.
fn no_pin_is_left<K: Kernel<Args = <go_and_come_naive as Kernel>::Args>>(
    kernel: &K,
    mode: CacheMode,
) {
    let session = Session::open(configuration(mode, 2), "").unwrap();
    let array = session.create_array("elements", &elements()).unwrap();
    let others = session
        .create_array("others", &vec![1u64; 2 * PER_LINE as usize])
        .unwrap();
    let config = session.fill(kernel).unwrap();
    session.launch(kernel, config, (array,)).unwrap();
    assert_eq!(
        session.counts().unwrap().unwrap().reads,
        2,
        "the rest are hits"
    );
    let mut reads = Vec::new();
    for _ in 0..4 {
        session.launch(kernel, config, (others,)).unwrap();
        reads.push(session.counts().unwrap().unwrap().reads);
    }
    assert_eq!(reads[1..], [reads[0]; 3], "other lines take the slots");
    session.finish().unwrap();
}

/// [RC-3]
#[test]
fn naive_lanes_leave_no_pin() {
    no_pin_is_left(&go_and_come_naive, CacheMode::Naive);
}

/// [RC-3]
#[test]
fn coalesced_lanes_leave_no_pin() {
    no_pin_is_left(&go_and_come_bam, CacheMode::Bam);
}

/// [RC-4]
#[test]
fn lanes_that_kept_a_line_leave_no_pin() {
    no_pin_is_left(&go_and_come_reuse, CacheMode::BamReuse);
}

#[test]
fn more_lanes_than_a_count_holds_are_refused() {
    let configuration = Configuration {
        target: warpstore::Target::Threads { lanes: 1 << 20 },
        ..configuration(CacheMode::Naive, 1)
    };
    let error = configuration.check().unwrap_err().to_string();
    assert!(error.contains("MAX_COUNTED_LANES"), "{error}");
}
