//! The baselines' protocols under every interleaving of a few threads and a controller.
//!
//! A thread of [`Bam`] waits for its own command, and every turn of a wait multiplies the executions.
//! So its two halves are tried one at a time, with controllers that have come or come once.

mod controller;

use controller::{Controller, Rings, SQID, command};
use loom::thread;
use nvme_queue::{
    BAM_CIDS, BAM_STRIDE, Bam, BamWords, Completion, EMPTY, FAULT_WORDS, Finish, Locked, Narrow,
    Patience, Queue, Shape, Words,
};
use warpstore_loom::{Loom, LoomCells, cell, cells, explore};
use warpstore_simt::{Cell, Cells, Device, Order, Solo, System};

/// Tickets of 6 bits wrap at 64.
type Width = Narrow<6>;

/// What became of each command, by serial number.
#[derive(Clone, Copy)]
struct Ledger {
    finished: LoomCells<u64, Device>,
    /// What the controller "read from the disk": written before the CQE, checked after it.
    data: LoomCells<u64, System>,
}

impl Ledger {
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

/// A controller, its rings and what came of them.
struct Bench {
    controller: Controller<Loom>,
    ledger: Ledger,
    patience: Patience<Loom>,
    rings: Rings<Loom>,
}

/// First index from `start` on that falls on `slot`; the slot is free for its lap.
fn next(start: u64, slot: u64, slots: u64) -> u64 {
    (start..start + slots)
        .find(|index| index % slots == slot)
        .unwrap()
}

impl Bench {
    /// Rings of `depth` entries through which `start` commands have gone, all of them done.
    fn new(depth: u32, cap: u32, start: u64, commands: usize) -> Self {
        let slots = u64::from(depth);
        let old_phase = |slot: u64| u64::from(next(start, slot, slots) / slots % 2 == 1);
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
        Self {
            controller: Controller::new(rings, depth, cap, start as u32),
            ledger: Ledger {
                finished: cells(&vec![0; commands]),
                data: cells(&vec![0; commands]),
            },
            patience: Patience {
                deadline_ns: u64::MAX,
                abort: cell(0),
            },
            rings,
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

    /// When all threads are joined.
    fn assert_all_finished_once(&self) {
        for serial in 0..self.ledger.finished.len() {
            assert_eq!(self.ledger.times_finished(serial), 1, "command {serial}");
        }
    }
}

/// A ring of `depth` with BaM's words and `cids` CIDs, as it stands after `start` commands.
fn bam(bench: &Bench, depth: u32, start: u64, cids: u64) -> Bam<Loom, Width> {
    let slots = u64::from(depth);
    let array = |elements: u64| vec![0; (elements * BAM_STRIDE) as usize];
    let mut turn = array(slots);
    for slot in 0..slots {
        turn[(slot * BAM_STRIDE) as usize] = 2 * (next(start, slot, slots) / slots);
    }
    let words = BamWords {
        ticket: cell(start),
        cid_ticket: cell(start),
        tail: cell(start),
        tail_lock: cell(0),
        sq_head: cell(start),
        cq_head: cell(start),
        cq_lock: cell(0),
        dead: cell(0),
        turn: cells(&turn),
        tail_mark: cells(&array(slots)),
        head_mark: cells(&array(slots)),
        place: cells(&array(slots)),
        cid: cells(&array(cids)),
        sq: bench.rings.sq,
        cq: bench.rings.cq,
        sq_doorbell: bench.rings.sq_doorbell,
        cq_doorbell: bench.rings.cq_doorbell,
    };
    Bam::new(words, Shape::new(depth, u32::MAX).unwrap(), SQID)
}

/// A queue of BaM's with what its users need, for threads.
#[derive(Clone, Copy)]
struct User {
    queue: Bam<Loom, Width>,
    ledger: Ledger,
    patience: Patience<Loom>,
}

impl User {
    fn new(bench: &Bench, depth: u32, start: u64) -> Self {
        Self::with_cids(bench, depth, start, u64::from(depth) * BAM_CIDS)
    }

    fn with_cids(bench: &Bench, depth: u32, start: u64, cids: u64) -> Self {
        Self {
            queue: bam(bench, depth, start, cids),
            ledger: bench.ledger,
            patience: bench.patience,
        }
    }

    fn enter(self, serial: u64) -> u16 {
        self.queue.enter(command(serial), &self.patience).unwrap()
    }

    fn leave(self, serial: u64, cid: u16) {
        self.queue
            .leave(cid, serial, &self.ledger, &self.patience)
            .unwrap();
    }
}

/// A ring of `depth` with one lock a ring.
fn locked(bench: &Bench, depth: u32, start: u64) -> Locked<Loom, Width> {
    let slots = u64::from(depth);
    let state: Vec<u64> = (0..slots)
        .map(|slot| 2 * (next(start, slot, slots) % 64 / slots))
        .collect();
    let words = Words {
        ticket: cell(start << 1),
        tail: cell(0),
        cq_head: cell(start << 1),
        dead: cell(0),
        rung: cell(0),
        faults: cells(&[0; FAULT_WORDS as usize]),
        state: cells(&state),
        mark: cells(&vec![EMPTY; depth as usize]),
        tag: cells(&vec![0; depth as usize]),
        sq: bench.rings.sq,
        cq: bench.rings.cq,
        sq_doorbell: bench.rings.sq_doorbell,
        cq_doorbell: bench.rings.cq_doorbell,
    };
    let shape = Shape::new(depth, u32::MAX).unwrap();
    Locked(Queue::new(words, shape, SQID))
}

/// A thread that submits one command under the lock and drains `turns` times.
fn submitter(
    bench: &Bench,
    queue: Locked<Loom, Width>,
    serial: u64,
    turns: u32,
) -> impl FnOnce() + 'static {
    let (ledger, patience) = (bench.ledger, bench.patience);
    move || {
        queue
            .submit(Solo, command(serial), serial, &ledger, &patience)
            .unwrap();
        for _ in 0..turns {
            queue.drain(Solo, &ledger);
        }
    }
}

fn assert_explored(executions: u64) {
    println!("{executions} executions");
    assert!(executions > 1);
}

#[test]
fn two_threads_of_bam_publish_and_ring_for_each_other() {
    // From 63 on, so that the tickets wrap in the race. The controller learns of the second command
    // from nothing but the doorbell, which the thread of the first may have rung for both.
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 3, 63, 2);
        let user = User::new(&bench, 4, 63);
        let a = thread::spawn(move || user.enter(0));
        let b = thread::spawn(move || user.enter(1));
        bench.controller.fetch();
        let a = a.join().unwrap();
        bench.controller.fetch();
        let b = b.join().unwrap();
        bench.controller.fetch();
        // One thread leaves in the order of the completions, or it would wait for itself.
        let order = [0, 1].map(|nth| bench.controller.in_flight[nth].slba());
        bench.serve();
        for serial in order {
            user.leave(serial, if serial == 0 { a } else { b });
        }
        bench.assert_all_finished_once();
    }));
}

#[test]
fn a_completion_of_bam_is_read_after_its_phase() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 3, 63, 2);
        let user = User::new(&bench, 4, 63);
        // Not command 0, whose result is what the ring holds before.
        let cid = user.enter(1);
        let leaving = thread::spawn(move || user.leave(1, cid));
        bench.serve();
        leaving.join().unwrap();
        assert_eq!(bench.ledger.times_finished(1), 1);
    }));
}

#[test]
fn two_threads_of_bam_give_back_in_order_and_free_each_slot_once() {
    assert_explored(explore(2, || {
        let mut bench = Bench::new(4, 3, 61, 6);
        let user = User::new(&bench, 4, 61);
        // Served one by one, so that the completions report different SQ heads.
        let threads = [0, 1].map(|serial| {
            let cid = user.enter(serial);
            bench.serve();
            move || user.leave(serial, cid)
        });
        let threads = threads.map(thread::spawn);
        for thread in threads {
            thread.join().unwrap();
        }
        // Once more through every slot, past the wrap.
        for serial in 2..6 {
            let cid = user.enter(serial);
            bench.serve();
            user.leave(serial, cid);
        }
        bench.assert_all_finished_once();
    }));
}

#[test]
fn a_cid_of_bam_is_not_found_in_its_last_owners_completion() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 3, 63, 2);
        let user = User::with_cids(&bench, 4, 63, 1);
        let cid = user.enter(0);
        bench.serve();
        let last = thread::spawn(move || user.leave(0, cid));
        // The same: there is no other.
        let entering = thread::spawn(move || user.enter(1));
        let cid = entering.join().unwrap();
        bench.serve();
        let next = thread::spawn(move || user.leave(1, cid));
        next.join().unwrap();
        last.join().unwrap();
        bench.assert_all_finished_once();
    }));
}

#[test]
fn two_threads_share_the_locked_rings() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(4, 3, 63, 2);
        let queue = locked(&bench, 4, 63);
        let a = thread::spawn(submitter(&bench, queue, 0, 1));
        let b = thread::spawn(submitter(&bench, queue, 1, 1));
        bench.serve();
        a.join().unwrap();
        b.join().unwrap();
        bench.serve();
        while queue.drain(Solo, &bench.ledger) > 0 {}
        assert_eq!(queue.0.faults().total(), 0, "{:?}", queue.0.faults());
        bench.assert_all_finished_once();
    }));
}

#[test]
fn the_only_slot_of_a_locked_ring_is_handed_on() {
    assert_explored(explore(3, || {
        let mut bench = Bench::new(2, 1, 63, 2);
        let queue = locked(&bench, 2, 63);
        submitter(&bench, queue, 0, 0)();
        let a = thread::spawn(submitter(&bench, queue, 1, 0));
        bench.serve();
        queue.drain(Solo, &bench.ledger);
        a.join().unwrap();
        bench.serve();
        while queue.drain(Solo, &bench.ledger) > 0 {}
        assert_eq!(queue.0.faults().total(), 0, "{:?}", queue.0.faults());
        bench.assert_all_finished_once();
    }));
}
