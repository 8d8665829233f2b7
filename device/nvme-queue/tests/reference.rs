//! Random programs against a reference ring, on one thread.

mod controller;
mod pair;

use std::cell::RefCell;
use std::collections::VecDeque;

use controller::{SQID, command};
use nvme_queue::{
    Completion, Faults, Finish, Narrow, Patience, Protocol, Queue, QueueError, Reason, Ticket, Wide,
};
use pair::{Pair, word};
use proptest::prelude::*;
use warpstore_simt::{Cell, Native, Order, Platform, Solo};

/// Serial numbers in the order in which they were finished.
#[derive(Default)]
struct Finished(RefCell<Vec<u64>>);

impl Finish for Finished {
    fn finish(&self, completion: Completion) {
        assert_eq!(
            completion.dw0, completion.tag as u32,
            "the result of another command"
        );
        self.0.borrow_mut().push(completion.tag);
    }
}

/// The ring as one would draw it: for each slot the laps begun, and the command in it.
struct Reference {
    slots: Vec<(u64, Option<u64>)>,
    submitted: u64,
    /// SQID and CID of the CQEs posted and not drained.
    posted: VecDeque<(u16, u16)>,
    finished: Vec<u64>,
    faults: Faults,
}

impl Reference {
    fn new(depth: usize) -> Self {
        Self {
            slots: vec![(0, None); depth],
            submitted: 0,
            posted: VecDeque::new(),
            finished: Vec::new(),
            faults: Faults::default(),
        }
    }

    fn admits(&self, cap: usize) -> bool {
        let next = self.submitted as usize % self.slots.len();
        let capped = self.submitted.checked_sub(cap as u64);
        self.slots[next].1.is_none() && capped.is_none_or(|before| self.finished.contains(&before))
    }

    fn submit(&mut self) {
        let slot = self.submitted as usize % self.slots.len();
        self.slots[slot] = (self.slots[slot].0 + 1, Some(self.submitted));
        self.submitted += 1;
    }

    /// Serial number and CID of the commands that are not finished.
    fn in_flight(&self, laps: u64) -> impl Iterator<Item = (u64, u16)> {
        let depth = self.slots.len() as u64;
        let generations = laps.min(0x8000 / depth);
        let slots = (0..).zip(&self.slots);
        slots.filter_map(move |(slot, (begun, command))| {
            let cid = (begun.checked_sub(1)? % generations) * depth + slot;
            Some(((*command)?, cid as u16))
        })
    }

    /// Drains one CQE; false if there is none.
    fn drain(&mut self, laps: u64) -> bool {
        let Some((sqid, cid)) = self.posted.pop_front() else {
            return false;
        };
        let depth = self.slots.len() as u64;
        let generations = laps.min(0x8000 / depth);
        let generation = u64::from(cid) / depth;
        let (begun, command) = &mut self.slots[(u64::from(cid) % depth) as usize];
        let current = *begun > 0 && generation == (*begun - 1) % generations;
        let counter = match command {
            _ if sqid != SQID => &mut self.faults.foreign,
            _ if cid >= 0x8000 => &mut self.faults.unknown,
            Some(serial) if current => {
                self.finished.push(*serial);
                *command = None;
                return true;
            }
            None if current => &mut self.faults.duplicate,
            _ => &mut self.faults.stale,
        };
        *counter += 1;
        self.faults.last_cid = cid;
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    Submit,
    Fetch,
    /// Complete one of the commands in flight.
    Complete(usize),
    /// Post the CID of a command that was completed some time ago.
    Repeat(usize),
    /// Post what the controller likes.
    Invent(u16),
    /// Post for another queue.
    Misroute(u16),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Submit),
        4 => Just(Step::Fetch),
        5 => any::<usize>().prop_map(Step::Complete),
        1 => (0usize..8).prop_map(Step::Repeat),
        1 => (0x8000u16..).prop_map(Step::Invent),
        1 => any::<u16>().prop_map(Step::Misroute),
        6 => Just(Step::Drain),
    ]
}

fn patience() -> Patience<Native> {
    Patience {
        deadline_ns: u64::MAX,
        abort: word(0),
    }
}

fn submit<W: Ticket>(
    queue: Queue<Native, W>,
    serial: u64,
    finished: &Finished,
    patience: &Patience<Native>,
) -> Result<(), QueueError> {
    queue.submit(Solo, command(serial), serial, finished, patience)
}

fn follows_the_reference<W: Ticket>(depth: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let pair = Pair::<W>::with(depth, Protocol::Hop);
    let (queue, mut controller, finished) = (pair.queue, pair.controller(), Finished::default());
    let mut reference = Reference::new(depth as usize);
    let laps = 1u64.checked_shl(W::BITS - depth.trailing_zeros()).unwrap();
    let mut completed: VecDeque<u16> = VecDeque::new();
    let patience = patience();
    for step in steps {
        let post = match *step {
            Step::Submit => {
                if reference.admits(queue.shape().cap() as usize) {
                    submit(queue, reference.submitted, &finished, &patience).unwrap();
                    reference.submit();
                }
                None
            }
            Step::Fetch => {
                controller.fetch();
                None
            }
            Step::Complete(nth) => {
                if !controller.in_flight.is_empty() && controller.has_room() {
                    let sqe = controller.complete(nth % controller.in_flight.len());
                    reference.posted.push_back((SQID, sqe.cid()));
                    completed.push_front(sqe.cid());
                }
                None
            }
            Step::Repeat(ago) => completed.get(ago).map(|&cid| (SQID, cid)),
            Step::Invent(cid) => Some((SQID, cid)),
            Step::Misroute(cid) => Some((SQID + 1, cid)),
            Step::Drain => {
                let drained = queue.drain(Solo, &finished) == 1;
                prop_assert_eq!(drained, reference.drain(laps));
                None
            }
        };
        if let Some((sqid, cid)) = post
            && controller.has_room()
        {
            controller.post(sqid, cid, u32::MAX);
            reference.posted.push_back((sqid, cid));
        }
        prop_assert_eq!(&*finished.0.borrow(), &reference.finished);
        prop_assert_eq!(queue.faults(), reference.faults);
        for (serial, cid) in reference.in_flight(laps) {
            prop_assert_eq!(queue.cid_in_flight(serial), Some(cid));
        }
        if let Some(&finished) = reference.finished.last() {
            prop_assert_eq!(queue.cid_in_flight(finished), None);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn narrow_tickets_follow_the_reference(log2_depth in 1u32..=3, steps in proptest::collection::vec(step(), 1..1000)) {
        follows_the_reference::<Narrow<6>>(1 << log2_depth, &steps)?;
    }

    #[test]
    fn wide_tickets_follow_the_reference(log2_depth in 1u32..=6, steps in proptest::collection::vec(step(), 1..1000)) {
        follows_the_reference::<Wide>(1 << log2_depth, &steps)?;
    }
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Hop, Protocol::Bam, Protocol::Lock];

/// Expects that no command is finished.
#[derive(Clone, Copy)]
struct Nothing;

impl Finish for Nothing {
    fn finish(&self, completion: Completion) {
        panic!("nobody completed {completion:?}");
    }
}

/// Submits until a command does not get through; the reason.
fn fill(pair: &Pair<Wide>, patience: &Patience<Native>) -> Reason {
    let error = (0..64)
        .find_map(|serial| {
            let sqe = command(serial);
            let submitted = pair.any().submit(Solo, sqe, serial, &Nothing, patience);
            submitted.err()
        })
        .expect("a ring of four took 64 commands");
    assert_eq!(error.queue, SQID);
    error.reason
}

/// Fills a queue on another thread; does `then` when the controller has a command.
fn fill_until(pair: &Pair<Wide>, patience: &Patience<Native>, then: impl FnOnce()) -> Reason {
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| fill(pair, patience));
        let mut controller = pair.controller();
        while controller.in_flight.is_empty() {
            controller.fetch();
            std::thread::yield_now();
        }
        then();
        filling.join().unwrap()
    })
}

#[test]
fn a_full_queue_ends_in_the_reason_and_is_dead_afterwards() {
    for protocol in PROTOCOLS {
        let pair = Pair::with(4, protocol);
        let brief = Patience {
            deadline_ns: Native::now_ns() + 1_000_000,
            ..patience()
        };
        assert!(!pair.any().is_dead());
        assert_eq!(fill(&pair, &brief), Reason::Expired, "{protocol:?}");
        assert!(pair.any().is_dead());
        assert_eq!(fill(&pair, &patience()), Reason::Dead, "{protocol:?}");
    }
}

#[test]
fn the_abort_word_ends_a_wait() {
    for protocol in PROTOCOLS {
        let (pair, patience) = (Pair::with(4, protocol), patience());
        let reason = fill_until(&pair, &patience, || patience.abort.store(1, Order::Relaxed));
        assert_eq!(reason, Reason::Aborted, "{protocol:?}");
    }
}

#[test]
fn a_death_ends_the_waits_of_others() {
    for protocol in PROTOCOLS {
        let (pair, patience) = (Pair::with(4, protocol), patience());
        let reason = fill_until(&pair, &patience, || pair.any().kill());
        assert_eq!(reason, Reason::Dead, "{protocol:?}");
    }
}

#[test]
fn a_queue_that_was_killed_takes_no_command() {
    for protocol in PROTOCOLS {
        let pair = Pair::with(4, protocol);
        pair.any().kill();
        assert_eq!(fill(&pair, &patience()), Reason::Dead, "{protocol:?}");
        let mut controller = pair.controller();
        controller.fetch();
        assert!(controller.in_flight.is_empty(), "{protocol:?}");
    }
}
