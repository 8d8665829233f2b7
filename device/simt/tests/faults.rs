//! Lanes that never come, and lanes that panic: both end the launch with a report.

use std::sync::atomic::{AtomicU32, Ordering};

use warpstore_simt::host::{Grid, Interleaving, LaunchFault, Operation, Workers, launch};
use warpstore_simt::{Native, Platform, thread, warp};

const TWO: Workers = Workers {
    threads: 2,
    resident_blocks: 4,
};

fn fault(grid_dim: u32, block_dim: u32, body: &(dyn Fn() + Sync)) -> LaunchFault {
    launch(
        Grid {
            grid_dim,
            block_dim,
        },
        TWO,
        Interleaving::None,
        body,
    )
    .expect_err("the body does not get through")
}

fn pause_for_ever() {
    for attempt in 0.. {
        Native::pause(attempt);
    }
}

#[test]
fn a_lane_that_returned_is_missed() {
    let fault = fault(1, 64, &|| {
        if thread::thread_idx_x() == 37 {
            return;
        }
        warp::ballot_sync(u32::MAX, true);
    });
    let text = fault.to_string();
    let LaunchFault::LaneNeverCame {
        block,
        warp,
        operation,
        expected,
        arrived,
        gone,
        ..
    } = fault
    else {
        panic!("{text}");
    };
    assert_eq!((block, warp, operation), (0, 1, Operation::Ballot));
    assert_eq!((expected, arrived, gone), (u32::MAX, !(1 << 5), 1 << 5));
    for part in [
        "block 0, warp 1",
        "ballot_sync",
        "faults.rs",
        "lanes 0x20",
        "returned",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_lane_that_returned_is_missed_even_if_others_go_on() {
    let fault = fault(1, 32, &|| match warp::lane_id() {
        0 => warp::sync_mask(0b11),
        1 => (),
        _ => pause_for_ever(),
    });
    assert!(matches!(
        fault,
        LaunchFault::LaneNeverCame {
            expected: 0b11,
            arrived: 1,
            gone: 2,
            ..
        }
    ));
}

#[test]
fn a_lane_beyond_the_block_is_missed() {
    let fault = fault(1, 20, &|| warp::sync_mask(u32::MAX));
    assert!(
        matches!(
            fault,
            LaunchFault::LaneNeverCame {
                arrived: 0xf_ffff,
                ..
            }
        ),
        "{fault}"
    );
}

#[test]
fn lanes_in_different_collectives_miss_each_other() {
    let fault = fault(1, 32, &|| {
        if warp::lane_id() < 16 {
            warp::any_sync(u32::MAX, true);
        } else {
            warp::all_sync(u32::MAX, true);
        }
    });
    let LaunchFault::LaneNeverCame {
        operation,
        arrived,
        gone,
        ..
    } = fault
    else {
        panic!("{fault}");
    };
    assert_eq!((operation, arrived, gone), (Operation::Any, 0xffff, 0));
}

#[test]
fn a_lane_at_the_barrier_is_missed_in_a_collective() {
    let fault = fault(1, 64, &|| {
        if thread::thread_idx_x() == 3 {
            thread::sync_threads();
        } else {
            warp::sync_mask(u32::MAX);
        }
        thread::sync_threads();
    });
    let LaunchFault::LaneNeverCame { warp, arrived, .. } = fault else {
        panic!("{fault}");
    };
    assert_eq!((warp, arrived), (0, !(1 << 3)));
}

#[test]
fn a_collective_without_oneself_is_refused() {
    let fault = fault(1, 32, &|| {
        warp::sync_mask(!(1 << warp::lane_id()));
    });
    assert!(fault.to_string().contains("in which it is not"), "{fault}");
}

#[test]
fn a_shuffle_from_outside_the_mask_is_refused() {
    let fault = fault(1, 32, &|| {
        if warp::lane_id() < 2 {
            warp::shuffle_sync(0b11, 5_u32, 2);
        }
    });
    assert!(fault.to_string().contains("shuffle_sync"), "{fault}");
}

#[test]
fn a_panic_ends_the_launch_and_drops_what_lanes_hold() {
    struct Held<'a> {
        n: &'a AtomicU32,
        unwound_as: &'a AtomicU32,
        mask: u32,
    }
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            // What destructors of guards may do: pause a little, sync. Nobody comes any more.
            Native::pause(0);
            warp::sync_mask(self.mask);
            thread::sync_threads();
            self.unwound_as
                .fetch_add(thread::thread_idx_x(), Ordering::Relaxed);
            self.n.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let n = AtomicU32::new(0);
    let unwound_as = AtomicU32::new(0);
    let finished = AtomicU32::new(0);
    let fault = fault(6, 96, &|| {
        let mask = warp::active_mask();
        assert!(
            !std::thread::panicking(),
            "no lane runs inside the panic of another"
        );
        n.fetch_add(1, Ordering::Relaxed);
        let _held = Held {
            n: &n,
            unwound_as: &unwound_as,
            mask,
        };
        match (thread::block_idx_x(), thread::thread_idx_x()) {
            (1, 70) => {
                let mut attempt = 0;
                // Both workers carry their two blocks.
                while n.load(Ordering::Relaxed) < 4 * 96 {
                    Native::pause(attempt);
                    attempt += 1;
                }
                panic!("{} of {}", 7, 9)
            }
            (_, 0..20) => pause_for_ever(),
            (_, 20..32) => warp::sync_mask(0xfff0_0001),
            (_, 32..64) => thread::sync_threads(),
            _ => {
                warp::active_mask();
                pause_for_ever();
            }
        }
        finished.fetch_add(1, Ordering::Relaxed);
    });
    let text = fault.to_string();
    let LaunchFault::Panic {
        block,
        thread,
        message,
    } = fault
    else {
        panic!("{text}");
    };
    assert_eq!((block, thread, message.as_str()), (1, 70, "7 of 9"));
    assert!(text.contains("block 1, thread 70"), "{text}");
    assert_eq!((n.into_inner(), finished.into_inner()), (0, 0));
    // Only the lane that panicked unwinds in its place; the others are out of the launch.
    assert_eq!(unwound_as.into_inner(), 70);
}

#[test]
fn a_launch_after_a_fault_is_as_new() {
    for _ in 0..3 {
        fault(2, 64, &|| panic!("on purpose"));
        let n = AtomicU32::new(0);
        let body = || {
            n.fetch_add(warp::redux_add_sync(u32::MAX, 1), Ordering::Relaxed);
        };
        launch(
            Grid {
                grid_dim: 2,
                block_dim: 64,
            },
            TWO,
            Interleaving::Seeded(1),
            &body,
        )
        .unwrap();
        assert_eq!(n.into_inner(), 128 * 32);
    }
}
