//! Kernels on host threads against emulated SSDs: the whole stack, without a GPU.
//!
//! Seeded interleaving also draws who counts as converged, so accesses run both as whole warps and
//! as lanes alone ([HW-2]).
//!
//! The configurations are chosen to hurt: buffers beside the cache change hands all the time
//! ([BB-1], [BB-2]), and rings, slots and buffers are so few that a circle of waiting would close
//! ([DL-1]).

mod store;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpstore::device::prelude::*;
use warpstore::device::{CacheMode, Layout};
use warpstore::{
    BlocksConfig, Configuration, LaunchConfig, Profile, Protocol, Session, SsdConfig, SsdSource,
    Target,
};

/// Sums the elements of each row; rows are given by `offsets`.
#[kernel]
fn row_sums(
    elements: Array<u32>,
    offsets: Global<u64>,
    mut sums: DisjointSlice<u64>,
) -> Result<(), IoError> {
    for row in thread::grid_stride(sums.len()) {
        let mut sum = 0;
        let first = offsets.get(row).unwrap_or(0);
        for element in elements.range(first..offsets.get(row + 1).unwrap_or(first)) {
            sum += u64::from(element?);
        }
        sums.set(row, sum);
    }
    Ok(())
}

/// Sums every element with `get`, with `get2` and through held lines, three ways into three sums.
#[kernel]
fn three_sums(elements: Array<u64>, sums: Atomics<u64>) -> Result<(), IoError> {
    let n = elements.len();
    for index in thread::grid_stride(n) {
        sums.at(0).fetch_add(elements.get(index)?, Order::Relaxed);
        let (one, two) = elements.get2(index, n - 1 - index)?;
        sums.at(1).fetch_add(one.wrapping_add(two), Order::Relaxed);
    }
    let warps = thread::grid_size() / 32;
    let mut first = thread::index_1d() / 32 * 32;
    while first < n {
        let index = first + u64::from(warp::lane_id());
        elements.line(first, |line| {
            if let Some(value) = line.get(index) {
                sums.at(2).fetch_add(value, Order::Relaxed);
            }
        })?;
        first += warps * 32;
    }
    Ok(())
}

/// Lets one test run at a time: each keeps three threads busy, and on two cores those of two tests
/// would mostly wait for a turn of another one's.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ssd() -> SsdConfig {
    SsdConfig {
        bytes: 4 << 20,
        ..store::ssd()
    }
}

fn configuration() -> Configuration {
    let small = store::configuration();
    Configuration {
        ssd: SsdSource::Emulated(ssd()),
        cache_lines: 64,
        ..small
    }
}

/// Every pair of values of two options occurs: the volume, the line with its number, and the
/// mode with its depth; and each of the baselines with each volume and each line. A queue of BaM's
/// admits all 64 lanes with this depth, and no more.
fn variants() -> Vec<Configuration> {
    let volumes = [
        (1, Layout::Stripe),
        (3, Layout::Stripe),
        (2, Layout::Replicate),
    ];
    let lines = [(512, 1), (512, 64), (4096, 2), (65536, 7)];
    let ways = [
        (CacheMode::Optimistic, 2),
        (CacheMode::Optimistic, 64),
        (CacheMode::None, 4),
    ];
    let baselines = [(Protocol::Bam, 64), (Protocol::Lock, 2)];
    let mut variants = Vec::new();
    let mut variant = |volume: usize, line: usize, mode, protocol, depth| {
        let (ssds, layout) = volumes[volume % volumes.len()];
        let (line_bytes, cache_lines) = lines[line];
        variants.push(Configuration {
            ssds,
            layout,
            line_bytes,
            stripe_bytes: u64::from(line_bytes),
            cache_lines,
            mode,
            protocol,
            depth,
            ..configuration()
        });
    };
    for line in 0..lines.len() {
        for volume in 0..volumes.len() {
            // A Latin square: each way once beside each volume and each line.
            let (mode, depth) = ways[(volume + line) % ways.len()];
            variant(volume, line, mode, Protocol::Hop, depth);
        }
        for (protocol, depth) in baselines {
            variant(line, line, CacheMode::Optimistic, protocol, depth);
        }
    }
    variants
}

#[test]
fn ranges_read_what_was_written_in_every_configuration() {
    let _alone = alone();
    let elements: Vec<u32> = (0..3000u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let offsets: Vec<u64> = (0..=300u64).map(|row| (row * row / 30).min(3000)).collect();
    let expected: Vec<u64> = offsets
        .windows(2)
        .map(|row| {
            elements[row[0] as usize..row[1] as usize]
                .iter()
                .map(|&x| u64::from(x))
                .sum()
        })
        .collect();
    for (seed, configuration) in variants().into_iter().enumerate() {
        let about = format!("{configuration:?}");
        let session = Session::open_interleaved(configuration, seed as u64).unwrap();
        let array = session.create_array("elements", &elements).unwrap();
        let offsets = session.upload(&offsets).unwrap();
        let sums = session.memory::<u64>(expected.len() as u64).unwrap();
        let config = session.fill(&row_sums).unwrap();
        session
            .launch(
                &row_sums,
                config,
                (array, offsets.global(), sums.disjoint()),
            )
            .unwrap_or_else(|error| panic!("{error} with {about}"));
        assert_eq!(sums.to_vec().unwrap(), expected, "with {about}");
        assert!(session.counts().unwrap().unwrap().reads > 0);
        session.finish().unwrap();
    }
}

#[test]
fn get_get2_and_held_lines_agree() {
    let _alone = alone();
    let elements: Vec<u64> = (0..700u64).map(|i| i * i).collect();
    let sum: u64 = elements.iter().sum();
    for (seed, configuration) in variants().into_iter().enumerate() {
        let about = format!("{configuration:?}");
        let session = Session::open_interleaved(configuration, seed as u64).unwrap();
        let array = session.create_array("squares", &elements).unwrap();
        let sums = session.memory::<u64>(3).unwrap();
        let config = session.fill(&three_sums).unwrap();
        session
            .launch(&three_sums, config, (array, sums.atomics()))
            .unwrap_or_else(|error| panic!("{error} with {about}"));
        assert_eq!(sums.to_vec().unwrap(), [sum, 2 * sum, sum], "with {about}");
    }
}

#[test]
fn handles_of_another_session_are_refused() {
    let session = Session::open(configuration(), "").unwrap();
    let other = Session::open(configuration(), "").unwrap();
    let array = session.create_array("elements", &[1u32, 2, 3]).unwrap();
    let foreign = other.create_array("elements", &[1u32, 2, 3]).unwrap();
    let offsets = session.upload(&[0u64, 3]).unwrap();
    let sums = session.memory::<u64>(1).unwrap();
    let config = session.fill(&row_sums).unwrap();
    let launch = |array, offsets: &warpstore::Memory<u64>| {
        session.launch(
            &row_sums,
            config,
            (array, offsets.global(), sums.disjoint()),
        )
    };
    launch(array, &offsets).unwrap();
    assert_eq!(sums.to_vec().unwrap(), [6]);
    let error = launch(foreign, &offsets).unwrap_err().to_string();
    assert!(
        error.starts_with("argument 0 of kernel row_sums"),
        "{error}"
    );
    let elsewhere = other.upload(&[0u64, 3]).unwrap();
    let error = launch(array, &elsewhere).unwrap_err().to_string();
    assert!(
        error.starts_with("argument 1 of kernel row_sums"),
        "{error}"
    );
}

/// Reads one element beyond the array.
#[kernel]
fn beyond(elements: Array<u32>) -> Result<(), IoError> {
    elements.get(elements.len())?;
    Ok(())
}

#[test]
fn an_index_outside_is_an_error_of_the_launch() {
    let session = Session::open(configuration(), "").unwrap();
    let array = session.create_array("elements", &[1u32, 2, 3]).unwrap();
    let config = session.fill(&beyond).unwrap();
    let error = session.launch(&beyond, config, (array,)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("64 lanes failed"), "{text}");
    assert!(text.contains("index 3 lies outside the array"), "{text}");
}

#[test]
fn an_aborted_session_ends_waits_with_the_reason() {
    let session = Session::open(configuration(), "").unwrap();
    let elements: Vec<u32> = (0..6000).collect();
    let array = session.create_array("elements", &elements).unwrap();
    assert_eq!(session.array::<u32>("elements").unwrap().len(), 6000);
    assert!(session.array::<u64>("elements").is_err());
    let offsets = session.upload(&[0u64, 6000]).unwrap();
    let sums = session.memory::<u64>(1).unwrap();
    let config = session.fill(&row_sums).unwrap();
    session.abort().unwrap();
    let args = (array, offsets.global(), sums.disjoint());
    let text = session
        .launch(&row_sums, config, args)
        .unwrap_err()
        .to_string();
    assert!(text.contains("the host stopped the kernel"), "{text}");
}

/// [BQ-7]
#[test]
fn bam_admits_a_lane_less_than_a_queue_has_entries() {
    let bam = Configuration {
        protocol: Protocol::Bam,
        ..configuration()
    };
    // One warp for each of the two queues.
    assert_eq!(bam.admitted_lanes(), 64);
    let session = Session::open(
        Configuration {
            target: Target::Threads { lanes: 256 },
            ..bam.clone()
        },
        "",
    )
    .unwrap();
    let array = session.create_array("elements", &[1u32, 2, 3]).unwrap();
    let offsets = session.upload(&[0u64, 3]).unwrap();
    let sums = session.memory::<u64>(1).unwrap();
    let launch = |config| {
        let args = (array, offsets.global(), sums.disjoint());
        session.launch(&row_sums, config, args)
    };
    let fitting = session.fill(&row_sums).unwrap();
    assert_eq!(fitting.lanes(), 64);
    launch(fitting).unwrap();
    assert_eq!(sums.to_vec().unwrap(), [6]);
    let text = launch(LaunchConfig {
        blocks: fitting.blocks + 1,
        ..fitting
    })
    .unwrap_err()
    .to_string();
    assert!(text.contains("with 96 lanes is refused"), "{text}");
    assert!(
        text.contains("32 lanes (depth - 1, in whole warps)"),
        "{text}"
    );
    let shallow = Configuration { depth: 32, ..bam };
    let text = Session::open(shallow, "").err().unwrap().to_string();
    assert!(text.contains("depth must be at least 64"), "{text}");
}

#[test]
fn memory_that_cannot_be_is_refused() {
    let session = Session::open(configuration(), "").unwrap();
    assert!(session.memory::<u64>(u64::MAX / 4).is_err());
}

/// Lets one warp read block 0 into a buffer for each of its lanes.
#[kernel]
fn read_block(blocks: Blocks, reader: u64, first_buffer: u64) -> Result<(), IoError> {
    if thread::index_1d() / 32 == reader {
        blocks.read(0, 0, first_buffer + u64::from(warp::lane_id()))?;
    }
    Ok(())
}

#[test]
fn a_buffer_whose_command_never_came_back_is_refused() {
    let _alone = alone();
    for protocol in [Protocol::Hop, Protocol::Bam, Protocol::Lock] {
        a_lost_buffer_is_refused(protocol);
    }
}

fn a_lost_buffer_is_refused(protocol: Protocol) {
    // Completions come long after the deadline.
    let profile = Profile {
        occupation_ns: [1; 4],
        min_latency_ns: [2_000_000_000; 2],
        ..Profile::IDEAL
    };
    let ssd = SsdSource::Emulated(SsdConfig { profile, ..ssd() });
    let session = Session::open(
        Configuration {
            ssd,
            blocks: Some(BlocksConfig {
                count: 64,
                bytes: 512,
            }),
            timeout: Duration::from_millis(20),
            protocol,
            ..configuration()
        },
        "",
    )
    .unwrap();
    let config = session.fill(&read_block).unwrap();
    let read = |reader: u64, first_buffer: u64| {
        let args = (session.blocks(), reader, first_buffer);
        session
            .launch(&read_block, config, args)
            .unwrap_err()
            .to_string()
    };
    let text = read(0, 0);
    assert!(text.contains("before the deadline"), "{text}");
    // The other warp's queue is alive, but these buffers may still be written.
    let text = read(1, 0);
    assert!(text.contains("was given up"), "{text}");
    let text = read(1, 32);
    assert!(text.contains("before the deadline"), "{text}");
}
