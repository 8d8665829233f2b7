//! Every collective against a plain model, over random blocks, masks and values.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use warpstore_simt::host::{Grid, Interleaving, Workers, launch};
use warpstore_simt::{thread, warp};

#[derive(Clone, Copy, Debug)]
enum Step {
    Sync,
    Shuffle32,
    Shuffle64,
    Ballot,
    Any,
    All,
    Match32,
    Match64,
    Add,
    Or,
    Min,
    Max,
}

const STEPS: [Step; 12] = [
    Step::Sync,
    Step::Shuffle32,
    Step::Shuffle64,
    Step::Ballot,
    Step::Any,
    Step::All,
    Step::Match32,
    Step::Match64,
    Step::Add,
    Step::Or,
    Step::Min,
    Step::Max,
];

/// The lanes of a warp that do a program together, and what each brings to a step. Lanes are
/// numbered within the block; group and values are looked up by that number.
#[derive(Debug)]
struct Program {
    block_dim: u32,
    /// Which of up to three groups of its warp each lane belongs to.
    groups: Vec<u8>,
    steps: Vec<Step>,
    /// One value for each step and lane.
    values: Vec<u64>,
}

impl Program {
    fn value(&self, step: usize, thread: u32) -> u64 {
        self.values[(step * self.block_dim as usize + thread as usize) % self.values.len()]
    }

    /// The mask of the lane's group.
    fn mask(&self, thread: u32) -> u32 {
        let warp = thread / 32;
        (0..32)
            .map(|lane| (lane, warp * 32 + lane))
            .filter(|&(_, other)| {
                other < self.block_dim
                    && self.groups[other as usize] == self.groups[thread as usize]
            })
            .fold(0, |mask, (lane, _)| mask | 1 << lane)
    }

    /// A lane of the group to shuffle from, any of them.
    fn source(&self, step: usize, thread: u32) -> u32 {
        let lanes: Vec<u32> = (0..32)
            .filter(|lane| self.mask(thread) >> lane & 1 == 1)
            .collect();
        lanes[self.value(step + 1, thread) as usize % lanes.len()]
    }

    /// What the library gives.
    fn run(&self, step: usize, thread: u32) -> u64 {
        let mask = self.mask(thread);
        let value = self.value(step, thread);
        let word = value as u32;
        match self.steps[step] {
            Step::Sync => {
                warp::sync_mask(mask);
                0
            }
            Step::Shuffle32 => warp::shuffle_sync(mask, word, self.source(step, thread)).into(),
            // Source lanes count modulo 32.
            Step::Shuffle64 => warp::shuffle_sync(mask, value, self.source(step, thread) + 32),
            Step::Ballot => warp::ballot_sync(mask, value.is_multiple_of(2)).into(),
            Step::Any => warp::any_sync(mask, value.is_multiple_of(8)).into(),
            Step::All => warp::all_sync(mask, !value.is_multiple_of(8)).into(),
            Step::Match32 => warp::match_any_sync(mask, word).into(),
            Step::Match64 => warp::match_any_u64_sync(mask, value).into(),
            Step::Add => warp::redux_add_sync(mask, word).into(),
            Step::Or => warp::redux_or_sync(mask, word).into(),
            Step::Min => warp::redux_min_sync(mask, word).into(),
            Step::Max => warp::redux_max_sync(mask, word).into(),
        }
    }

    /// What the definitions of the collectives give.
    fn expect(&self, step: usize, thread: u32) -> u64 {
        let mask = self.mask(thread);
        let first = thread / 32 * 32;
        let brought: Vec<(u32, u64)> = (0..32)
            .filter(|lane| mask >> lane & 1 == 1)
            .map(|lane| (lane, self.value(step, first + lane)))
            .collect();
        let words = || brought.iter().map(|&(_, value)| value as u32);
        let lanes_with = |holds: &dyn Fn(u64) -> bool| {
            brought
                .iter()
                .filter(|&&(_, v)| holds(v))
                .map(|&(lane, _)| 1_u64 << lane)
                .sum::<u64>()
        };
        let own = self.value(step, thread);
        match self.steps[step] {
            Step::Sync => 0,
            Step::Shuffle32 => self.value(step, first + self.source(step, thread)) as u32 as u64,
            Step::Shuffle64 => self.value(step, first + self.source(step, thread)),
            Step::Ballot => lanes_with(&|v| v % 2 == 0),
            Step::Any => brought.iter().any(|&(_, v)| v % 8 == 0).into(),
            Step::All => brought.iter().all(|&(_, v)| v % 8 != 0).into(),
            Step::Match32 => lanes_with(&|v| v as u32 == own as u32),
            Step::Match64 => lanes_with(&|v| v == own),
            Step::Add => words().fold(0_u32, u32::wrapping_add).into(),
            Step::Or => words().fold(0, |or, word| or | word).into(),
            Step::Min => words().min().unwrap().into(),
            Step::Max => words().max().unwrap().into(),
        }
    }
}

/// Few distinct values, so that lanes match, and some that differ in the high half alone.
fn values() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, (0..3_u64).prop_map(|v| v << 32), any::<u64>()]
}

fn programs() -> impl Strategy<Value = Program> {
    (1..=96_u32).prop_flat_map(|block_dim| {
        (
            proptest::collection::vec(0..3_u8, block_dim as usize),
            proptest::collection::vec(proptest::sample::select(&STEPS[..]), 1..12),
            proptest::collection::vec(values(), 200..400),
        )
            .prop_map(move |(groups, steps, values)| Program {
                block_dim,
                groups,
                steps,
                values,
            })
    })
}

fn check(program: &Program, interleaving: Interleaving) {
    let n_steps = program.steps.len();
    let block_dim = program.block_dim as usize;
    let results: Vec<AtomicU64> = (0..n_steps * block_dim)
        .map(|_| AtomicU64::new(!0))
        .collect();
    let body = || {
        let thread = thread::thread_idx_x();
        for step in 0..n_steps {
            let result = program.run(step, thread);
            results[step * block_dim + thread as usize].store(result, Ordering::Relaxed);
        }
    };
    let grid = Grid {
        grid_dim: 1,
        block_dim: program.block_dim,
    };
    launch(
        grid,
        Workers {
            threads: 1,
            resident_blocks: 1,
        },
        interleaving,
        &body,
    )
    .unwrap();
    for step in 0..n_steps {
        for thread in 0..program.block_dim {
            assert_eq!(
                results[step * block_dim + thread as usize].load(Ordering::Relaxed),
                program.expect(step, thread),
                "step {step} ({:?}), thread {thread}",
                program.steps[step]
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn collectives_are_as_defined(program in programs(), seed: u64) {
        check(&program, Interleaving::None);
        check(&program, Interleaving::Seeded(seed));
    }

    #[test]
    fn leader_is_the_lowest_lane(mask in 1..=u32::MAX) {
        prop_assert_eq!(warp::leader(mask), mask.trailing_zeros());
    }
}

#[test]
fn ranks_count_the_lanes_below() {
    let mask = 0b1011_0110;
    let body = || {
        let below = (0..warp::lane_id())
            .filter(|lane| mask >> lane & 1 == 1)
            .count();
        assert_eq!(warp::rank(mask), below as u32);
    };
    let grid = Grid {
        grid_dim: 1,
        block_dim: 32,
    };
    launch(
        grid,
        Workers {
            threads: 1,
            resident_blocks: 1,
        },
        Interleaving::None,
        &body,
    )
    .unwrap();
}

#[test]
fn a_plain_thread_is_a_warp_of_one_lane() {
    assert_eq!(
        (warp::lane_id(), warp::active_mask(), warp::lanemask_lt()),
        (0, 1, 0)
    );
    assert_eq!((warp::leader(1), warp::rank(1)), (0, 0));
    warp::sync_mask(1);
    assert_eq!(warp::shuffle_sync(1, u64::MAX, 0), u64::MAX);
    assert_eq!(
        (warp::ballot_sync(1, true), warp::ballot_sync(1, false)),
        (1, 0)
    );
    assert!(warp::any_sync(1, true) && !warp::any_sync(1, false));
    assert!(warp::all_sync(1, true) && !warp::all_sync(1, false));
    assert_eq!(
        (warp::match_any_sync(1, 7), warp::match_any_u64_sync(1, 7)),
        (1, 1)
    );
    assert_eq!(
        (warp::redux_add_sync(1, 7), warp::redux_min_sync(1, 7)),
        (7, 7)
    );
    assert_eq!((thread::index_1d(), thread::grid_size()), (0, 1));
    thread::sync_threads();
    assert_eq!(thread::grid_stride(3).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
#[should_panic(expected = "outside a launch")]
fn a_plain_thread_has_no_other_lanes() {
    warp::sync_mask(3);
}
