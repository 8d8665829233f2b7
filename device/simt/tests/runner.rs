//! The host runner: collectives, divergence, barriers, faults.
use std::sync::atomic::{AtomicU64, Ordering};
use warpstore_simt::host::{Grid, Interleaving, Workers, launch};
use warpstore_simt::{thread, warp};

#[test]
fn every_lane_runs_once() {
    let sum = AtomicU64::new(0);
    let body = || {
        let mask = warp::active_mask();
        let n = warp::redux_add_sync(mask, 1);
        assert_eq!(n, mask.count_ones());
        sum.fetch_add(thread::index_1d() + 1, Ordering::Relaxed);
    };
    launch(
        Grid {
            grid_dim: 5,
            block_dim: 70,
        },
        Workers {
            threads: 2,
            resident_blocks: 3,
        },
        Interleaving::None,
        &body,
    )
    .unwrap();
    assert_eq!(sum.into_inner(), 350 * 351 / 2);
}
