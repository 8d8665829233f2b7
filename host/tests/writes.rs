//! Kernels that write, on host threads against emulated SSDs: what is on the media at the end is what
//! a sequential program would have left there.
//!
//! A program is a list of operations for each lane. Every element is set by one lane only, in that
//! lane's order, or only added to; so the outcome does not depend on who comes first, and a lost
//! update, an old write that overtakes a new one, or a line in the wrong place shows in it. Half of the
//! time the SSDs fail commands, repeat, delay and reorder completions, and it must not show.

mod sockets;
mod store;

use proptest::prelude::*;
use warpstore::device::counted::{Bam, BamReuse, Counted, Naive, Reader};
use warpstore::device::launch::Kernel;
use warpstore::device::parts::nvme_wire::Status;
use warpstore::device::prelude::*;
use warpstore::device::{CacheMode, Layout};
use warpstore::{
    Configuration, Doorbells, Fault, Faults, Medium, Protocol, Rule, Session, SsdConfig, SsdSource,
    Target, When,
};

const LANES: u64 = 64;

/// What one operation does, in the top bits of its word; anything else sets through a held line.
const GET: u64 = 0;
const SET: u64 = 1;
const ADD: u64 = 2;

/// The operation on `index`.
fn operation(kind: u64, index: u64, value: u32) -> u64 {
    kind << 62 | index << 32 | u64::from(value)
}

/// Runs its lane's operations, `each` a lane. `wrong[0]` counts reads of a lane's own elements that
/// are not what it wrote last: `mirror` has a word for each element. `reader` reads the numbers.
fn run_lane(
    mut reader: impl Reader<u64>,
    numbers: ArrayMut<u64>,
    sums: ArrayMut<u32>,
    program: Global<u64>,
    each: u64,
    mirror: Atomics<u64>,
    wrong: Atomics<u64>,
) -> Result<(), IoError> {
    let lane = thread::index_1d();
    let mut next = lane * each;
    while next < (lane + 1) * each {
        let word = program.get(next).unwrap_or(0);
        next += 1;
        let (index, value) = (word >> 32 & 0x3FFF_FFFF, word as u32);
        match word >> 62 {
            GET => {
                let expected = mirror.at(index).load(Order::Relaxed);
                if reader.get(index)? != expected {
                    wrong.at(0).fetch_add(1, Order::Relaxed);
                }
            }
            SET => {
                mirror.at(index).store(u64::from(value), Order::Relaxed);
                numbers.set(index, u64::from(value))?;
            }
            ADD => {
                sums.fetch_add(index, value)?;
            }
            _ => {
                mirror.at(index).store(u64::from(value), Order::Relaxed);
                numbers.line_mut(index, |line| {
                    // What the line says of this lane's element is what the lane wrote.
                    line.set(index, u64::from(value))?;
                    if line.get(index) != Some(u64::from(value)) {
                        wrong.at(0).fetch_add(1, Order::Relaxed);
                    }
                    Ok::<(), IoError>(())
                })??;
            }
        }
    }
    Ok(())
}

macro_rules! programs {
    ($($name:ident: $reader:expr;)*) => {$(
        #[kernel]
        fn $name(
            numbers: ArrayMut<u64>,
            sums: ArrayMut<u32>,
            program: Global<u64>,
            each: u64,
            mirror: Atomics<u64>,
            wrong: Atomics<u64>,
        ) -> Result<(), IoError> {
            run_lane($reader(*numbers), numbers, sums, program, each, mirror, wrong)
        }
    )*};
}
programs! {
    run_program: core::convert::identity;
    run_naive: Counted::<u64, Naive>::of;
    run_bam: Counted::<u64, Bam>::of;
    run_reuse: Counted::<u64, BamReuse>::of;
}

fn configuration() -> Configuration {
    Configuration {
        target: Target::Threads {
            lanes: LANES as u32,
        },
        cache_lines: 7,
        ..store::configuration()
    }
}

/// Elements of each array; element `i` of the numbers is lane `i % LANES`'s.
const NUMBERS: u64 = 640;
const SUMS: u64 = 300;

#[derive(Clone, Debug)]
struct Case {
    configuration: Configuration,
    seed: u64,
    /// What goes wrong with every SSD, none of which may show.
    faults: Faults,
    /// For each lane its operations: kind, which element, value.
    program: Vec<Vec<(u64, u64, u32)>>,
}

/// A rule for some commands, all of which end well in the end.
fn rule() -> impl Strategy<Value = Rule> {
    // Four failures in a row would be an error: as many never come, or about once in 10^8 commands.
    let fails = Fault::Status(Status::INTERNAL_ERROR);
    prop_oneof![
        Just((fails, When::First(3))),
        Just((fails, When::OneIn(100))),
        Just((Fault::Duplicate, When::OneIn(20))),
        Just((Fault::UnknownCid, When::OneIn(20))),
        Just((Fault::StaleCid, When::OneIn(20))),
        Just((Fault::Reorder, When::OneIn(20))),
        Just((Fault::Delay(3_000_000), When::OneIn(30))),
    ]
    .prop_map(|(fault, when)| Rule::new(fault, when))
}

/// Half of the time nothing goes wrong.
fn faults() -> impl Strategy<Value = Faults> {
    let some = (any::<u64>(), prop::collection::vec(rule(), 1..=4));
    prop_oneof![
        Just(Faults::none()),
        some.prop_map(|(seed, rules)| Faults { seed, rules }),
    ]
}

/// The rules of a plan that queues get over: a completion too many stops one of BaM's, and one whose
/// doorbells go through a proxy ([DB-1]). One rule fails commands at most, so that failures in a row are
/// as rare as it says.
fn bearable(mut faults: Faults, configuration: &Configuration) -> Faults {
    let counts_all = configuration.protocol == Protocol::Bam
        || matches!(configuration.doorbells, Doorbells::Proxy);
    let mut fails = false;
    faults.rules.retain(|rule| match rule.fault {
        Fault::Status(_) => !std::mem::replace(&mut fails, true),
        Fault::Duplicate | Fault::UnknownCid | Fault::StaleCid => !counts_all,
        _ => true,
    });
    faults
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (
        prop_oneof![Just(1u64), Just(2), Just(7), Just(64)],
        prop_oneof![Just(512u32), Just(4096), Just(65536)],
        prop_oneof![Just(1u32), Just(3)],
        prop_oneof![
            2 => Just((2u32, Protocol::Hop)),
            2 => Just((4, Protocol::Hop)),
            2 => Just((64, Protocol::Hop)),
            1 => Just((4, Protocol::Lock)),
            1 => Just((64, Protocol::Bam)),
        ],
        prop_oneof![
            3 => Just(CacheMode::Optimistic),
            1 => Just(CacheMode::None),
            1 => Just(CacheMode::Naive),
            1 => Just(CacheMode::Bam),
            2 => Just(CacheMode::BamReuse),
        ],
    );
    let operation = (0..4u64, 0..1000u64, any::<u32>());
    let program = prop::collection::vec(
        prop::collection::vec(operation, 12..=12),
        LANES as usize..=LANES as usize,
    );
    (shape, any::<u64>(), faults(), program).prop_map(|(shape, seed, faults, program)| {
        let (cache_lines, line_bytes, ssds, (depth, protocol), mode) = shape;
        let configuration = Configuration {
            cache_lines,
            line_bytes,
            stripe_bytes: u64::from(line_bytes),
            ssds,
            depth,
            protocol,
            mode,
            ..configuration()
        };
        Case {
            faults: bearable(faults, &configuration),
            configuration,
            seed,
            program,
        }
    })
}

/// The same program, one lane after the other.
struct Oracle {
    numbers: Vec<u64>,
    sums: Vec<u32>,
    words: Vec<u64>,
}

impl Oracle {
    fn of(program: &[Vec<(u64, u64, u32)>]) -> Self {
        let mut oracle = Self {
            numbers: (0..NUMBERS).map(|i| i * 3).collect(),
            sums: vec![0; SUMS as usize],
            words: Vec::new(),
        };
        for (lane, operations) in (0..).zip(program) {
            for &(kind, pick, value) in operations {
                let own = lane + pick % (NUMBERS / LANES) * LANES;
                let index = if kind == ADD { pick % SUMS } else { own };
                match kind {
                    GET => {}
                    ADD => {
                        let sum = &mut oracle.sums[index as usize];
                        *sum = sum.wrapping_add(value);
                    }
                    _ => oracle.numbers[index as usize] = u64::from(value),
                }
                oracle.words.push(operation(kind, index, value));
            }
        }
        oracle
    }
}

fn run(case: &Case) {
    match case.configuration.mode {
        CacheMode::None | CacheMode::Optimistic => run_by(&run_program, case),
        CacheMode::Naive => run_by(&run_naive, case),
        CacheMode::Bam => run_by(&run_bam, case),
        CacheMode::BamReuse => run_by(&run_reuse, case),
    }
}

fn run_by<K: Kernel<Args = <run_program as Kernel>::Args>>(kernel: &K, case: &Case) {
    let oracle = Oracle::of(&case.program);
    let session = Session::open_interleaved(case.configuration.clone(), case.seed).unwrap();
    let initial: Vec<u64> = (0..NUMBERS).map(|i| i * 3).collect();
    session.create_array("numbers", &initial).unwrap();
    session
        .create_array("sums", &vec![0u32; SUMS as usize])
        .unwrap();
    let program = session.upload(&oracle.words).unwrap();
    let mirror = session.upload(&initial).unwrap();
    let wrong = session.memory::<u64>(1).unwrap();
    let each = oracle.words.len() as u64 / LANES;
    let args = (
        session.array_mut("numbers").unwrap(),
        session.array_mut("sums").unwrap(),
        program.global(),
        each,
        mirror.atomics(),
        wrong.atomics(),
    );
    let config = session.fill(kernel).unwrap();
    session
        .launch(kernel, config, args)
        .unwrap_or_else(|error| panic!("{error} with {:?}", case.configuration));
    assert_eq!(
        wrong.to_vec().unwrap(),
        [0],
        "a lane did not read its own write"
    );
    session.flush().unwrap();
    assert_eq!(session.stored::<u64>("numbers").unwrap(), oracle.numbers);
    assert_eq!(session.stored::<u32>("sums").unwrap(), oracle.sums);
    let hits = session.injected_faults().unwrap();
    let fails = |rule: &Rule| matches!(rule.fault, Fault::Status(_));
    let failed = case.faults.rules.iter().zip(hits);
    let failed: u64 = failed
        .filter_map(|(rule, hits)| fails(rule).then_some(hits))
        .sum();
    assert_eq!(session.failed_commands().unwrap().0, failed, "as injected");
    assert_eq!(
        session.counts().unwrap().unwrap().flushes,
        u64::from(case.configuration.ssds),
        "every SSD is flushed, once"
    );
    session.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, max_shrink_iters: 0, ..Default::default() })]

    #[test]
    fn the_media_hold_what_a_sequential_program_leaves(case in case()) {
        let faulty = SsdConfig { faults: case.faults.clone(), ..store::ssd() };
        let configuration = Configuration {
            ssd: SsdSource::Emulated(faulty),
            ..case.configuration.clone()
        };
        run(&Case { configuration, ..case });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, max_shrink_iters: 0, ..Default::default() })]

    /// Lines go through staging pieces, and doorbells through a proxy or not.
    #[test]
    fn ssds_in_other_processes_hold_it_too(case in case(), proxied: bool) {
        let configuration = Configuration {
            doorbells: if proxied { Doorbells::Proxy } else { Doorbells::Direct },
            ..case.configuration
        };
        let faults = bearable(case.faults, &configuration);
        run(&Case {
            configuration: sockets::behind_sockets(configuration, &faults),
            faults,
            ..case
        });
    }
}

/// c[i] = a[i] + b[i], a line at a time and without reading c.
#[kernel]
fn vector_add(a: Array<u32>, b: Array<u32>, c: ArrayMut<u32>) -> Result<(), IoError> {
    let per_line = c.elements_per_line();
    let mut first = thread::index_1d() / 32 * per_line;
    while first < c.len() {
        c.write_line(first, |i| Ok(a.get(i)?.wrapping_add(b.get(i)?)))?;
        first += thread::grid_size() / 32 * per_line;
    }
    Ok(())
}

/// Touches every element, so that some lines are in the cache.
#[kernel]
fn touch(c: ArrayMut<u32>) -> Result<(), IoError> {
    for i in thread::grid_stride(c.len()) {
        c.set(i, 7)?;
    }
    Ok(())
}

#[test]
fn lines_are_written_without_being_read() {
    // The last line of each array is not full.
    let (a, b): (Vec<u32>, Vec<u32>) = (0..2000u32).map(|i| (i * 7, !i)).unzip();
    let sum: Vec<u32> = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(*b)).collect();
    for (seed, (cache_lines, mode, touched)) in [
        (1, CacheMode::Optimistic, false),
        (64, CacheMode::Optimistic, true),
        (7, CacheMode::Optimistic, true),
        (7, CacheMode::None, false),
    ]
    .into_iter()
    .enumerate()
    {
        let configuration = Configuration {
            cache_lines,
            mode,
            ssds: 3,
            ..configuration()
        };
        let session = Session::open_interleaved(configuration, seed as u64).unwrap();
        let a = session.create_array("a", &a).unwrap();
        let b = session.create_array("b", &b).unwrap();
        session.create_array("c", &vec![1u32; 2000]).unwrap();
        let c = session.array_mut("c").unwrap();
        if touched {
            let config = session.fill(&touch).unwrap();
            session.launch(&touch, config, (c,)).unwrap();
        }
        let config = session.fill(&vector_add).unwrap();
        session.launch(&vector_add, config, (a, b, c)).unwrap();
        session.flush().unwrap();
        assert_eq!(session.stored::<u32>("c").unwrap(), sum, "seed {seed}");
        let counts = session.counts().unwrap().unwrap();
        assert!(
            touched || counts.writes == 16,
            "one write a line: {counts:?}"
        );
        session.finish().unwrap();
    }
}

/// Writes every line whole with values that are read from nowhere.
#[kernel]
fn count_up(c: ArrayMut<u32>) -> Result<(), IoError> {
    let per_line = c.elements_per_line();
    let mut first = thread::index_1d() / 32 * per_line;
    while first < c.len() {
        c.write_line(first, |i| Ok(i as u32))?;
        first += thread::grid_size() / 32 * per_line;
    }
    Ok(())
}

#[test]
fn a_whole_line_is_written_by_one_command() {
    let session = Session::open(configuration(), "").unwrap();
    session.create_array("c", &[1u32; 2000]).unwrap();
    let c = session.array_mut("c").unwrap();
    let config = session.fill(&count_up).unwrap();
    session.launch(&count_up, config, (c,)).unwrap();
    let counts = session.counts().unwrap().unwrap();
    assert_eq!((counts.reads, counts.writes), (0, 16));
    let expected: Vec<u32> = (0..2000).collect();
    assert_eq!(session.stored::<u32>("c").unwrap(), expected);
    session.finish().unwrap();
}

/// Writes one element, or fails to.
#[kernel]
fn set_one(c: ArrayMut<u32>, index: u64) -> Result<(), IoError> {
    if thread::index_1d() == 0 {
        c.set(index, 1)?;
    }
    Ok(())
}

#[test]
fn a_write_outside_is_an_error_and_writes_nothing() {
    let session = Session::open(configuration(), "").unwrap();
    session.create_array("c", &[0u32; 100]).unwrap();
    session.create_array("behind", &[0u32; 100]).unwrap();
    let c = session.array_mut("c").unwrap();
    let config = session.fill(&set_one).unwrap();
    let error = session.launch(&set_one, config, (c, 100)).unwrap_err();
    assert!(
        error.to_string().contains("index 100 lies outside"),
        "{error}"
    );
    session.flush().unwrap();
    assert_eq!(session.stored::<u32>("c").unwrap(), [0; 100]);
    assert_eq!(session.stored::<u32>("behind").unwrap(), [0; 100]);
}

#[test]
fn what_is_written_stays_in_the_cache_until_the_flush() {
    let session = Session::open(configuration(), "").unwrap();
    session.create_array("c", &[0u32; 100]).unwrap();
    let c = session.array_mut("c").unwrap();
    let config = session.fill(&set_one).unwrap();
    session.launch(&set_one, config, (c, 5)).unwrap();
    assert_eq!(session.stored::<u32>("c").unwrap()[5], 0);
    session.flush().unwrap();
    assert_eq!(session.stored::<u32>("c").unwrap()[5], 1);
    let counts = session.counts().unwrap().unwrap();
    assert_eq!((counts.writes, counts.flushes), (1, 1));
    // Clean lines are not written again.
    session.flush().unwrap();
    let counts = session.counts().unwrap().unwrap();
    assert_eq!((counts.writes, counts.flushes), (1, 2));
    session.finish().unwrap();
}

#[test]
fn replicas_are_not_written() {
    let configuration = Configuration {
        ssds: 2,
        layout: Layout::Replicate,
        ..configuration()
    };
    let session = Session::open(configuration, "").unwrap();
    session.create_array("c", &[0u32; 100]).unwrap();
    let error = session.array_mut::<u32>("c").err().unwrap().to_string();
    assert!(error.contains("2 replicas"), "{error}");
    // Nor through a handle that was made by hand.
    let c = ArrayMut::new(session.array::<u32>("c").unwrap());
    let config = session.fill(&set_one).unwrap();
    let error = session.launch(&set_one, config, (c, 0)).unwrap_err();
    assert!(error.to_string().contains("2 replicas"), "{error}");
}

#[test]
fn a_finished_session_leaves_everything_in_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = |overwrite| Configuration {
        ssd: SsdSource::Emulated(SsdConfig {
            medium: Medium::File {
                path: folder.path().join("ssd.img"),
                overwrite,
            },
            ..store::ssd()
        }),
        ssds: 3,
        ..configuration()
    };
    let session = Session::open(configuration(true), "").unwrap();
    // However the handle was come by.
    let c = ArrayMut::new(session.create_array("c", &[0u32; 3000]).unwrap());
    let config = session.fill(&touch).unwrap();
    session.launch(&touch, config, (c,)).unwrap();
    session.finish().unwrap();
    let session = Session::open(configuration(false), "").unwrap();
    session.existing_array::<u32>("c", 3000).unwrap();
    assert_eq!(session.stored::<u32>("c").unwrap(), [7; 3000]);
}
