//! The table against a plain model of it, one thread, random programs.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use line_cache::{
    Claim, Cleaning, Failure, Fetch, Found, LineTable, Look, MAX_PINS, Meta, NotPinned, Outcome,
    SlotClaim, State, VERSIONS,
};
use proptest::prelude::*;
use warpstore_simt::Native;

use crate::words::Words;

const LINES: u64 = 6;

// Where the word's fields lie, for states that only a race or a million lanes would produce.
const REF: u64 = 1 << 4;
const PIN_SHIFT: u32 = 5;
const SLOT_ONE: u64 = 1 << 36;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Residence {
    Absent,
    Fetching,
    Resident(u32),
    Failed(Failure),
}

#[derive(Clone, Copy, Debug)]
struct Line {
    residence: Residence,
    version: u16,
    pins: u32,
    referenced: bool,
    dirty: bool,
    cleaning: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Slot {
    Free,
    Claimed,
    Of(u64),
}

/// What the table should be.
struct Model {
    lines: Vec<Line>,
    slots: Vec<Slot>,
    hand: u32,
}

impl Model {
    fn new(slots: usize) -> Self {
        let absent = Line {
            residence: Residence::Absent,
            version: 0,
            pins: 0,
            referenced: false,
            dirty: false,
            cleaning: false,
        };
        Self {
            lines: vec![absent; LINES as usize],
            slots: vec![Slot::Free; slots],
            hand: 0,
        }
    }

    fn line(&mut self, line: u64) -> &mut Line {
        &mut self.lines[line as usize]
    }

    /// What the hand finds: a slot, or a line to clean and its slot.
    fn victim(&mut self, bound: u32) -> Option<Result<u32, (u64, u32)>> {
        for _ in 0..bound {
            let slot = self.hand % self.slots.len() as u32;
            self.hand += 1;
            match self.slots[slot as usize] {
                Slot::Claimed => continue,
                Slot::Free => {}
                Slot::Of(index) => {
                    let line = self.line(index);
                    if line.residence != Residence::Resident(slot) || line.pins > 0 || line.cleaning
                    {
                        continue;
                    }
                    if line.referenced {
                        line.referenced = false;
                        continue;
                    }
                    if line.dirty {
                        (line.dirty, line.cleaning) = (false, true);
                        return Some(Err((index, slot)));
                    }
                    line.residence = Residence::Absent;
                    line.version = (line.version + 1) % VERSIONS;
                }
            }
            self.slots[slot as usize] = Slot::Claimed;
            return Some(Ok(slot));
        }
        None
    }

    /// The words say what the model says, and the model is sane.
    fn check(&self, table: LineTable<Native>) {
        let mut named = HashSet::new();
        for (index, line) in self.lines.iter().enumerate() {
            let meta = table.open(index as u64);
            let context = format!("line {index}: {meta:?}, expected {line:?}");
            let state = match line.residence {
                Residence::Absent => State::Invalid,
                Residence::Fetching => State::Busy,
                Residence::Failed(failure) => {
                    assert_eq!(meta.failure(), failure, "{context}");
                    State::Failed
                }
                Residence::Resident(slot) => {
                    assert_eq!(meta.slot(), slot, "{context}");
                    assert_eq!(
                        self.slots[slot as usize],
                        Slot::Of(index as u64),
                        "{context}"
                    );
                    assert!(named.insert(slot), "{context}: another line has the slot");
                    State::Valid
                }
            };
            assert_eq!(
                (meta.state(), meta.version()),
                (state, line.version),
                "{context}"
            );
            assert_eq!(
                (meta.pins(), meta.is_referenced()),
                (line.pins, line.referenced),
                "{context}"
            );
            assert_eq!(
                (meta.is_dirty(), meta.is_cleaning()),
                (line.dirty, line.cleaning),
                "{context}"
            );
            assert!(line.pins == 0 || state == State::Valid, "{context}: pinned");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Touch(u64),
    Claim(u64),
    Victim(u32),
    Attach,
    Publish(usize),
    Fail(usize, u16),
    Lose(usize),
    Release,
    FreeSlot,
    Pin(u64),
    Unpin(usize),
    Count(u64, u32),
    CountOut(usize),
    Settled(u64),
    Soil(usize),
    BeginClean(u64),
    EndClean(usize, bool),
    TakeCleaned(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..LINES).prop_map(Step::Touch),
        3 => (0..LINES).prop_map(Step::Claim),
        3 => (0..6_u32).prop_map(Step::Victim),
        3 => Just(Step::Attach),
        3 => (0..8_usize).prop_map(Step::Publish),
        1 => (0..8_usize, any::<u16>()).prop_map(|(pick, status)| Step::Fail(pick, status)),
        1 => (0..64_usize).prop_map(Step::Lose),
        1 => Just(Step::Release),
        1 => Just(Step::FreeSlot),
        1 => (0..LINES).prop_map(Step::Pin),
        2 => (0..8_usize).prop_map(Step::Unpin),
        1 => (0..LINES, 1..33_u32).prop_map(|(line, lanes)| Step::Count(line, lanes)),
        2 => (0..8_usize).prop_map(Step::CountOut),
        1 => (0..LINES).prop_map(Step::Settled),
        2 => (0..8_usize).prop_map(Step::Soil),
        1 => (0..LINES).prop_map(Step::BeginClean),
        2 => (0..4_usize, any::<bool>()).prop_map(|(pick, ok)| Step::EndClean(pick, ok)),
        1 => (0..4_usize).prop_map(Step::TakeCleaned),
    ]
}

/// What the program holds.
#[derive(Default)]
struct Hands {
    claims: Vec<Claim>,
    slots: Vec<SlotClaim>,
    fetches: Vec<Fetch>,
    pins: Vec<u64>,
    /// Lines, and how many lanes have counted in.
    counted: Vec<(u64, u32)>,
    cleanings: Vec<Cleaning>,
    /// Lines that were cleaned.
    cleaned: Vec<Cleaning>,
    /// Slots of fetches that were given up.
    lost: usize,
}

impl Hands {
    fn apply(&mut self, step: Step, table: LineTable<Native>, model: &mut Model) {
        match step {
            Step::Touch(line) => {
                table.touch(line, table.open(line));
                model.line(line).referenced = true;
            }
            Step::Claim(line) => self.claim(line, table, model),
            Step::Victim(bound) => {
                let expected = model.victim(bound);
                match table.victim(bound) {
                    Found::Slot(slot) => {
                        assert_eq!(expected, Some(Ok(slot.slot())));
                        self.slots.push(slot);
                    }
                    Found::Dirty(cleaning) => {
                        assert_eq!(expected, Some(Err((cleaning.line, cleaning.slot))));
                        self.cleanings.push(cleaning);
                    }
                    Found::Nothing => assert_eq!(expected, None),
                }
            }
            Step::Attach => {
                if !self.claims.is_empty()
                    && let Some(slot) = self.slots.pop()
                {
                    let fetch = table.attach(self.claims.remove(0), slot);
                    assert_eq!(table.fetch_of(fetch.line), Some(fetch));
                    model.slots[fetch.slot as usize] = Slot::Of(fetch.line);
                    self.fetches.push(fetch);
                }
            }
            Step::Publish(pick) if pick < self.fetches.len() => {
                let fetch = self.fetches.remove(pick);
                table.publish(fetch);
                let line = model.line(fetch.line);
                line.residence = Residence::Resident(fetch.slot);
                line.referenced = true;
            }
            Step::Fail(pick, status) if pick < self.fetches.len() => {
                let fetch = self.fetches.remove(pick);
                let failure = Failure::new(status >> 3, status);
                table.fail(fetch, failure);
                let line = model.line(fetch.line);
                line.residence = Residence::Failed(failure);
                line.referenced = false;
                model.slots[fetch.slot as usize] = Slot::Free;
            }
            Step::Lose(pick) if pick < self.fetches.len() => {
                let fetch = self.fetches.remove(pick);
                let failure = Failure::new(9, 0);
                assert!(table.lose(fetch, failure));
                assert!(!table.publish(fetch), "the late completion ends nothing");
                let line = model.line(fetch.line);
                line.residence = Residence::Failed(failure);
                line.version = (line.version + 1) % VERSIONS;
                line.referenced = false;
                self.lost += 1;
            }
            Step::Release => {
                if let Some(claim) = self.claims.pop() {
                    model.line(claim.line()).residence = Residence::Absent;
                    table.release_claim(claim);
                }
            }
            Step::FreeSlot => {
                if let Some(slot) = self.slots.pop() {
                    model.slots[slot.slot() as usize] = Slot::Free;
                    table.free_slot(slot);
                }
            }
            Step::Pin(line) => self.pin(line, table, model),
            Step::Unpin(pick) if pick < self.pins.len() => {
                let line = self.pins.remove(pick);
                table.unpin(line);
                model.line(line).pins -= 1;
            }
            Step::Count(line, lanes) => self.count(line, lanes, table, model),
            Step::CountOut(pick) if pick < self.counted.len() => {
                let (line, lanes) = self.counted.remove(pick);
                table.count_out(line, lanes);
                model.line(line).pins -= lanes;
            }
            Step::Settled(line) => Self::settled(line, table, model),
            Step::Soil(pick) if pick < self.pins.len() => {
                table.soil(self.pins[pick]);
                let line = model.line(self.pins[pick]);
                (line.dirty, line.referenced) = (true, true);
            }
            Step::BeginClean(line) => self.begin_clean(line, table, model),
            Step::EndClean(pick, ok) if pick < self.cleanings.len() => {
                let cleaning = self.cleanings.remove(pick);
                let line = model.line(cleaning.line);
                line.cleaning = false;
                if ok {
                    table.cleaned(cleaning.line);
                    self.cleaned.push(cleaning);
                } else {
                    table.clean_failed(cleaning.line);
                    (line.dirty, line.referenced) = (true, true);
                }
            }
            Step::TakeCleaned(pick) if pick < self.cleaned.len() => {
                self.take_cleaned(pick, table, model);
            }
            Step::Publish(_)
            | Step::Fail(..)
            | Step::Lose(_)
            | Step::Unpin(_)
            | Step::CountOut(_)
            | Step::Soil(_)
            | Step::EndClean(..)
            | Step::TakeCleaned(_) => {}
        }
    }

    fn claim(&mut self, index: u64, table: LineTable<Native>, model: &mut Model) {
        let claim = table.claim(index, table.open(index));
        let line = model.line(index);
        let free = matches!(line.residence, Residence::Absent | Residence::Failed(_));
        assert_eq!(claim.is_some(), free, "claim of {line:?}");
        if let Some(claim) = claim {
            assert_eq!((claim.line(), claim.version()), (index, line.version));
            line.residence = Residence::Fetching;
            line.referenced = false;
            self.claims.push(claim);
        }
    }

    fn pin(&mut self, index: u64, table: LineTable<Native>, model: &mut Model) {
        let pinned = table.pin(index);
        let line = model.line(index);
        if let Residence::Resident(slot) = line.residence {
            line.pins += 1;
            let meta = pinned.expect("a resident line");
            assert_eq!((meta.slot(), meta.pins()), (slot, line.pins));
            self.pins.push(index);
        } else {
            assert_eq!(pinned, Err(NotPinned::Look(table.look(index))));
        }
    }

    fn count(&mut self, index: u64, lanes: u32, table: LineTable<Native>, model: &mut Model) {
        let found = table.count_in(index, lanes).map(Meta::slot);
        let line = model.line(index);
        let Residence::Resident(slot) = line.residence else {
            return assert_eq!(found, None);
        };
        line.pins += lanes;
        assert_eq!(found, Some(slot));
        self.counted.push((index, lanes));
    }

    fn begin_clean(&mut self, index: u64, table: LineTable<Native>, model: &mut Model) {
        let cleaning = table.begin_clean(index, table.open(index));
        let line = model.line(index);
        let expected = match line.residence {
            Residence::Resident(slot) if line.dirty && !line.cleaning => {
                (line.dirty, line.cleaning) = (false, true);
                Some(Cleaning { line: index, slot })
            }
            _ => None,
        };
        assert_eq!(cleaning, expected);
        self.cleanings.extend(cleaning);
    }

    /// A line that was cleaned at some time gives its slot if it is there, clean and unused.
    fn take_cleaned(&mut self, pick: usize, table: LineTable<Native>, model: &mut Model) {
        let cleaning = self.cleaned.remove(pick);
        let line = model.line(cleaning.line);
        let leaves = line.residence == Residence::Resident(cleaning.slot)
            && !line.dirty
            && !line.cleaning
            && line.pins == 0;
        let slot = table.take_cleaned(cleaning);
        assert_eq!(slot.is_some(), leaves, "{line:?}");
        if let Some(slot) = slot {
            assert_eq!(slot.slot(), cleaning.slot);
            line.residence = Residence::Absent;
            line.version = (line.version + 1) % VERSIONS;
            line.referenced = false;
            model.slots[slot.slot() as usize] = Slot::Claimed;
            self.slots.push(slot);
        }
    }

    fn settled(index: u64, table: LineTable<Native>, model: &mut Model) {
        let line = *model.line(index);
        let expected = match line.residence {
            Residence::Absent => Some(Outcome::Changed),
            Residence::Fetching => None,
            Residence::Resident(_) => Some(Outcome::Ready(table.open(index))),
            Residence::Failed(failure) => Some(Outcome::Failed(failure)),
        };
        assert_eq!(table.settled(index, line.version), expected);
        let other = (line.version + 1) % VERSIONS;
        assert_eq!(table.settled(index, other), Some(Outcome::Changed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_table_does_what_the_model_does(
        slots in 1..5_usize,
        program in prop::collection::vec(step(), 1..200),
    ) {
        let words = Words::new(LINES as usize, slots, 1);
        let (table, mut model, mut hands) = (words.table(), Model::new(slots), Hands::default());
        for step in program {
            hands.apply(step, table, &mut model);
            model.check(table);
            let held = hands.slots.len() + hands.fetches.len() + hands.lost;
            let resident =
                model.lines.iter().filter(|line| matches!(line.residence, Residence::Resident(_)));
            let free = model.slots.iter().filter(|&&slot| slot == Slot::Free);
            prop_assert_eq!(held + resident.count() + free.count(), slots, "slots are conserved");
        }
    }
}

fn fill(table: LineTable<Native>, line: u64) {
    let claim = table
        .claim(line, table.open(line))
        .expect("the line is not resident");
    let slot = table
        .victim(2 * table.slots())
        .slot()
        .expect("nothing is pinned");
    table.publish(table.attach(claim, slot));
}

#[test]
fn versions_wrap_and_the_line_goes_on() {
    let words = Words::new(2, 1, 1);
    let table = words.table();
    for _ in 0..=VERSIONS {
        fill(table, 0);
        fill(table, 1);
    }
    assert_eq!(table.open(1).version(), 0);
    assert_eq!(table.open(0).version(), 1);
}

#[test]
fn a_full_line_refuses_a_pin() {
    let words = Words::new(1, 1, 1);
    let table = words.table();
    fill(table, 0);
    words.meta[0].fetch_or(u64::from(MAX_PINS) << PIN_SHIFT, Ordering::Relaxed);
    assert_eq!(table.open(0).pins(), MAX_PINS);
    assert_eq!(table.pin(0), Err(NotPinned::Full));
    assert_eq!(table.open(0).slot(), 0);
    table.unpin(0);
    assert_eq!(table.pin(0).map(Meta::pins), Ok(MAX_PINS));
}

/// [LC-4]: slot 1's word still says line 0, which lives in slot 0 by now.
#[test]
fn the_clock_believes_the_line_not_the_slot() {
    let words = Words::new(2, 2, 1);
    let table = words.table();
    fill(table, 1);
    fill(table, 0);
    let Look::Hit(there) = table.look(0) else {
        panic!("line 0 is resident")
    };
    assert_eq!(there.slot(), 1);
    // As a thread sees it that has just lost the race for line 0: moved to slot 0, unmarked.
    words.meta[0].store(there.bits() & !SLOT_ONE & !REF, Ordering::Relaxed);
    words.meta[1].store(0, Ordering::Relaxed);
    assert_eq!(
        table.victim(4).slot(),
        None,
        "line 0 was evicted from a slot that it is not in"
    );
}

#[test]
fn without_slots_there_is_no_victim() {
    let words = Words::new(1, 0, 1);
    assert_eq!(words.table().victim(3), Found::Nothing);
}
