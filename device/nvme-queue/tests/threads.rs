//! Many lanes on host threads against a controller on a thread of its own.

mod controller;
mod pair;
mod words;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use controller::{Controller, Rings, SQID, command};
use nvme_queue::{
    BAM_CIDS, BAM_STRIDE, Bam, BamWords, Completion, EMPTY, FAULT_WORDS, Finish, Patience,
    Protocol, Queue, Shape, Wide, Words,
};
use pair::{Pair, word};
use warpstore_simt::host::{Grid, Interleaving, Workers, launch};
use warpstore_simt::{
    Cell, Cells, Lanes, Native, NativeCell, Order, Platform, Solo, System, thread, warp,
};
use words::words;

/// How often each command was finished, by serial number.
#[derive(Clone, Copy)]
struct Ledger<'a>(&'a [AtomicU32]);

impl Finish for Ledger<'_> {
    fn finish(&self, completion: Completion) {
        assert_eq!(
            completion.dw0, completion.tag as u32,
            "the result of another command"
        );
        self.0[completion.tag as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Ledger<'_> {
    fn is_finished(&self, serial: u64) -> bool {
        self.0[serial as usize].load(Ordering::Relaxed) > 0
    }
}

const LIMIT: Duration = Duration::from_secs(60);

fn patience() -> Patience<Native> {
    Patience {
        deadline_ns: Native::now_ns() + LIMIT.as_nanos() as u64,
        abort: word(0),
    }
}

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

/// Every lane of `grid` submits `rounds` commands and waits for every other one of them; with
/// [`Protocol::Bam`] it has waited for each when it was submitted.
fn every_command_completes_once(
    protocol: Protocol,
    depth: u32,
    grid: Grid,
    rounds: u64,
    seed: u64,
) {
    let lanes = u64::from(grid.grid_dim) * u64::from(grid.block_dim);
    let commands = (lanes * rounds) as usize;
    let pair = Pair::<Wide>::with(depth, protocol);
    let (queue, controller) = (pair.any(), pair.controller());
    let finished: Vec<AtomicU32> = (0..commands).map(|_| AtomicU32::new(0)).collect();
    let ledger = Ledger(&finished);
    let patience = patience();
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
                assert!(protocol != Protocol::Bam || ledger.is_finished(serial));
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
    if protocol != Protocol::Bam {
        assert_eq!(pair.queue.faults().total(), 0);
    }
}

fn grid(grid_dim: u32, block_dim: u32) -> Grid {
    Grid {
        grid_dim,
        block_dim,
    }
}

/// The protocols that serve any number of lanes.
const UNLIMITED: [Protocol; 2] = [Protocol::Hop, Protocol::Lock];

#[test]
fn a_ring_of_two_serves_whole_warps() {
    for protocol in UNLIMITED {
        every_command_completes_once(protocol, 2, grid(2, 32), 2, 11);
    }
    every_command_completes_once(Protocol::Bam, 2, grid(1, 1), 9, 11);
}

#[test]
fn a_ring_of_four_serves_many_warps() {
    for seed in 1..=2 {
        for protocol in UNLIMITED {
            every_command_completes_once(protocol, 4, grid(3, 48), 3, seed);
        }
        every_command_completes_once(Protocol::Bam, 4, grid(3, 1), 20, seed);
    }
}

#[test]
fn a_ring_of_sixty_four_rings_the_cq_doorbell_at_its_cadence() {
    for seed in 1..=2 {
        for protocol in UNLIMITED {
            every_command_completes_once(protocol, 64, grid(4, 64), 6, seed);
        }
        // [BQ-7] As many as the ring admits, in warps of 21.
        every_command_completes_once(Protocol::Bam, 64, grid(3, 21), 12, seed);
    }
}

#[test]
fn a_deep_ring_takes_more_lanes_than_slots() {
    every_command_completes_once(Protocol::Hop, 1024, grid(6, 256), 2, 5);
    // The others are too slow for so many: each lane looks at one lock, or at all completions.
    every_command_completes_once(Protocol::Lock, 16, grid(2, 64), 2, 5);
    every_command_completes_once(Protocol::Bam, 128, grid(1, 127), 2, 5);
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
    let finished = [AtomicU32::new(0)];
    let ledger = Ledger(&finished);
    let patience = patience();
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

/// The words of a new ring with BaM's protocol.
fn bam_words(depth: u64) -> BamWords<Native> {
    let zeros = |len: u64| words(&vec![0; len as usize]);
    BamWords {
        ticket: word(0),
        cid_ticket: word(0),
        tail: word(0),
        tail_lock: word(0),
        sq_head: word(0),
        cq_head: word(0),
        cq_lock: word(0),
        dead: word(0),
        turn: zeros(depth * BAM_STRIDE),
        tail_mark: zeros(depth * BAM_STRIDE),
        head_mark: zeros(depth * BAM_STRIDE),
        place: zeros(depth * BAM_STRIDE),
        cid: zeros(depth * BAM_STRIDE * BAM_CIDS),
        sq: words(&vec![0; depth as usize * 8]),
        cq: words(&vec![0; depth as usize * 2]),
        sq_doorbell: word(0),
        cq_doorbell: word(0),
    }
}

fn bam(depth: u32) -> (Bam<Native>, BamWords<Native>, Controller<Native>) {
    let words = bam_words(u64::from(depth));
    let rings = Rings {
        sq: words.sq,
        cq: words.cq,
        sq_doorbell: words.sq_doorbell,
        cq_doorbell: words.cq_doorbell,
    };
    let queue = Bam::new(words, Shape::new(depth, u32::MAX).unwrap(), SQID);
    (queue, words, Controller::new(rings, depth, depth - 1, 0))
}

/// [BQ-1], with more users than the ring admits: one finds the ring full, one its slot taken.
#[test]
fn an_entry_of_bam_is_not_overwritten_before_it_was_fetched() {
    let (queue, words, mut controller) = bam(2);
    let finished: Vec<AtomicU32> = (0..3).map(|_| AtomicU32::new(0)).collect();
    let ledger = Ledger(&finished);
    let patience = patience();
    let cid = queue.enter(command(0), &patience).unwrap();
    std::thread::scope(|scope| {
        let users = [1, 2].map(|serial| {
            scope.spawn(move || queue.submit(Solo, command(serial), serial, &ledger, &patience))
        });
        let has_overwritten = || words.tail_mark.at(0).load(Order::Relaxed) != 0;
        for _ in 0..10_000 {
            if words.ticket.load(Order::Relaxed) == 3 && has_overwritten() {
                break;
            }
            std::thread::yield_now();
        }
        controller.fetch();
        assert_eq!(
            controller.in_flight[0].slba(),
            0,
            "the entry of another command"
        );
        controller.complete(0);
        queue.leave(cid, 0, &ledger, &patience).unwrap();
        while users.iter().any(|user| !user.is_finished()) {
            controller.fetch();
            if !controller.in_flight.is_empty() {
                controller.complete(0);
            }
            std::thread::yield_now();
        }
        for user in users {
            user.join().unwrap().unwrap();
        }
    });
    assert!((0..3).all(|serial| ledger.is_finished(serial)));
}

/// [BQ-5]
#[test]
fn a_slow_command_of_bam_keeps_its_cid() {
    let (queue, _, mut controller) = bam(4);
    let finished: Vec<AtomicU32> = (0..100).map(|_| AtomicU32::new(0)).collect();
    let ledger = Ledger(&finished);
    let patience = patience();
    let slow = queue.enter(command(0), &patience).unwrap();
    // Three times round the CIDs; the controller refuses one that is in use.
    for serial in 1..100 {
        let cid = queue.enter(command(serial), &patience).unwrap();
        controller.fetch();
        controller.complete(1);
        queue.leave(cid, serial, &ledger, &patience).unwrap();
    }
    controller.complete(0);
    queue.leave(slow, 0, &ledger, &patience).unwrap();
    assert!((0..100).all(|serial| ledger.is_finished(serial)));
}

/// Gives `thread` time to do what it should not.
fn stays_away_from<T>(thread: &std::thread::ScopedJoinHandle<'_, T>, wrong: impl Fn() -> bool) {
    for _ in 0..2000 {
        if wrong() || thread.is_finished() {
            break;
        }
        std::thread::yield_now();
    }
    assert!(!wrong() && !thread.is_finished());
}

/// [BQ-3] Commands 0 to 3 went by, and their publisher, who has rung, sleeps before it stores the tail.
/// Command 4 has the slot, and so the mark, of command 0.
#[test]
fn a_tail_of_bam_is_moved_by_one_thread_at_a_time() {
    let (queue, words, _) = bam(4);
    for slot in 0..4 {
        words.turn.at(slot * BAM_STRIDE).store(2, Order::Relaxed);
    }
    for word in [words.ticket, words.sq_head, words.cq_head] {
        word.store(4, Order::Relaxed);
    }
    words.tail_lock.store(1, Order::Relaxed);
    let patience = patience();
    std::thread::scope(|scope| {
        let fifth = scope.spawn(|| queue.enter(command(4), &patience));
        while words.tail_mark.at(0).load(Order::Acquire) == 0 {
            assert!(!fifth.is_finished(), "nobody has rung for command 4");
            std::thread::yield_now();
        }
        stays_away_from(&fifth, || words.sq_doorbell.load(Order::Relaxed) != 0);
        words.tail.store(4, Order::Relaxed);
        words.tail_lock.store(0, Order::Release);
        fifth.join().unwrap().unwrap();
    });
    assert_eq!(words.tail.load(Order::Relaxed), 5);
    assert_eq!(words.sq_doorbell.load(Order::Relaxed), 1);
}

/// [BQ-6] Whoever moves the head has taken a thread's mark, and sleeps before it stores the head.
#[test]
fn a_thread_of_bam_leaves_when_the_head_has_passed_it() {
    let (queue, words, mut controller) = bam(4);
    let finished = [AtomicU32::new(0)];
    let ledger = Ledger(&finished);
    let patience = patience();
    let cid = queue.enter(command(0), &patience).unwrap();
    controller.fetch();
    controller.complete(0);
    words.cq_lock.store(1, Order::Relaxed);
    let mark = words.head_mark.at(0);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| queue.leave(cid, 0, &ledger, &patience));
        while mark.load(Order::Acquire) == 0 {
            std::thread::yield_now();
        }
        mark.store(0, Order::Relaxed);
        let cid = words.cid.at(u64::from(cid) * BAM_STRIDE);
        stays_away_from(&leaving, || cid.load(Order::Relaxed) == 0);
        words.cq_head.store(1, Order::Release);
        words.cq_lock.store(0, Order::Release);
        leaving.join().unwrap().unwrap();
    });
    assert!(ledger.is_finished(0));
}
