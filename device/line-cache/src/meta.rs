//! One line's state in one word.

/// What a line is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not resident.
    Invalid,
    /// Being fetched; the word belongs to the fetch.
    Busy,
    /// Resident: the slot holds the line's bytes.
    Valid,
    /// Not resident, and the last fetch failed.
    Failed,
}

/// Slots that a table may have: 2^28.
pub const MAX_SLOTS: u32 = 1 << SLOT_BITS;
/// Pins that a line can carry: 2^20 − 1, above the 270 000 lanes that an H200 keeps resident.
pub const MAX_PINS: u32 = (1 << PIN_BITS) - 1;
/// Versions before they repeat. An optimistic reader is fooled only if its line is evicted and
/// fetched a multiple of this often, the last time into the same slot, between its two loads.
pub const VERSIONS: u16 = 1 << VERSION_BITS;

const PIN_BITS: u32 = 20;
const VERSION_BITS: u32 = 11;
const SLOT_BITS: u32 = 28;

const STATE: u64 = 0b11;
const INVALID: u64 = 0b00;
pub(crate) const BUSY: u64 = 0b01;
const FAILED: u64 = 0b10;
const VALID: u64 = 0b11;
pub(crate) const DIRTY: u64 = 1 << 2;
pub(crate) const CLEANING: u64 = 1 << 3;
pub(crate) const REF: u64 = 1 << 4;
const PIN_SHIFT: u32 = 5;
pub(crate) const PIN_ONE: u64 = 1 << PIN_SHIFT;
const PINS: u64 = (MAX_PINS as u64) << PIN_SHIFT;
const VERSION_SHIFT: u32 = PIN_SHIFT + PIN_BITS;
const VERSION: u64 = (VERSIONS as u64 - 1) << VERSION_SHIFT;
const SLOT_SHIFT: u32 = VERSION_SHIFT + VERSION_BITS;
const SLOT: u64 = (MAX_SLOTS as u64 - 1) << SLOT_SHIFT;
/// What an optimistic reader compares: a pin, a mark or a hint changes no byte of the line
/// ([LC-3]).
const COMPARE: u64 = STATE | VERSION | SLOT;

const _: () = assert!(SLOT_SHIFT + SLOT_BITS == u64::BITS);
const _: () = assert!(COMPARE | PINS | DIRTY | CLEANING | REF == u64::MAX);

/// The metadata word of a line, as it was when it was loaded.
///
/// ```text
/// 63          36 35       25 24    5  4    3         2      1  0
/// [    slot    ] [ version ] [ pins ] REF  CLEANING  DIRTY  [state]
/// ```
/// All zeros: not resident, version 0. The slot field is the slot of a VALID line, the slot that
/// the fetch of an attached BUSY line fills, and the [`Failure`] of a FAILED line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Meta(u64);

impl Meta {
    /// A line that is being fetched, of which no more is known.
    pub const BUSY: Self = Self::busy(0, 0);

    /// Takes a word of the table.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The word.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// What the line is doing.
    #[inline(always)]
    pub const fn state(self) -> State {
        match self.0 & STATE {
            INVALID => State::Invalid,
            BUSY => State::Busy,
            FAILED => State::Failed,
            _ => State::Valid,
        }
    }

    /// Index of the line's slot. Meaningful while VALID, and while BUSY once attached.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        (self.0 >> SLOT_SHIFT) as u32
    }

    /// The incarnation: one more at every eviction, modulo [`VERSIONS`].
    #[inline(always)]
    pub const fn version(self) -> u16 {
        ((self.0 & VERSION) >> VERSION_SHIFT) as u16
    }

    /// How often the line is pinned. Unless VALID, these are lanes that count before they look, on
    /// their way to take it back ([`LineTable::count_in`](crate::LineTable::count_in)).
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        ((self.0 & PINS) >> PIN_SHIFT) as u32
    }

    /// Whether the line was read since the clock last passed. A hint.
    #[inline(always)]
    pub const fn is_referenced(self) -> bool {
        self.0 & REF != 0
    }

    /// Whether the slot holds bytes that are newer than the SSD's and that no write carries yet.
    #[inline(always)]
    pub const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether a write of the line is in flight.
    #[inline(always)]
    pub const fn is_cleaning(self) -> bool {
        self.0 & CLEANING != 0
    }

    /// Why the last fetch failed. Meaningful while FAILED.
    #[inline(always)]
    pub const fn failure(self) -> Failure {
        Failure(self.slot())
    }

    /// The four cases of a lookup.
    #[inline(always)]
    pub const fn look(self) -> Look {
        match self.state() {
            State::Valid => Look::Hit(self),
            State::Busy => Look::Busy(self),
            State::Failed => Look::Failed(self),
            State::Invalid => Look::Absent(self),
        }
    }

    /// Whether both words name the same bytes: state, version and slot are equal.
    #[inline(always)]
    pub const fn same_bytes(self, other: Self) -> bool {
        (self.0 ^ other.0) & COMPARE == 0
    }

    /// Whether the words differ at most in the hint and in the pins: those of lanes that count
    /// before they look come and go in any state ([RC-2]).
    #[inline(always)]
    pub(crate) const fn same_but_passing(self, other: Self) -> bool {
        (self.0 ^ other.0) & !(REF | PINS) == 0
    }

    /// This word with the pins of `other` ([RC-2]). It has none itself.
    #[inline(always)]
    pub(crate) const fn with_pins_of(self, other: Self) -> Self {
        Self(self.0 | (other.0 & PINS))
    }

    /// Whether the clock may take `slot` from this line: the word says that the line is there,
    /// nobody holds it, and the slot's bytes are no newer than the SSD's.
    #[inline(always)]
    pub(crate) const fn may_leave(self, slot: u32) -> bool {
        let expected = Self::slot_bits(slot) | VALID;
        (self.0 & (SLOT | PINS | DIRTY | CLEANING | STATE)) == expected
    }

    /// Whether a write of the line may begin: it is there, in `slot`, its bytes are newer than the
    /// SSD's, and no write of it is in flight ([WB-2]).
    #[inline(always)]
    pub(crate) const fn may_be_cleaned(self, slot: u32) -> bool {
        let expected = Self::slot_bits(slot) | VALID | DIRTY;
        (self.0 & (SLOT | DIRTY | CLEANING | STATE)) == expected
    }

    /// The word once a write of the line has begun: whatever is written from now on is for
    /// another one ([WB-3]).
    #[inline(always)]
    pub(crate) const fn cleaning(self) -> Self {
        Self((self.0 & !DIRTY) | CLEANING)
    }

    /// The word after an eviction: not resident, next version ([LC-3]).
    #[inline(always)]
    pub(crate) const fn evicted(self) -> Self {
        Self::word(INVALID, self.version().wrapping_add(1), 0)
    }

    /// The word with one pin more; the caller has checked [`MAX_PINS`].
    #[inline(always)]
    pub(crate) const fn pinned(self) -> Self {
        Self(self.0 + PIN_ONE)
    }

    /// What to add to a word for so many pins more.
    #[inline(always)]
    pub(crate) const fn pins_for(lanes: u32) -> u64 {
        (lanes as u64) << PIN_SHIFT
    }

    #[inline(always)]
    pub(crate) const fn busy(version: u16, slot: u32) -> Self {
        Self::word(BUSY, version, slot)
    }

    #[inline(always)]
    pub(crate) const fn valid(version: u16, slot: u32) -> Self {
        Self::word(VALID | REF, version, slot)
    }

    #[inline(always)]
    pub(crate) const fn failed(version: u16, failure: Failure) -> Self {
        Self::word(FAILED, version, failure.0)
    }

    /// What to or into a claimed word, whose slot field is zero, for it to name `slot`.
    #[inline(always)]
    pub(crate) const fn slot_bits(slot: u32) -> u64 {
        (slot as u64) << SLOT_SHIFT
    }

    #[inline(always)]
    const fn word(flags: u64, version: u16, slot: u32) -> Self {
        let version = ((version as u64) << VERSION_SHIFT) & VERSION;
        Self(flags | version | Self::slot_bits(slot))
    }
}

/// What a lookup finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Resident.
    Hit(Meta),
    /// Being fetched: wait with [`LineTable::settled`](crate::LineTable::settled).
    Busy(Meta),
    /// The last fetch failed. A newcomer claims the line and tries again.
    Failed(Meta),
    /// Not resident: claim the line.
    Absent(Meta),
}

/// Why a fetch failed, in the 28 bits that the slot field leaves: the 15 status bits of the CQE
/// (NVM Express base specification, "Completion Queue Entry: Status Field") and a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Failure(u32);

impl Failure {
    const STATUS_BITS: u32 = 15;
    const STATUS: u32 = (1 << Self::STATUS_BITS) - 1;
    const KIND: u32 = (1 << (SLOT_BITS - Self::STATUS_BITS)) - 1;

    /// `kind` is the caller's own, below 2^13; `status` the 15 status bits. Higher bits are cut.
    #[inline(always)]
    pub const fn new(kind: u16, status: u16) -> Self {
        Self(((kind as u32 & Self::KIND) << Self::STATUS_BITS) | (status as u32 & Self::STATUS))
    }

    /// What kind of failure, in the caller's numbering.
    #[inline(always)]
    pub const fn kind(self) -> u16 {
        (self.0 >> Self::STATUS_BITS) as u16
    }

    /// The 15 status bits.
    #[inline(always)]
    pub const fn status(self) -> u16 {
        (self.0 & Self::STATUS) as u16
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use proptest::prelude::*;

    use super::*;

    fn invalid(version: u16) -> Meta {
        Meta::word(INVALID, version, 0)
    }

    fn valid(version: u16, slot: u32) -> Meta {
        Meta::word(VALID, version, slot)
    }

    #[test]
    fn zero_is_not_resident() {
        assert_eq!(Meta::from_bits(0).look(), Look::Absent(invalid(0)));
    }

    #[test]
    fn the_version_wraps_inside_its_field() {
        let last = valid(VERSIONS - 1, MAX_SLOTS - 1);
        assert_eq!(last.evicted(), invalid(0));
    }

    #[test]
    fn dirt_and_cleaning_keep_a_line() {
        let line = valid(3, 7);
        assert!(line.may_leave(7));
        for mark in [DIRTY, CLEANING] {
            let marked = Meta::from_bits(line.bits() | mark);
            assert!(!marked.may_leave(7));
            assert!(marked.same_bytes(line));
        }
    }

    proptest! {
        #[test]
        fn fields_do_not_overlap(
            version in 0..VERSIONS, slot in 0..MAX_SLOTS, pins in 0..=MAX_PINS,
            dirty: bool, cleaning: bool, referenced: bool,
        ) {
            let marks = (u64::from(dirty) * DIRTY) | (u64::from(cleaning) * CLEANING);
            let plain = valid(version, slot).bits();
            let meta = Meta::from_bits(
                plain | marks | (u64::from(referenced) * REF) | (u64::from(pins) * PIN_ONE),
            );
            prop_assert_eq!(meta.state(), State::Valid);
            prop_assert_eq!(meta.version(), version);
            prop_assert_eq!(meta.slot(), slot);
            prop_assert_eq!(meta.pins(), pins);
            prop_assert_eq!(meta.is_referenced(), referenced);
            prop_assert!(meta.same_bytes(valid(version, slot)));
            prop_assert_eq!((meta.is_dirty(), meta.is_cleaning()), (dirty, cleaning));
            prop_assert_eq!(meta.may_leave(slot), pins == 0 && !dirty && !cleaning);
            prop_assert_eq!(meta.may_be_cleaned(slot), dirty && !cleaning);
            prop_assert!(!meta.may_be_cleaned(slot ^ 1));
            let begun = meta.cleaning();
            prop_assert!(begun.is_cleaning() && !begun.is_dirty() && begun.same_bytes(meta));
            prop_assert_eq!((begun.pins(), begun.is_referenced()), (pins, referenced));
            prop_assert!(!meta.may_leave(slot ^ 1));
            prop_assert_eq!(meta.evicted(), invalid((version + 1) % VERSIONS));
        }

        #[test]
        fn each_field_of_the_comparison_counts(version in 0..VERSIONS, slot in 0..MAX_SLOTS) {
            let meta = valid(version, slot);
            prop_assert!(!meta.same_bytes(valid(version, slot ^ 1)));
            prop_assert!(!meta.same_bytes(valid((version + 1) % VERSIONS, slot)));
            prop_assert!(!meta.same_bytes(Meta::busy(version, slot)));
            prop_assert!(!meta.same_bytes(invalid(version)));
        }

        #[test]
        fn a_failure_survives_the_word(kind in 0..1_u16 << 13, status in 0..1_u16 << 15) {
            let failure = Failure::new(kind, status);
            let meta = Meta::failed(5, failure);
            prop_assert_eq!(meta.look(), Look::Failed(meta));
            prop_assert_eq!(meta.version(), 5);
            prop_assert_eq!((meta.failure().kind(), meta.failure().status()), (kind, status));
        }
    }
}
