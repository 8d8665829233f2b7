//! Elements of every size, and what `fetch_add` returns, on host threads against emulated SSDs.
//!
//! Lanes set neighbours of less than a word at the same time, and draw numbers from the same counters:
//! a change that takes a neighbour's bytes with it, or an addition that two lanes see the same result
//! of, shows in what is read back and on the media.

mod store;

use std::time::Duration;

use proptest::prelude::*;
use warpstore::device::launch::Kernel;
use warpstore::device::prelude::*;
use warpstore::device::{Addend, CacheMode, Element};
use warpstore::{Configuration, Protocol, Session};

const LANES: u64 = 64;

fn configuration(mode: CacheMode, cache_lines: u64) -> Configuration {
    Configuration {
        mode,
        cache_lines,
        ssds: 2,
        // Without a cache lanes change one line one after the other, a command or two each.
        timeout: Duration::from_secs(120),
        ..store::configuration()
    }
}

const MODES: [CacheMode; 5] = [
    CacheMode::Optimistic,
    CacheMode::None,
    CacheMode::Naive,
    CacheMode::Bam,
    CacheMode::BamReuse,
];
const CACHES: [u64; 4] = [1, 2, 7, 64];

/// Every mode with every cache.
fn shapes() -> impl Iterator<Item = (CacheMode, u64)> {
    let caches = |mode| match mode {
        CacheMode::None => &CACHES[..1],
        _ => &CACHES[..],
    };
    let pairs = move |mode| caches(mode).iter().map(move |&lines| (mode, lines));
    MODES.into_iter().flat_map(pairs)
}

/// Counters: some in one line, some in lines of their own.
const COUNTERS: u64 = 4;
/// How often each lane draws from each.
const ROUNDS: u64 = 2;
const DRAWS: u64 = LANES * ROUNDS;

/// The element that is counter `counter`.
const fn place(counter: u64) -> u64 {
    [0, 1, 300, 777][counter as usize % 4]
}

/// Adds 1 to each counter, in every other round each lane to another one; `drawn` has room for what each
/// draw returned.
fn draw_all<T: Addend>(
    counters: ArrayMut<T>,
    one: T,
    mut drawn: DisjointSlice<T>,
) -> Result<(), IoError> {
    let lane = thread::index_1d();
    for round in 0..ROUNDS {
        for turn in 0..COUNTERS {
            let shift = if round % 2 == 0 { 0 } else { lane };
            let counter = (turn + shift) % COUNTERS;
            let before = counters.fetch_add(place(counter), one)?;
            drawn.set(counter * DRAWS + round * LANES + lane, before);
        }
    }
    Ok(())
}

macro_rules! draws {
    ($($name:ident: $type:ident;)*) => {$(
        #[kernel]
        fn $name(counters: ArrayMut<$type>, drawn: DisjointSlice<$type>) -> Result<(), IoError> {
            draw_all(counters, 1, drawn)
        }
    )*};
}
draws! {
    draw_u32: u32;
    draw_i32: i32;
    draw_u64: u64;
    draw_i64: i64;
}

/// `first + n`, wrapping, for the lanes' draws: each number is drawn once, by whomever.
fn numbers_are_drawn_once<T, K>(
    kernel: &K,
    configuration: &Configuration,
    seed: u64,
    at: fn(u64) -> T,
) where
    T: Addend + Ord + core::fmt::Debug,
    K: Kernel<Args = (ArrayMut<T>, DisjointSlice<T>)>,
{
    let session = Session::open_interleaved(configuration.clone(), seed).unwrap();
    session.create_array("counters", &[at(0); 1000]).unwrap();
    let drawn = session.memory::<T>(COUNTERS * DRAWS).unwrap();
    let config = session.fill(kernel).unwrap();
    let args = (session.array_mut("counters").unwrap(), drawn.disjoint());
    session.launch(kernel, config, args).unwrap();
    let mut expected: Vec<T> = (0..DRAWS).map(at).collect();
    expected.sort_unstable();
    let drawn = drawn.to_vec().unwrap();
    for (counter, drawn) in (0..).zip(drawn.chunks(DRAWS as usize)) {
        let mut drawn = drawn.to_vec();
        drawn.sort_unstable();
        assert_eq!(drawn, expected, "counter {counter} with {configuration:?}");
    }
    session.flush().unwrap();
    let mut last = [at(0); 1000];
    (0..COUNTERS).for_each(|counter| last[place(counter) as usize] = at(DRAWS));
    assert_eq!(session.stored::<T>("counters").unwrap(), last);
    session.finish().unwrap();
}

#[test]
fn every_number_is_drawn_once() {
    for (seed, (mode, cache_lines)) in (0..).zip(shapes()) {
        let one = configuration(mode, cache_lines);
        // Beginning a little below the end of each type, so that they wrap.
        numbers_are_drawn_once(&draw_u32, &one, seed, |n| (n as u32).wrapping_sub(50));
        numbers_are_drawn_once(&draw_i64, &one, seed, |n| {
            i64::MAX.wrapping_add(n as i64 - 50)
        });
        let other = Configuration {
            protocol: [Protocol::Lock, Protocol::Bam][seed as usize % 2],
            ..one
        };
        numbers_are_drawn_once(&draw_i32, &other, seed, |n| {
            i32::MAX.wrapping_add(n as i32 - 50)
        });
        numbers_are_drawn_once(&draw_u64, &other, seed, |n| n.wrapping_sub(50));
    }
}

/// Elements of each array, in the sizes below 1 to 10 lines; element `i` is lane `i % LANES`'s.
const ELEMENTS: u64 = 320;
/// Operations of each lane.
const EACH: u64 = 6;

/// What one operation does, in the top bits of its word; anything else sets through a held line.
const GET: u64 = 0;
const SET: u64 = 1;

/// An element that is made of a number, so that all of its bytes change with that.
trait Sample: Element + PartialEq + core::fmt::Debug {
    fn of(number: u64) -> Self;
}

macro_rules! samples {
    ($($name:ident: $type:ty, $of:expr;)*) => {$(
        impl Sample for $type {
            fn of(number: u64) -> Self {
                let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                $of(mixed ^ mixed >> 32)
            }
        }

        #[kernel]
        fn $name(
            array: ArrayMut<$type>,
            program: Global<u64>,
            numbers: Atomics<u64>,
            wrong: Atomics<u64>,
        ) -> Result<(), IoError> {
            run_lane(array, program, numbers, wrong)
        }
    )*};
}
samples! {
    run_u8: u8, |mixed| mixed as u8;
    run_i8: i8, |mixed| mixed as i8;
    run_u16: u16, |mixed| mixed as u16;
    run_i16: i16, |mixed| mixed as i16;
    run_u32: u32, |mixed| mixed as u32;
    run_i64: i64, |mixed| mixed as i64;
    run_f64: f64, |mixed: u64| mixed as u32 as f64;
    run_u128: u128, |mixed: u64| u128::from(mixed) << 64 | u128::from(!mixed);
    run_pair: [u64; 2], |mixed: u64| [mixed, mixed.rotate_left(17)];
    run_bytes: [u8; 4], |mixed: u64| (mixed as u32).to_le_bytes();
}

/// Runs its lane's operations. `numbers` holds what each element was made of last; `wrong[0]` counts
/// reads of a lane's own elements that are not what it wrote.
fn run_lane<T: Sample>(
    array: ArrayMut<T>,
    program: Global<u64>,
    numbers: Atomics<u64>,
    wrong: Atomics<u64>,
) -> Result<(), IoError> {
    let lane = thread::index_1d();
    for nth in lane * EACH..(lane + 1) * EACH {
        let word = program.get(nth).unwrap_or(0);
        let (index, number) = (word >> 32 & 0x3FFF_FFFF, u64::from(word as u32));
        let is_wrong = match word >> 62 {
            GET => array.get(index)? != T::of(numbers.at(index).load(Order::Relaxed)),
            SET => {
                array.set(index, T::of(number))?;
                numbers.at(index).store(number, Order::Relaxed);
                false
            }
            _ => {
                let found = array.line_mut(index, |line| {
                    line.set(index, T::of(number))?;
                    Ok::<_, IoError>(line.get(index))
                })??;
                numbers.at(index).store(number, Order::Relaxed);
                found != Some(T::of(number))
            }
        };
        wrong.at(0).fetch_add(u64::from(is_wrong), Order::Relaxed);
    }
    Ok(())
}

#[derive(Clone, Debug)]
struct Case {
    configuration: Configuration,
    seed: u64,
    /// For each lane its operations: kind, which of its elements, number.
    program: Vec<(u64, u64, u32)>,
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (
        prop::sample::select(shapes().collect::<Vec<_>>()),
        prop::sample::select(vec![2u32, 64]),
    );
    let operation = (0..4u64, 0..ELEMENTS / LANES, any::<u32>());
    let count = (LANES * EACH) as usize;
    let program = prop::collection::vec(operation, count..=count);
    (shape, any::<u64>(), program).prop_map(|(((mode, cache_lines), depth), seed, program)| Case {
        configuration: Configuration {
            depth,
            ..configuration(mode, cache_lines)
        },
        seed,
        program,
    })
}

type RunArgs<T> = (ArrayMut<T>, Global<u64>, Atomics<u64>, Atomics<u64>);

fn run<T: Sample, K: Kernel<Args = RunArgs<T>>>(kernel: &K, case: &Case) {
    let mut last: Vec<u64> = (0..ELEMENTS).collect();
    let words: Vec<u64> = (0..)
        .zip(&case.program)
        .map(|(nth, &(kind, pick, number))| {
            let index = nth / EACH + pick * LANES;
            if kind != GET {
                last[index as usize] = u64::from(number);
            }
            kind << 62 | index << 32 | u64::from(number)
        })
        .collect();
    let session = Session::open_interleaved(case.configuration.clone(), case.seed).unwrap();
    let initial: Vec<T> = (0..ELEMENTS).map(T::of).collect();
    session.create_array("elements", &initial).unwrap();
    let program = session.upload(&words).unwrap();
    let numbers = session
        .upload(&(0..ELEMENTS).collect::<Vec<u64>>())
        .unwrap();
    let wrong = session.memory::<u64>(1).unwrap();
    let args = (
        session.array_mut("elements").unwrap(),
        program.global(),
        numbers.atomics(),
        wrong.atomics(),
    );
    let about = || format!("{} in {:?}", K::NAME, case.configuration);
    let config = session.fill(kernel).unwrap();
    session
        .launch(kernel, config, args)
        .unwrap_or_else(|error| panic!("{error}: {}", about()));
    assert_eq!(wrong.to_vec().unwrap(), [0], "{}", about());
    session.flush().unwrap();
    let last: Vec<T> = last.into_iter().map(T::of).collect();
    assert_eq!(
        session.stored::<T>("elements").unwrap(),
        last,
        "{}",
        about()
    );
    session.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, max_shrink_iters: 0, ..Default::default() })]

    #[test]
    fn neighbours_keep_what_each_lane_wrote(case in case()) {
        run(&run_u8, &case);
        run(&run_i8, &case);
        run(&run_u16, &case);
        run(&run_i16, &case);
        run(&run_u32, &case);
        run(&run_i64, &case);
        run(&run_f64, &case);
        run(&run_u128, &case);
        run(&run_pair, &case);
        run(&run_bytes, &case);
    }
}
