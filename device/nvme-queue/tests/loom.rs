//! The protocol under every interleaving of a few one-lane warps and a controller.

mod controller;

use controller::{Controller, Rings, SQID, command};
use loom::thread;
use nvme_queue::{Completion, EMPTY, FAULT_WORDS, Finish, Narrow, Patience, Queue, Shape, Words};
use warpstore_loom::{Loom, LoomCells, cell, cells, explore};
use warpstore_simt::{Cell, Cells, Device, Order, Solo, System};

type LoomQueue = Queue<Loom, Narrow<6>>;

/// What became of each command, by serial number.
#[derive(Clone, Copy)]
struct Ledger {
    finished: LoomCells<u64, Device>,
    /// What the controller "read from the disk": written before the CQE, checked after it.
    data: LoomCells<u64, System>,
}

impl Ledger {
    fn new(commands: usize) -> Self {
        Self {
            finished: cells(&vec![0; commands]),
            data: cells(&vec![0; commands]),
        }
    }

    fn times_finished(self, serial: u64) -> u64 {
        self.finished.at(serial).load(Order::Relaxed)
    }
}

impl Finish for Ledger {
    fn finish(&self, completion: Completion) {
        let serial = completion.tag;
        assert!(completion.status.is_success());
        assert_eq!(
            u64::from(completion.dw0),
            serial,
            "the result of another command"
        );
        assert_eq!(
            self.data.at(serial).load(Order::Relaxed),
            serial + 100,
            "CQE came before data"
        );
        self.finished.at(serial).fetch_add(1, Order::Relaxed);
    }
}

/// A queue pair and everything around it.
struct Bench {
    queue: LoomQueue,
    controller: Controller<Loom>,
    ledger: Ledger,
    patience: Patience<Loom>,
}

impl Bench {
    /// A ring of `depth` through which `start` commands have gone, all of them done.
    fn new(depth: u32, start: u64, commands: usize) -> Self {
        Self::of(Shape::new(depth, u32::MAX).unwrap(), start, commands)
    }

    /// The same for queues of any shape.
    fn of(shape: Shape, start: u64, commands: usize) -> Self {
        let depth = shape.depth() as u32;
        let slots = u64::from(depth);
        // First index from `start` on that falls on each slot; the slot is free for its lap.
        let next = |slot: u64| {
            (start..start + slots)
                .find(|index| index % slots == slot)
                .unwrap()
        };
        let state: Vec<u64> = (0..slots)
            .map(|slot| 2 * (next(slot) % 64 / slots))
            .collect();
        let old_phase = |slot: u64| u64::from(next(slot) / slots % 2 == 1);
        let cq: Vec<u64> = (0..slots)
            .flat_map(|slot| [0, old_phase(slot) << 48])
            .collect();
        let doorbell = (start % slots) as u32;
        let rings = Rings {
            sq: cells(&vec![0; depth as usize * 8]),
            cq: cells(&cq),
            sq_doorbell: cell(doorbell),
            cq_doorbell: cell(doorbell),
        };
        let words = Words {
            ticket: cell(start),
            tail: cell(start),
            cq_head: cell(start << 1),
            dead: cell(0),
            rung: cell(start),
            faults: cells(&[0; FAULT_WORDS as usize]),
            state: cells(&state),
            mark: cells(&vec![EMPTY; depth as usize]),
            tag: cells(&vec![0; depth as usize]),
            sq: rings.sq,
            cq: rings.cq,
            sq_doorbell: rings.sq_doorbell,
            cq_doorbell: rings.cq_doorbell,
        };
        Self {
            queue: Queue::new(words, shape, SQID),
            controller: Controller::new(rings, depth, shape.cap(), start as u32),
            ledger: Ledger::new(commands),
            patience: Patience {
                deadline_ns: u64::MAX,
                abort: cell(0),
            },
        }
    }

    /// A submitter of one command; it does not wait for it.
    fn submitter(&self, serial: u64) -> impl FnOnce() + 'static {
        let (queue, ledger, patience) = (self.queue, self.ledger, self.patience);
        move || {
            queue
                .submit(Solo, command(serial), serial, &ledger, &patience)
                .unwrap()
        }
    }

    /// A warp that drains `turns` times and does not wait. Scenarios are finite wherever they can
    /// be: every turn of a loop multiplies the executions.
    fn drainer(&self, turns: u32) -> impl FnOnce() + 'static {
        let (queue, ledger) = (self.queue, self.ledger);
        move || {
            for _ in 0..turns {
                queue.drain(Solo, &ledger);
            }
        }
    }

    /// Completes the `nth` command in flight, its data first.
    fn complete(&mut self, nth: usize) {
        let serial = self.controller.in_flight[nth].slba();
        self.ledger
            .data
            .at(serial)
            .store(serial + 100, Order::Relaxed);
        self.controller.complete(nth);
    }

    /// Completes everything that is published now, in order.
    fn serve(&mut self) {
        self.controller.fetch();
        while !self.controller.in_flight.is_empty() && self.controller.has_room() {
            self.complete(0);
        }
    }

    /// When all threads are joined: completes and drains what is left, and expects that every
    /// command has been finished once.
    fn assert_all_finished_once(&mut self) {
        self.serve();
        while self.queue.drain(Solo, &self.ledger) > 0 {
            self.serve();
        }
        for serial in 0..self.ledger.finished.len() {
            assert_eq!(self.ledger.times_finished(serial), 1, "command {serial}");
        }
        assert_eq!(self.queue.faults().total(), 0);
    }

    /// Submits, serves and drains these commands one after the other, alone.
    fn run_alone(&mut self, serials: std::ops::Range<u64>) {
        for serial in serials {
            self.submitter(serial)();
            self.controller.fetch();
            assert_eq!(
                self.controller.in_flight.len(),
                1,
                "a doorbell for one command"
            );
            self.complete(0);
            assert_eq!(self.queue.drain(Solo, &self.ledger), 1);
        }
    }
}

fn assert_explored(executions: u64) {
    println!("{executions} executions");
    assert!(executions > 1);
}

#[test]
fn two_submitters_race_to_publish_and_leave_no_stale_mark() {
    // From 61 on, so that the 6-bit tickets wrap in the race and the marks it leaves are tried
    // over three laps afterwards.
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 61, 14);
        let a = thread::spawn(bench.submitter(0));
        let b = thread::spawn(bench.submitter(1));
        a.join().unwrap();
        b.join().unwrap();
        bench.serve();
        bench.drainer(2)();
        bench.run_alone(2..14);
        bench.assert_all_finished_once();
    }));
}

#[test]
fn entries_are_written_before_the_doorbell() {
    // The controller learns of the second submitter from nothing but the doorbell, which the
    // first may have rung for both.
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 62, 2);
        let a = thread::spawn(bench.submitter(0));
        let b = thread::spawn(bench.submitter(1));
        bench.controller.fetch();
        a.join().unwrap();
        bench.controller.fetch();
        b.join().unwrap();
        bench.assert_all_finished_once();
    }));
}

#[test]
fn a_completion_is_read_after_its_phase() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 63, 2);
        bench.submitter(0)();
        bench.submitter(1)();
        let a = thread::spawn(bench.drainer(2));
        let b = thread::spawn(bench.drainer(1));
        bench.serve();
        a.join().unwrap();
        b.join().unwrap();
        bench.assert_all_finished_once();
    }));
}

#[test]
fn who_finds_nothing_in_a_far_ring_lets_others_look() {
    assert_explored(explore(3, || {
        let far = Shape::new(4, u32::MAX).unwrap().far();
        let mut bench = Bench::of(far, 63, 2);
        bench.submitter(0)();
        bench.submitter(1)();
        let a = thread::spawn(bench.drainer(2));
        let b = thread::spawn(bench.drainer(1));
        bench.serve();
        a.join().unwrap();
        b.join().unwrap();
        bench.assert_all_finished_once();
    }));
}

#[test]
fn a_submitter_and_a_drainer_share_the_completions() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 63, 2);
        bench.submitter(0)();
        let submit = bench.submitter(1);
        let drain = bench.drainer(1);
        let client = thread::spawn(move || {
            submit();
            drain();
        });
        let drainer = thread::spawn(bench.drainer(2));
        bench.serve();
        client.join().unwrap();
        drainer.join().unwrap();
        bench.assert_all_finished_once();
    }));
}

#[test]
fn the_only_slot_of_a_ring_of_two_is_handed_on() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(2, 63, 2);
        bench.submitter(0)();
        let submitter = thread::spawn(bench.submitter(1));
        let drainer = thread::spawn(bench.drainer(1));
        bench.serve();
        submitter.join().unwrap();
        drainer.join().unwrap();
        bench.assert_all_finished_once();
    }));
}

#[test]
fn a_slot_is_not_reused_before_its_own_command_is_done() {
    assert_explored(explore(1, || {
        let mut bench = Bench::new(4, 61, 5);
        for serial in 0..3 {
            bench.submitter(serial)();
        }
        bench.controller.fetch();
        // Completed out of order: the cap lets the fifth command in, the slot of the first
        // does not.
        bench.complete(1);
        bench.complete(1);
        bench.drainer(2)();
        let a = thread::spawn(bench.submitter(3));
        let b = thread::spawn(bench.submitter(4));
        bench.complete(0);
        a.join().unwrap();
        b.join().unwrap();
        bench.assert_all_finished_once();
    }));
}

#[test]
fn a_duplicate_completion_is_applied_once() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 62, 1);
        bench.submitter(0)();
        bench.controller.fetch();
        let cid = bench.controller.in_flight[0].cid();
        bench.complete(0);
        bench.controller.post(SQID, cid, 0);
        let a = thread::spawn(bench.drainer(2));
        let b = thread::spawn(bench.drainer(2));
        a.join().unwrap();
        b.join().unwrap();
        bench.drainer(2)();
        assert_eq!(bench.ledger.times_finished(0), 1);
        let faults = bench.queue.faults();
        assert_eq!(
            (faults.duplicate, faults.total(), faults.last_cid),
            (1, 1, cid)
        );
    }));
}

#[test]
fn an_entry_is_given_back_only_after_it_was_read() {
    // Completions of nobody are bounded by the CQ doorbell alone, so they overwrite whatever it
    // gives back.
    const NOBODY: u16 = 0x7ff0;
    assert_explored(explore(3, || {
        let mut bench = Bench::new(2, 62, 1);
        bench.submitter(0)();
        bench.controller.fetch();
        bench.complete(0);
        let a = thread::spawn(bench.drainer(1));
        let b = thread::spawn(bench.drainer(1));
        for _ in 0..2 {
            if bench.controller.has_room() {
                bench.controller.post(SQID, NOBODY, u32::MAX);
            }
        }
        a.join().unwrap();
        b.join().unwrap();
        bench.drainer(3)();
        assert_eq!(bench.ledger.times_finished(0), 1);
        let faults = bench.queue.faults();
        assert_eq!(faults.total(), faults.stale, "{faults:?}");
    }));
}
