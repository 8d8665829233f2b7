//! [DL-1]: more lanes than the cache has room for, held lines in every warp, dirty lines everywhere,
//! striped SSDs, rings of any depth. A circle of waiting would end in an error after the deadline.

mod store;

use std::num::NonZeroU64;
use std::time::Duration;

use warpstore::device::CacheMode;
use warpstore::device::counted::{Bam, BamReuse, Counted, Naive};
use warpstore::device::launch::Kernel;
use warpstore::device::prelude::*;
use warpstore::{Configuration, Session, Target};
use warpstore_kernels::crowd::{Crowd, crowd, join};

const LANES: u32 = 1024;
/// More than either half of the buffers beside the cache.
const MANY_LANES: u32 = 4096;
const ELEMENTS: NonZeroU64 = NonZeroU64::new(64 * 256).unwrap();

macro_rules! crowds {
    ($($name:ident $manner:ident),*) => {$(
        #[kernel]
        fn $name(numbers: ArrayMut<u64>, sums: ArrayMut<u64>, rounds: u64) -> Result<(), IoError> {
            join(Counted::<u64, $manner>::of(*numbers), numbers, sums, rounds)
        }
    )*};
}
crowds!(crowd_naive Naive, crowd_bam Bam, crowd_reuse BamReuse);

fn configuration() -> Configuration {
    Configuration {
        target: Target::Threads { lanes: LANES },
        ssds: 3,
        cache_lines: 64,
        timeout: Duration::from_secs(120),
        ..store::configuration()
    }
}

fn everybody_ends(lanes: u32, depth: u32, cache_lines: u64, mode: CacheMode) {
    match mode {
        CacheMode::None | CacheMode::Optimistic => {
            everybody_ends_by(&crowd, lanes, depth, cache_lines, mode);
        }
        CacheMode::Naive => everybody_ends_by(&crowd_naive, lanes, depth, cache_lines, mode),
        CacheMode::Bam => everybody_ends_by(&crowd_bam, lanes, depth, cache_lines, mode),
        CacheMode::BamReuse => everybody_ends_by(&crowd_reuse, lanes, depth, cache_lines, mode),
    }
}

fn everybody_ends_by<K: Kernel<Args = <crowd as Kernel>::Args>>(
    kernel: &K,
    lanes: u32,
    depth: u32,
    cache_lines: u64,
    mode: CacheMode,
) {
    let configuration = Configuration {
        target: Target::Threads { lanes },
        depth,
        cache_lines,
        mode,
        ..configuration()
    };
    let session = Session::open(configuration, "").unwrap();
    session
        .create_array("numbers", &vec![0u64; ELEMENTS.get() as usize])
        .unwrap();
    session
        .create_array("sums", &vec![0u64; ELEMENTS.get() as usize])
        .unwrap();
    let (rounds, lanes) = (3, u64::from(lanes));
    let config = session.fill(kernel).unwrap();
    let args = (
        session.array_mut("numbers").unwrap(),
        session.array_mut("sums").unwrap(),
        rounds,
    );
    session.launch(kernel, config, args).unwrap();
    session.flush().unwrap();
    let stored = |name| session.stored::<u64>(name).unwrap();
    let run = Crowd {
        elements: ELEMENTS,
        line: 64,
    };
    let difference = run.difference(lanes, rounds, &stored("numbers"), &stored("sums"));
    assert_eq!(difference, None);
    session.finish().unwrap();
}

#[test]
fn a_crowd_on_rings_of_two() {
    everybody_ends(LANES, 2, 64, CacheMode::Optimistic);
}

#[test]
fn a_crowd_on_rings_of_four() {
    everybody_ends(LANES, 4, 64, CacheMode::Optimistic);
}

#[test]
fn a_crowd_on_rings_of_sixty_four() {
    everybody_ends(LANES, 64, 64, CacheMode::Optimistic);
}

#[test]
fn a_crowd_on_one_line() {
    everybody_ends(LANES, 64, 1, CacheMode::Optimistic);
}

#[test]
fn a_crowd_without_a_cache() {
    everybody_ends(LANES, 64, 64, CacheMode::None);
}

#[test]
fn a_crowd_of_more_lanes_than_buffers() {
    everybody_ends(MANY_LANES, 1024, 64, CacheMode::None);
}

#[test]
fn a_crowd_that_counts_itself_one_by_one() {
    everybody_ends(LANES, 64, 1, CacheMode::Naive);
}

#[test]
fn a_crowd_that_counts_itself_by_warps() {
    everybody_ends(LANES, 4, 64, CacheMode::Bam);
}

/// Each lane keeps a line all the while: more lines than there are slots.
#[test]
fn a_crowd_of_which_each_keeps_a_line() {
    everybody_ends(LANES, 2, 64, CacheMode::BamReuse);
    everybody_ends(LANES, 64, 1, CacheMode::BamReuse);
}

/// Writes an element, then reads one of another line.
#[kernel]
fn write_then_read(numbers: ArrayMut<u64>, write: u64, read: u64) -> Result<(), IoError> {
    numbers.set(write, 1)?;
    numbers.get(read)?;
    Ok(())
}

/// Reads an element.
#[kernel]
fn read_one(numbers: Array<u64>, index: u64) -> Result<(), IoError> {
    numbers.get(index)?;
    Ok(())
}

/// The only slot holds a dirty line of one SSD, and the only warp wants a line of another: it has to
/// drain the queue that it has written to, since nobody else does.
#[test]
fn a_dirty_line_of_another_ssd_gives_way() {
    let configuration = Configuration {
        target: Target::Threads { lanes: 32 },
        cache_lines: 1,
        timeout: Duration::from_secs(5),
        ..configuration()
    };
    let session = Session::open(configuration, "").unwrap();
    session.create_array("numbers", &[0u64; 192]).unwrap();
    let numbers = session.array_mut("numbers").unwrap();
    let config = session.fill(&write_then_read).unwrap();
    session
        .launch(&write_then_read, config, (numbers, 0, 64))
        .unwrap();
    // It was written to make room, and not by the flush.
    assert_eq!(session.stored::<u64>("numbers").unwrap()[0], 1);
    // The other line took its slot, and did not go round the cache.
    let before = session.counts().unwrap().unwrap().reads;
    session.launch(&read_one, config, (*numbers, 64)).unwrap();
    assert_eq!(session.counts().unwrap().unwrap().reads, before);
    session.finish().unwrap();
}
