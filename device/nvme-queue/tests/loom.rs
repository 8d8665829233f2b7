//! The protocol under every interleaving of a few one-lane warps and a controller.

mod controller;
mod served;

use controller::{SQID, command};
use loom::thread;
use nvme_queue::{Queue, Shape};
use served::{Served, Width, assert_explored};
use warpstore_loom::{Loom, explore};
use warpstore_simt::Solo;

/// A queue pair and everything around it.
struct Bench {
    queue: Queue<Loom, Width>,
    served: Served,
}

impl Bench {
    /// A ring of `depth` through which `start` commands have gone, all of them done.
    fn new(depth: u32, start: u64, commands: usize) -> Self {
        Self::of(Shape::new(depth, u32::MAX).unwrap(), start, commands)
    }

    /// The same for queues of any shape.
    fn of(shape: Shape, start: u64, commands: usize) -> Self {
        let depth = shape.depth() as u32;
        let served = Served::new(depth, shape.cap(), start, commands);
        let words = served.words(depth, start, start, start);
        Self {
            queue: Queue::new(words, shape, SQID),
            served,
        }
    }

    /// A submitter of one command; it does not wait for it.
    fn submitter(&self, serial: u64) -> impl FnOnce() + 'static {
        let (queue, ledger, patience) = (self.queue, self.served.ledger, self.served.patience);
        move || {
            queue
                .submit(Solo, command(serial), serial, &ledger, &patience)
                .unwrap()
        }
    }

    /// A warp that drains `turns` times and does not wait. Scenarios are finite wherever they can
    /// be: every turn of a loop multiplies the executions.
    fn drainer(&self, turns: u32) -> impl FnOnce() + 'static {
        let (queue, ledger) = (self.queue, self.served.ledger);
        move || {
            for _ in 0..turns {
                queue.drain(Solo, &ledger);
            }
        }
    }

    /// When all threads are joined: completes and drains what is left, and expects that every
    /// command has been finished once.
    fn assert_all_finished_once(&mut self) {
        self.served.serve();
        while self.queue.drain(Solo, &self.served.ledger) > 0 {
            self.served.serve();
        }
        self.served.assert_all_finished_once();
        assert_eq!(self.queue.faults().total(), 0);
    }

    /// Submits, serves and drains these commands one after the other, alone.
    fn run_alone(&mut self, serials: std::ops::Range<u64>) {
        for serial in serials {
            self.submitter(serial)();
            self.served.controller.fetch();
            assert_eq!(
                self.served.controller.in_flight.len(),
                1,
                "a doorbell for one command"
            );
            self.served.complete(0);
            assert_eq!(self.queue.drain(Solo, &self.served.ledger), 1);
        }
    }
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
        bench.served.serve();
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
        bench.served.controller.fetch();
        a.join().unwrap();
        bench.served.controller.fetch();
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
        bench.served.serve();
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
        bench.served.serve();
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
        bench.served.serve();
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
        bench.served.serve();
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
        bench.served.controller.fetch();
        // Completed out of order: the cap lets the fifth command in, the slot of the first
        // does not.
        bench.served.complete(1);
        bench.served.complete(1);
        bench.drainer(2)();
        let a = thread::spawn(bench.submitter(3));
        let b = thread::spawn(bench.submitter(4));
        bench.served.complete(0);
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
        bench.served.controller.fetch();
        let cid = bench.served.controller.in_flight[0].cid();
        bench.served.complete(0);
        bench.served.controller.post(SQID, cid, 0);
        let a = thread::spawn(bench.drainer(2));
        let b = thread::spawn(bench.drainer(2));
        a.join().unwrap();
        b.join().unwrap();
        bench.drainer(2)();
        assert_eq!(bench.served.ledger.times_finished(0), 1);
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
        bench.served.controller.fetch();
        bench.served.complete(0);
        let a = thread::spawn(bench.drainer(1));
        let b = thread::spawn(bench.drainer(1));
        for _ in 0..2 {
            if bench.served.controller.has_room() {
                bench.served.controller.post(SQID, NOBODY, u32::MAX);
            }
        }
        a.join().unwrap();
        b.join().unwrap();
        bench.drainer(3)();
        assert_eq!(bench.served.ledger.times_finished(0), 1);
        let faults = bench.queue.faults();
        assert_eq!(faults.total(), faults.stale, "{faults:?}");
    }));
}
