//! One warp: which lanes can run, which wait, and the results they wait for.

use std::cell::Cell;
use std::panic::Location;

use super::collective::Operation;
use super::lane::next_random;

/// What a waiting lane brought, and what it takes away.
#[derive(Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) operation: Operation,
    pub(crate) mask: u32,
    pub(crate) site: &'static Location<'static>,
    value: u64,
    source: u32,
    result: u64,
    /// When the worker first saw the lane wait (`now_ns`), zero before.
    seen_ns: u64,
}

impl Seat {
    pub(crate) fn new(
        operation: Operation,
        mask: u32,
        value: u64,
        source: u32,
        site: &'static Location<'static>,
    ) -> Self {
        Self {
            operation,
            mask,
            site,
            value,
            source,
            result: 0,
            seen_ns: 0,
        }
    }
}

/// The lanes of `mask`, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let lane = left.trailing_zeros();
        left &= left - 1;
        Some(lane)
    })
}

/// State of one warp, as masks over its lanes. A lane that has not finished is in exactly one of
/// `runnable`, `asking`, `collecting` and `at_barrier`.
pub(crate) struct Warp {
    members: u32,
    runnable: Cell<u32>,
    asking: Cell<u32>,
    collecting: Cell<u32>,
    at_barrier: Cell<u32>,
    finished: Cell<u32>,
    /// Runnable lanes whose last word was a pause.
    paused: Cell<u32>,
    seats: [Cell<Option<Seat>>; 32],
    /// xorshift state; zero: sets of lanes are not drawn.
    random: Cell<u64>,
}

impl Warp {
    /// A warp of the lanes in `members`, all runnable. `random` seeds the draws, zero for none.
    pub(crate) fn new(members: u32, random: u64) -> Self {
        Self {
            members,
            runnable: Cell::new(members),
            asking: Cell::new(0),
            collecting: Cell::new(0),
            at_barrier: Cell::new(0),
            finished: Cell::new(0),
            paused: Cell::new(0),
            seats: [const { Cell::new(None) }; 32],
            random: Cell::new(random),
        }
    }

    pub(crate) fn runnable(&self) -> u32 {
        self.runnable.get()
    }

    /// Lanes that wait in a collective.
    pub(crate) fn collecting(&self) -> u32 {
        self.collecting.get()
    }

    /// Lanes that will never come to anything: returned, or beyond the end of the block.
    pub(crate) fn gone(&self) -> u32 {
        self.finished.get() | !self.members
    }

    /// Lanes that have not returned.
    pub(crate) fn alive(&self) -> u32 {
        self.members & !self.finished.get()
    }

    /// True if some lane runs again by itself.
    pub(crate) fn can_run(&self) -> bool {
        self.runnable.get() | self.asking.get() != 0
    }

    /// True if all that is left to do here is waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.runnable.get() & !self.paused.get() | self.asking.get() == 0
    }

    /// A lane to begin a visit with: lane 0, or drawn.
    pub(crate) fn first_lane(&self) -> u32 {
        if self.random.get() == 0 {
            0
        } else {
            next_random(&self.random) % 32
        }
    }

    /// Notes how `lane` gave way.
    pub(crate) fn set_paused(&self, lane: u32, paused: bool) {
        let others = self.paused.get() & !(1 << lane);
        self.paused.set(others | u32::from(paused) << lane);
    }

    /// Notes that `lane` has returned.
    pub(crate) fn finish(&self, lane: u32) {
        self.set_paused(lane, false);
        self.runnable.set(self.runnable.get() & !(1 << lane));
        self.finished.set(self.finished.get() | 1 << lane);
    }

    /// Takes `lane` out of the run until the barrier of its block opens.
    pub(crate) fn wait_at_barrier(&self, lane: u32) {
        self.runnable.set(self.runnable.get() & !(1 << lane));
        self.at_barrier.set(self.at_barrier.get() | 1 << lane);
    }

    /// Lets the lanes at the barrier run.
    pub(crate) fn leave_barrier(&self) {
        self.runnable
            .set(self.runnable.get() | self.at_barrier.replace(0));
    }

    /// Takes `lane` out of the run until [`Warp::answer`] has a set for it.
    pub(crate) fn ask(&self, lane: u32, site: &'static Location<'static>) {
        self.runnable.set(self.runnable.get() & !(1 << lane));
        self.asking.set(self.asking.get() | 1 << lane);
        self.seats[lane as usize].set(Some(Seat::new(Operation::Sync, 0, 0, 0, site)));
    }

    /// Answers the lanes in `active_mask` once every other lane has run as far as it can: those
    /// that ask at one call site get one set, or, if sets are drawn, one of up to three.
    pub(crate) fn answer(&self) {
        if self.runnable.get() & !self.paused.get() != 0 {
            return;
        }
        let mut left = self.asking.replace(0);
        self.runnable.set(self.runnable.get() | left);
        while left != 0 {
            let first = self.seat(left.trailing_zeros());
            let together = lanes(left)
                .filter(|&lane| self.seat(lane).site == first.site)
                .fold(0, |mask, lane| mask | 1 << lane);
            left &= !together;
            self.hand_out_sets(together);
        }
    }

    fn hand_out_sets(&self, together: u32) {
        let mut sets = [together, 0, 0];
        if self.random.get() != 0 {
            sets = [0; 3];
            let n_sets = next_random(&self.random) % 3 + 1;
            for lane in lanes(together) {
                sets[(next_random(&self.random) % n_sets) as usize] |= 1 << lane;
            }
        }
        for set in sets {
            for lane in lanes(set) {
                self.set_result(lane, u64::from(set));
            }
        }
    }

    /// Seats `lane` at a collective. True if it was the last to come: the results are there and
    /// the others run again. False: it waits.
    pub(crate) fn arrive(&self, lane: u32, seat: Seat) -> bool {
        self.seats[lane as usize].set(Some(seat));
        let here = self.collecting.get() | 1 << lane;
        if seat.mask & !here != 0 || self.seated_with(&seat, here) != seat.mask {
            self.collecting.set(here);
            self.runnable.set(self.runnable.get() & !(1 << lane));
            return false;
        }
        self.deliver(&seat);
        self.collecting.set(here & !seat.mask);
        self.runnable.set(self.runnable.get() | seat.mask);
        true
    }

    /// The lanes of `here` that wait in the same collective.
    pub(crate) fn seated_with(&self, seat: &Seat, here: u32) -> u32 {
        lanes(here & seat.mask)
            .filter(|&lane| {
                let other = self.seat(lane);
                other.operation == seat.operation && other.mask == seat.mask
            })
            .fold(0, |mask, lane| mask | 1 << lane)
    }

    /// Computes the results of a complete collective.
    fn deliver(&self, seat: &Seat) {
        let mask = seat.mask;
        let values = || lanes(mask).map(|lane| self.seat(lane).value);
        let common = match seat.operation {
            Operation::Shuffle => {
                return lanes(mask).for_each(|lane| {
                    let source = self.seat(lane).source;
                    self.set_result(lane, self.seat(source).value);
                });
            }
            Operation::MatchAny => return self.deliver_matches(mask),
            Operation::Sync => 0,
            Operation::Ballot => lanes(mask)
                .filter(|&lane| self.seat(lane).value != 0)
                .fold(0, |ballot, lane| ballot | 1 << lane),
            Operation::Any => u64::from(values().any(|value| value != 0)),
            Operation::All => u64::from(values().all(|value| value != 0)),
            Operation::Add => values().fold(0, u64::wrapping_add),
            Operation::Or => values().fold(0, |or, value| or | value),
            Operation::Min => values().fold(u64::MAX, u64::min),
            Operation::Max => values().fold(0, u64::max),
        };
        lanes(mask).for_each(|lane| self.set_result(lane, common));
    }

    fn deliver_matches(&self, mask: u32) {
        let mut left = mask;
        while left != 0 {
            let value = self.seat(left.trailing_zeros()).value;
            let equal = lanes(left)
                .filter(|&lane| self.seat(lane).value == value)
                .fold(0, |mask, lane| mask | 1 << lane);
            lanes(equal).for_each(|lane| self.set_result(lane, u64::from(equal)));
            left &= !equal;
        }
    }

    /// What `lane` takes away from the collective or question that it came back from.
    pub(crate) fn result(&self, lane: u32) -> u64 {
        self.seat(lane).result
    }

    fn set_result(&self, lane: u32, result: u64) {
        self.seats[lane as usize].set(Some(Seat {
            result,
            ..self.seat(lane)
        }));
    }

    /// The seat that `lane` took last.
    pub(crate) fn seat(&self, lane: u32) -> Seat {
        self.seats[lane as usize]
            .get()
            .expect("the lane has taken a seat")
    }

    /// How long `lane` has been seen waiting, at time `now_ns`.
    pub(crate) fn waited_ns(&self, lane: u32, now_ns: u64) -> u64 {
        let seat = self.seat(lane);
        if seat.seen_ns == 0 {
            self.seats[lane as usize].set(Some(Seat {
                seen_ns: now_ns.max(1),
                ..seat
            }));
            return 0;
        }
        now_ns.saturating_sub(seat.seen_ns)
    }
}
