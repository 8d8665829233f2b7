//! Arithmetic of virtual indices: slot, lap, phase, CID, and the values of a slot's state.

use core::fmt;
use core::marker::PhantomData;

/// Bits that a CID may have. The top one stays clear, so that 0xffff, which means "no command" in
/// the error log (Base 5.16.1.2) and is what a lost controller reads as, is never a command.
const CID_BITS: u32 = 15;

/// CQ-doorbell cadence of large rings, in entries.
const MAX_SLACK: u32 = 64;

/// How wide virtual indices are. They wrap at `2^BITS`.
pub trait Ticket: Copy + 'static {
    /// Width in bits, above the log2 of every depth that is used with it.
    const BITS: u32;

    /// Reduces an index to its width.
    #[inline(always)]
    fn wrap(index: u64) -> u64 {
        index & (u64::MAX >> (64 - Self::BITS))
    }

    /// True if the difference of two indices, reduced, leads forward: the way round the counter
    /// is shorter so.
    #[inline(always)]
    fn is_forward(difference: u64) -> bool {
        difference >> (Self::BITS - 1) == 0
    }
}

/// Indices that never repeat: at 10^9 commands a second 2^63 last for 292 years.
#[derive(Clone, Copy, Debug)]
pub struct Wide;

impl Ticket for Wide {
    const BITS: u32 = 64;
}

/// Indices of `BITS` bits, so that tests reach the wrap.
#[derive(Clone, Copy, Debug)]
pub struct Narrow<const BITS: u32>;

impl<const BITS: u32> Ticket for Narrow<BITS> {
    const BITS: u32 = BITS;
}

/// A depth that no ring can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthError {
    /// The depth asked for.
    pub depth: u32,
}

impl fmt::Display for DepthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "queue depth {} is not a power of two from 2 to 4096: round it down to one",
            self.depth
        )
    }
}

impl core::error::Error for DepthError {}

/// Depth of a queue pair, the limits that follow from it, and where its completion ring lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(crate) log2_depth: u32,
    pub(crate) cap: u32,
    pub(crate) cadence: u32,
    pub(crate) far: bool,
}

impl Shape {
    /// Shape of a queue pair with `depth` entries in either ring, with at most `budget` commands
    /// in flight (at least 1; the ring's own limit is usually lower).
    ///
    /// # Errors
    /// If `depth` is not a power of two from 2 to 4096.
    pub const fn new(depth: u32, budget: u32) -> Result<Self, DepthError> {
        if !depth.is_power_of_two() || depth < 2 || depth > 4096 {
            return Err(DepthError { depth });
        }
        let slack = match depth {
            0..8 => 0,
            _ if depth / 4 < MAX_SLACK => depth / 4,
            _ => MAX_SLACK,
        };
        let room = depth - 1 - slack;
        let cap = if budget < room { budget } else { room };
        Ok(Self {
            log2_depth: depth.trailing_zeros(),
            cap: if cap == 0 { 1 } else { cap },
            cadence: if slack == 0 { 1 } else { slack },
            far: false,
        })
    }

    /// The same for a completion ring that lies across a bus from those who drain it: each look at it
    /// is traffic there, so only who has the CQ lock looks ([CQ-7]).
    #[must_use]
    pub const fn far(self) -> Self {
        Self { far: true, ..self }
    }

    /// Entries in either ring.
    #[inline(always)]
    pub const fn depth(self) -> u64 {
        1 << self.log2_depth
    }

    /// Most commands in flight, and most lanes that are published together.
    #[inline(always)]
    pub const fn cap(self) -> u32 {
        self.cap
    }

    /// CQEs taken between two CQ doorbells.
    #[inline(always)]
    pub const fn cadence(self) -> u32 {
        self.cadence
    }
}

/// The arithmetic of one depth and one ticket width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<W> {
    log2_depth: u32,
    width: PhantomData<W>,
}

impl<W: Ticket> Ring<W> {
    #[inline(always)]
    pub(crate) const fn new(log2_depth: u32) -> Self {
        Self {
            log2_depth,
            width: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn slot(self, index: u64) -> u64 {
        index & ((1 << self.log2_depth) - 1)
    }

    #[inline(always)]
    fn lap(self, index: u64) -> u64 {
        W::wrap(index) >> self.log2_depth
    }

    /// Phase tag of the CQE with this virtual index: 1 in the first lap of a zeroed ring
    /// (Base 4.2.4).
    #[inline(always)]
    pub(crate) fn phase(self, index: u64) -> bool {
        self.lap(index) & 1 == 0
    }

    /// State of the slot of `index` when it is free for it.
    #[inline(always)]
    pub(crate) fn free(self, index: u64) -> u64 {
        self.lap(index) << 1
    }

    /// State of the slot of `index` while it is in flight.
    #[inline(always)]
    pub(crate) fn in_flight(self, index: u64) -> u64 {
        self.free(index) | 1
    }

    /// The state after `state`: from in flight to free for the next lap.
    #[inline(always)]
    pub(crate) fn next(self, state: u64) -> u64 {
        self.half_laps(state.wrapping_add(1))
    }

    /// A count of half laps, reduced as states are.
    #[inline(always)]
    pub(crate) fn half_laps(self, count: u64) -> u64 {
        // One bit more than a lap has; the last lap is followed by lap 0.
        let bits = W::BITS - self.log2_depth + 1;
        count & (u64::MAX >> (64 - bits))
    }

    /// True if a slot in `state` shows the command `index` as done, to a holder of a later ticket
    /// less than `depth` away that is not published. The two values are argued in the crate's
    /// documentation.
    #[inline(always)]
    pub(crate) fn is_done(self, index: u64, state: u64) -> bool {
        let done = self.next(self.in_flight(index));
        state == done || state == done | 1
    }

    /// CID of the command `index`.
    #[inline(always)]
    pub(crate) fn cid(self, index: u64) -> u16 {
        (self.slot(index) | self.generation(self.lap(index)) << self.log2_depth) as u16
    }

    /// CID of the command in `slot`, whose state is `state`; none if it is free.
    pub(crate) fn cid_in_flight(self, slot: u64, state: u64) -> Option<u16> {
        let index = (state >> 1) << self.log2_depth | slot;
        self.is_in_flight(state).then(|| self.cid(index))
    }

    /// Low bits of a lap, as many as a CID has beside the slot.
    #[inline(always)]
    fn generation(self, lap: u64) -> u64 {
        lap & ((1 << (CID_BITS - self.log2_depth)) - 1)
    }

    /// Slot that `cid` names, if it is a CID of this ring at all.
    #[inline(always)]
    pub(crate) fn slot_of_cid(self, cid: u16) -> Option<u64> {
        if u64::from(cid) >> CID_BITS == 0 {
            Some(self.slot(u64::from(cid)))
        } else {
            None
        }
    }

    /// True if `cid` carries the generation of the half lap `state`.
    #[inline(always)]
    pub(crate) fn is_generation(self, cid: u16, state: u64) -> bool {
        u64::from(cid) >> self.log2_depth == self.generation(state >> 1)
    }

    /// True if a slot in `state` is in flight.
    #[inline(always)]
    pub(crate) fn is_in_flight(self, state: u64) -> bool {
        state & 1 == 1
    }

    /// The in-flight state before the free state `state`.
    #[inline(always)]
    pub(crate) fn previous(self, state: u64) -> u64 {
        // Adding all of the state's bits is subtracting one, modulo its width.
        self.next(state.wrapping_sub(2))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes_leave_room_for_the_cadence() {
        for (depth, cap, cadence) in [
            (2, 1, 1),
            (4, 3, 1),
            (8, 5, 2),
            (64, 47, 16),
            (256, 191, 64),
            (1024, 959, 64),
            (4096, 4031, 64),
        ] {
            let shape = Shape::new(depth, u32::MAX).unwrap();
            assert_eq!(
                (shape.depth(), shape.cap(), shape.cadence()),
                (u64::from(depth), cap, cadence)
            );
        }
        assert_eq!(Shape::new(64, 10).unwrap().cap(), 10);
        assert_eq!(Shape::new(64, 0).unwrap().cap(), 1);
        for depth in [0, 1, 3, 96, 8192] {
            assert_eq!(Shape::new(depth, 1), Err(DepthError { depth }));
        }
    }

    #[test]
    fn the_first_lap_of_a_zeroed_ring_is_free_and_expects_phase_one() {
        let ring = Ring::<Wide>::new(2);
        assert!(
            ring.phase(0) && ring.phase(3) && !ring.phase(4) && !ring.phase(7) && ring.phase(8)
        );
        assert_eq!((ring.free(3), ring.in_flight(3), ring.free(4)), (0, 1, 2));
        // Before the first lap lies the last one of the counter, done.
        assert!(ring.is_done(0u64.wrapping_sub(1), 0));
    }

    #[test]
    fn generations_wrap_inside_the_cid() {
        let ring = Ring::<Wide>::new(12);
        assert_eq!(ring.cid(4095), 0x0fff);
        assert_eq!(ring.cid(7 * 4096 + 1), 0x7001);
        assert_eq!(ring.cid(8 * 4096 + 1), 0x0001);
        assert_eq!(ring.slot_of_cid(0x8000), None);
        assert_eq!(ring.slot_of_cid(0xffff), None);
    }

    fn laws<W: Ticket>(log2_depth: u32, index: u64) -> Result<(), TestCaseError> {
        let ring = Ring::<W>::new(log2_depth);
        let (index, depth) = (W::wrap(index), 1 << log2_depth);
        let next_lap = W::wrap(index.wrapping_add(depth));
        let done = ring.next(ring.in_flight(index));
        prop_assert_eq!(done, ring.free(next_lap));
        prop_assert_eq!(ring.previous(done), ring.in_flight(index));
        prop_assert!(ring.is_done(index, done) && ring.is_done(index, ring.in_flight(next_lap)));
        prop_assert!(!ring.is_done(index, ring.free(index)));
        prop_assert!(!ring.is_done(index, ring.in_flight(index)));
        prop_assert!(ring.phase(index) != ring.phase(next_lap));
        let cid = ring.cid(index);
        prop_assert!(cid < 0x8000);
        prop_assert_eq!(ring.slot_of_cid(cid), Some(ring.slot(index)));
        prop_assert!(ring.is_generation(cid, ring.in_flight(index)));
        prop_assert!(!ring.is_generation(cid, ring.in_flight(next_lap)));
        let ahead = next_lap.wrapping_sub(index);
        prop_assert!(W::is_forward(W::wrap(ahead)));
        prop_assert!(!W::is_forward(W::wrap(ahead.wrapping_neg())));
        Ok(())
    }

    proptest! {
        #[test]
        fn wide_indices_keep_the_laws(log2_depth in 1u32..=12, index: u64) {
            laws::<Wide>(log2_depth, index)?;
        }

        #[test]
        fn narrow_indices_keep_the_laws(log2_depth in 1u32..=3, index: u64) {
            laws::<Narrow<6>>(log2_depth, index)?;
        }
    }
}
