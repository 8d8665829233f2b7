//! The baselines' protocols under every interleaving of a few threads and a controller.
//!
//! A thread of [`Bam`] waits for its own command, and every turn of a wait multiplies the executions.
//! So its two halves are tried one at a time, with controllers that have come or come once.

mod controller;
mod served;

use controller::{SQID, command};
use loom::thread;
use nvme_queue::{BAM_CIDS, BAM_STRIDE, Bam, BamWords, Locked, Patience, Queue, Shape};
use served::{Ledger, Served, Width, assert_explored, next};
use warpstore_loom::{Loom, cell, cells, explore};
use warpstore_simt::Solo;

/// A ring of `depth` with BaM's words and `cids` CIDs, as it stands after `start` commands.
fn bam(bench: &Served, depth: u32, start: u64, cids: u64) -> Bam<Loom, Width> {
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
    fn new(bench: &Served, depth: u32, start: u64) -> Self {
        Self::with_cids(bench, depth, start, u64::from(depth) * BAM_CIDS)
    }

    fn with_cids(bench: &Served, depth: u32, start: u64, cids: u64) -> Self {
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
fn locked(bench: &Served, depth: u32, start: u64) -> Locked<Loom, Width> {
    let words = bench.words(depth, start, start << 1, 0);
    let shape = Shape::new(depth, u32::MAX).unwrap();
    Locked(Queue::new(words, shape, SQID))
}

/// A thread that submits one command under the lock and drains `turns` times.
fn submitter(
    bench: &Served,
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

#[test]
fn two_threads_of_bam_publish_and_ring_for_each_other() {
    // From 63 on, so that the tickets wrap in the race. The controller learns of the second command
    // from nothing but the doorbell, which the thread of the first may have rung for both.
    assert_explored(explore(3, || {
        let mut bench = Served::new(4, 3, 63, 2);
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
        let mut bench = Served::new(4, 3, 63, 2);
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
        let mut bench = Served::new(4, 3, 61, 6);
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
        let mut bench = Served::new(4, 3, 63, 2);
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
        let mut bench = Served::new(4, 3, 63, 2);
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
        let mut bench = Served::new(2, 1, 63, 2);
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
