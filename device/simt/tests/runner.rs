//! The host runner: grids, divergence, barriers, interleaving.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use warpstore_simt::host::{Grid, Interleaving, LaunchFault, Workers, launch};
use warpstore_simt::{Cell, Native, NativeCell, Order, Platform, System, thread, warp};

const ONE: Workers = Workers {
    threads: 1,
    resident_blocks: 1,
};

/// A cell over a word of the test's own.
#[allow(unsafe_code, reason = "cells are raw addresses")]
fn cell(word: &AtomicU32) -> NativeCell<u32, System> {
    // SAFETY: the word is borrowed, atomic, and outlives the launch that uses the cell.
    unsafe { NativeCell::new(word.as_ptr()) }
}

#[test]
fn every_thread_of_the_grid_runs_once() {
    let n_runs: Vec<AtomicU32> = (0..5 * 70).map(|_| AtomicU32::new(0)).collect();
    let n_strides: Vec<AtomicU32> = (0..1000).map(|_| AtomicU32::new(0)).collect();
    let body = || {
        assert_eq!((thread::grid_dim_x(), thread::block_dim_x()), (5, 70));
        assert!(thread::block_idx_x() < 5 && thread::thread_idx_x() < 70);
        n_runs[thread::index_1d() as usize].fetch_add(1, Ordering::Relaxed);
        for index in thread::grid_stride(1000) {
            n_strides[index as usize].fetch_add(1, Ordering::Relaxed);
        }
    };
    let workers = Workers {
        threads: 2,
        resident_blocks: 3,
    };
    launch(
        Grid {
            grid_dim: 5,
            block_dim: 70,
        },
        workers,
        Interleaving::None,
        &body,
    )
    .unwrap();
    assert!(n_runs.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    assert!(n_strides.iter().all(|n| n.load(Ordering::Relaxed) == 1));
}

#[test]
fn lanes_that_diverge_get_a_mask_for_each_side() {
    let body = || {
        let all = warp::active_mask();
        assert_eq!(all, 0xf_ffff, "a block of 20 threads is a warp of 20 lanes");
        let lane = warp::lane_id();
        if lane.is_multiple_of(3) {
            let mask = warp::active_mask();
            assert_eq!(mask, 0x4_9249);
            assert_eq!(warp::redux_add_sync(mask, 1), mask.count_ones());
        } else {
            assert_eq!(warp::active_mask() & 0x4_9249, 0);
        }
        // Whoever completes a collective runs on first; it must not come back alone.
        warp::sync_mask(all);
        assert_eq!(warp::active_mask(), all);
    };
    launch(
        Grid {
            grid_dim: 3,
            block_dim: 20,
        },
        ONE,
        Interleaving::None,
        &body,
    )
    .unwrap();
}

#[test]
fn seeded_runs_give_legal_subsets_of_every_kind() {
    let mut sets_seen = [false; 4];
    for seed in 0..50 {
        let masks: Vec<AtomicU32> = (0..32).map(|_| AtomicU32::new(0)).collect();
        let word = AtomicU32::new(0);
        let body = || {
            // Lanes that give way here are waited for: sets are drawn, not left to accident.
            cell(&word).fetch_add(1, Order::Relaxed);
            let mask = warp::active_mask();
            // A wrong set would leave somebody waiting, or mix two sets.
            assert_eq!(warp::match_any_sync(mask, mask), mask);
            masks[warp::lane_id() as usize].store(mask, Ordering::Relaxed);
        };
        launch(
            Grid {
                grid_dim: 1,
                block_dim: 32,
            },
            ONE,
            Interleaving::Seeded(seed),
            &body,
        )
        .unwrap();
        let mut masks: Vec<u32> = masks.into_iter().map(AtomicU32::into_inner).collect();
        assert!(
            masks
                .iter()
                .enumerate()
                .all(|(lane, mask)| mask >> lane & 1 == 1)
        );
        masks.sort_unstable();
        masks.dedup();
        assert_eq!(
            masks.iter().map(|mask| u64::from(*mask)).sum::<u64>(),
            u64::from(u32::MAX)
        );
        sets_seen[masks.len()] = true;
    }
    assert_eq!(sets_seen, [false, true, true, true]);
}

#[test]
fn a_barrier_holds_the_whole_block_but_not_threads_that_returned() {
    for interleaving in [Interleaving::None, Interleaving::Seeded(3)] {
        let before = AtomicU32::new(0);
        let body = || {
            if thread::thread_idx_x() >= 65 {
                return;
            }
            for round in 1..=10 {
                cell(&before).fetch_add(1, Order::AcqRel);
                thread::sync_threads();
                assert_eq!(cell(&before).load(Order::Acquire), round * 65);
                thread::sync_threads();
            }
        };
        launch(
            Grid {
                grid_dim: 1,
                block_dim: 70,
            },
            ONE,
            interleaving,
            &body,
        )
        .unwrap();
    }
}

#[test]
fn resident_blocks_can_wait_for_one_another() {
    let arrived = AtomicU32::new(0);
    let body = || {
        cell(&arrived).fetch_add(1, Order::AcqRel);
        let mut attempt = 0;
        while cell(&arrived).load(Order::Acquire) < 2048 {
            // Collectives inside the waiting loop, as in a warp that drains a queue.
            let mask = warp::active_mask();
            assert_eq!(warp::redux_add_sync(mask, 1), mask.count_ones());
            Native::pause(attempt);
            attempt += 1;
        }
    };
    let workers = Workers {
        threads: 2,
        resident_blocks: 8,
    };
    launch(
        Grid {
            grid_dim: 8,
            block_dim: 256,
        },
        workers,
        Interleaving::None,
        &body,
    )
    .unwrap();
    assert_eq!(arrived.into_inner(), 2048);
}

/// The order in which the lanes of three blocks take numbers.
fn trace(interleaving: Interleaving) -> Vec<u64> {
    let word = AtomicU32::new(0);
    let order = Mutex::new(Vec::new());
    let body = || {
        for _ in 0..20 {
            let mask = warp::active_mask();
            cell(&word).fetch_add(1, Order::Relaxed);
            order
                .lock()
                .unwrap()
                .push(thread::index_1d() << 32 | u64::from(mask));
            Native::pause(0);
        }
    };
    let workers = Workers {
        threads: 1,
        resident_blocks: 2,
    };
    launch(
        Grid {
            grid_dim: 3,
            block_dim: 40,
        },
        workers,
        interleaving,
        &body,
    )
    .unwrap();
    order.into_inner().unwrap()
}

#[test]
fn the_seed_decides_the_interleaving() {
    let first = trace(Interleaving::Seeded(1));
    assert_eq!(first, trace(Interleaving::Seeded(1)));
    assert_ne!(first, trace(Interleaving::Seeded(2)));
    assert_ne!(first, trace(Interleaving::None));
    assert_eq!(trace(Interleaving::None), trace(Interleaving::None));
}

#[test]
fn interleaving_splits_a_read_from_its_write() {
    // A lost update needs another lane to run between the load and the store of one.
    let count = |interleaving| {
        let word = AtomicU32::new(0);
        let body = || {
            let seen = cell(&word).load(Order::Relaxed);
            cell(&word).store(seen + 1, Order::Relaxed);
        };
        launch(
            Grid {
                grid_dim: 1,
                block_dim: 32,
            },
            ONE,
            interleaving,
            &body,
        )
        .unwrap();
        word.into_inner()
    };
    assert_eq!(count(Interleaving::None), 32);
    assert!((0..20).any(|seed| count(Interleaving::Seeded(seed)) < 32));
}

#[test]
fn blocks_start_when_others_end() {
    let running = AtomicU64::new(0);
    let most = AtomicU64::new(0);
    let body = || {
        if thread::thread_idx_x() == 0 {
            most.fetch_max(
                running.fetch_add(1, Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
        }
        for attempt in 0..5 {
            Native::pause(attempt);
        }
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            running.fetch_sub(1, Ordering::Relaxed);
        }
    };
    let workers = Workers {
        threads: 1,
        resident_blocks: 4,
    };
    launch(
        Grid {
            grid_dim: 50,
            block_dim: 33,
        },
        workers,
        Interleaving::None,
        &body,
    )
    .unwrap();
    assert_eq!((running.into_inner(), most.into_inner()), (0, 4));
}

#[test]
fn grids_that_no_gpu_takes_are_refused() {
    for (grid_dim, block_dim) in [(0, 1), (1, 0), (1, 1025)] {
        let grid = Grid {
            grid_dim,
            block_dim,
        };
        let fault = launch(grid, ONE, Interleaving::None, &|| ()).unwrap_err();
        assert!(
            matches!(fault, LaunchFault::Grid(refused) if refused == grid),
            "{fault}"
        );
    }
}
