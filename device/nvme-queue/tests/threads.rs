//! Many lanes on host threads against a controller on a thread of its own.

mod controller;
mod pair;
mod words;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use controller::{Controller, command};
use nvme_queue::{Completion, EMPTY, FAULT_WORDS, Finish, Patience, Queue, Shape, Wide, Words};
use pair::{Pair, word};
use warpstore_simt::host::{Grid, Interleaving, Workers, launch};
use warpstore_simt::{
    Cell, Cells, Lanes, Native, NativeCell, Order, Platform, Solo, System, thread, warp,
};
use words::words;

/// How often each command was finished, by serial number.
struct Ledger(Vec<AtomicU32>);

impl Finish for Ledger {
    fn finish(&self, completion: Completion) {
        assert_eq!(
            completion.dw0, completion.tag as u32,
            "the result of another command"
        );
        self.0[completion.tag as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Ledger {
    fn is_finished(&self, serial: u64) -> bool {
        self.0[serial as usize].load(Ordering::Relaxed) > 0
    }
}

const LIMIT: Duration = Duration::from_secs(60);

/// Completes `commands` commands in random order, or stops when told to.
fn serve(mut controller: Controller<Native>, commands: usize, stop: &AtomicBool, seed: u64) {
    let mut random = seed | 1;
    let mut left = commands;
    while left > 0 && !stop.load(Ordering::Relaxed) {
        controller.fetch();
        // Up to three at a time, and sometimes none though there are some.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for turn in 0..random % 4 {
            let waiting = controller.in_flight.len();
            if waiting > 0 && controller.has_room() {
                controller.complete((random >> (8 + turn)) as usize % waiting);
                left -= 1;
            }
        }
        std::thread::yield_now();
    }
}

/// Ends all waits if the controller's thread panics.
struct Alarm(NativeCell<u32, System>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(1, Order::Relaxed);
        }
    }
}

/// Every lane of `grid` submits `rounds` commands and waits for every other one of them.
fn every_command_completes_once(depth: u32, grid: Grid, rounds: u64, seed: u64) {
    let lanes = u64::from(grid.grid_dim) * u64::from(grid.block_dim);
    let commands = (lanes * rounds) as usize;
    let pair = Pair::<Wide>::new(depth);
    let (queue, controller) = (pair.queue, pair.controller());
    let ledger = Ledger((0..commands).map(|_| AtomicU32::new(0)).collect());
    let deadline_ns = Native::now_ns() + LIMIT.as_nanos() as u64;
    let patience = Patience {
        deadline_ns,
        abort: word(0),
    };
    let stop = AtomicBool::new(false);
    let launched = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let _alarm = Alarm(patience.abort);
            serve(controller, commands, &stop, seed);
        });
        let workers = Workers {
            threads: 2,
            resident_blocks: 4,
        };
        let launched = launch(grid, workers, Interleaving::Seeded(seed), &|| {
            for round in 0..rounds {
                // Lanes that meet here may be in different rounds.
                let mask = warp::match_any_sync(warp::active_mask(), round as u32);
                let serial = thread::index_1d() * rounds + round;
                queue
                    .submit(Lanes(mask), command(serial), serial, &ledger, &patience)
                    .unwrap();
                let mut attempt = 0;
                while round % 2 == 0 && !warp::all_sync(mask, ledger.is_finished(serial)) {
                    assert_eq!(
                        patience.exhausted(),
                        None,
                        "command {serial} never finished"
                    );
                    queue.drain(Lanes(mask), &ledger);
                    Native::pause(attempt);
                    attempt += 1;
                }
            }
        });
        // What the lanes left behind is drained by this thread.
        let started = Instant::now();
        while launched.is_ok() && !(0..commands as u64).all(|serial| ledger.is_finished(serial)) {
            queue.drain(Solo, &ledger);
            if server.is_finished() && queue.drain(Solo, &ledger) == 0 || started.elapsed() > LIMIT
            {
                break;
            }
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        server.join().expect("the controller found nothing wrong");
        launched
    });
    launched.unwrap();
    for (serial, times) in ledger.0.iter().enumerate() {
        assert_eq!(times.load(Ordering::Relaxed), 1, "command {serial}");
    }
    assert_eq!(queue.faults().total(), 0);
}

#[test]
fn a_ring_of_two_serves_whole_warps() {
    every_command_completes_once(
        2,
        Grid {
            grid_dim: 2,
            block_dim: 32,
        },
        2,
        11,
    );
}

#[test]
fn a_ring_of_four_serves_many_warps() {
    for seed in 1..=2 {
        every_command_completes_once(
            4,
            Grid {
                grid_dim: 3,
                block_dim: 48,
            },
            3,
            seed,
        );
    }
}

#[test]
fn a_ring_of_sixty_four_rings_the_cq_doorbell_at_its_cadence() {
    for seed in 1..=2 {
        every_command_completes_once(
            64,
            Grid {
                grid_dim: 4,
                block_dim: 64,
            },
            6,
            seed,
        );
    }
}

#[test]
fn a_deep_ring_takes_more_lanes_than_slots() {
    every_command_completes_once(
        1024,
        Grid {
            grid_dim: 6,
            block_dim: 256,
        },
        2,
        5,
    );
}

/// Words of a ring of four in which commands 0 to 3 went by, but whose publisher has not come to
/// store `tail`: 0 and 1 are done, 2 and 3 wait for it.
fn with_a_tail_behind() -> Words<Native> {
    Words {
        ticket: word(4),
        tail: word(0),
        cq_head: word(2 << 1),
        dead: word(0),
        rung: word(2),
        faults: words(&[0; FAULT_WORDS as usize]),
        state: words(&[2, 2, 1, 1]),
        mark: words(&[EMPTY; 4]),
        tag: words(&[0; 4]),
        sq: words(&[0; 4 * 8]),
        // The phases of the first lap's two CQEs.
        cq: words(&[0, 1 << 48, 0, 1 << 48, 0, 0, 0, 0]),
        sq_doorbell: word(2),
        cq_doorbell: word(2),
    }
}

/// [SQ-9]
#[test]
fn a_tail_behind_its_doorbell_has_published_nobody_else() {
    let words = with_a_tail_behind();
    let queue: Queue<Native> = Queue::new(words, Shape::new(4, u32::MAX).unwrap(), 3);
    let ledger = Ledger(vec![AtomicU32::new(0)]);
    let patience = Patience {
        deadline_ns: Native::now_ns() + LIMIT.as_nanos() as u64,
        abort: word(0),
    };
    let mark = words.mark.at(0);
    std::thread::scope(|scope| {
        let fifth = scope.spawn(|| queue.submit(Solo, command(0), 0, &ledger, &patience));
        while mark.load(Order::Acquire) == EMPTY {
            assert!(!fifth.is_finished(), "nobody has rung for command 4");
            std::thread::yield_now();
        }
        // The publisher goes on, and then the groups of commands 2 and 3.
        words.tail.store(4, Order::Release);
        fifth.join().unwrap().unwrap();
    });
    assert_eq!(words.sq_doorbell.load(Order::Relaxed), 1);
    assert_eq!(words.tail.load(Order::Relaxed), 5);
    assert_eq!(mark.load(Order::Relaxed), EMPTY);
}
