//! Written lines: what a writer changed gets to the SSD, whoever cleans, and whenever.

use line_cache::{Cleaning, Found};
use loom::thread;
use warpstore_loom::{Loom, LoomCells, cell, cells, explore};
use warpstore_simt::{Cell, Cells, Device, Order, Platform};

use crate::cache::{Cache, check, race, value};

/// What a writer writes.
const NEW: u64 = 7000;

/// A cache, and an SSD with a word a line.
#[derive(Clone, Copy)]
struct Written {
    cache: Cache,
    ssd: LoomCells<u64, Device>,
    /// Writes in flight, by line.
    in_flight: LoomCells<u64, Device>,
}

impl Written {
    fn new(lines: usize) -> Self {
        let ssd: Vec<u64> = (0..lines).map(|line| value(line as u64, 0)).collect();
        Self {
            cache: Cache::with_line_0(lines, 1),
            ssd: cells(&ssd),
            in_flight: cells(&vec![0; lines]),
        }
    }

    /// As `new`, with line 0 changed already.
    fn dirty() -> Self {
        let written = Self::new(2);
        assert!(written.write(0, NEW));
        // The hand takes the mark that the write left.
        assert_eq!(written.cache.table.victim(1), Found::Nothing);
        written
    }

    fn write(self, line: u64, value: u64) -> bool {
        let Ok(meta) = self.cache.table.pin(line) else {
            return false;
        };
        self.cache.store(meta.slot(), value);
        self.cache.table.soil(line);
        self.cache.table.unpin(line);
        true
    }

    fn begin_clean(self, line: u64) -> Option<Cleaning> {
        let meta = self.cache.word(line);
        let cleaning = self.cache.table.begin_clean(line, meta)?;
        self.begun(cleaning);
        Some(cleaning)
    }

    fn begun(self, Cleaning { line, .. }: Cleaning) {
        let before = self.in_flight.at(line).fetch_add(1, Order::Relaxed);
        assert_eq!(before, 0, "two writes of line {line} in flight");
    }

    /// What the controller does with the write: reads the slot, writes the medium.
    fn carry_out(self, cleaning: Cleaning) {
        Loom::fence::<Device>(Order::AcqRel);
        let [low, high] = self.cache.bytes(cleaning.slot);
        let ssd = self.ssd.at(cleaning.line);
        // A line that is being changed may be torn: then it is written once more.
        ssd.store(if low == high { low } else { u64::MAX }, Order::Relaxed);
        Loom::fence::<Device>(Order::AcqRel);
        self.in_flight
            .at(cleaning.line)
            .fetch_add(1u64.wrapping_neg(), Order::Relaxed);
    }

    fn clean(self, line: u64) -> bool {
        let Some(cleaning) = self.begin_clean(line) else {
            return false;
        };
        self.carry_out(cleaning);
        self.cache.table.cleaned(line);
        true
    }

    /// The SSD has what was written last, unless the line says that it has not.
    fn check(self, line: u64, expected: u64) {
        let meta = self.cache.word(line);
        assert!(!meta.is_cleaning());
        if !meta.is_dirty() {
            assert_eq!(self.ssd.at(line).load(Order::Relaxed), expected, "{meta:?}");
        }
    }
}

/// [WB-1], [WB-3]: a change during a write is written by another one.
#[test]
fn a_writer_and_a_cleaner() {
    check(3, |beginning| {
        let written = Written::dirty();
        let writer = move || assert!(written.write(0, NEW + 1), "a line that is cleaned stays");
        race(beginning, writer, move || written.clean(0));
        written.check(0, NEW + 1);
        written.clean(0);
        written.check(0, NEW + 1);
        assert!(!written.cache.word(0).is_dirty());
    });
}

/// [WB-2]: of two cleaners one writes; a third write waits for the first one's end.
#[test]
fn two_cleaners_and_one_line() {
    check(3, |beginning| {
        let written = Written::dirty();
        let (left, right) = race(
            beginning,
            move || written.clean(0),
            move || written.clean(0),
        );
        assert!(left != right, "one change needs one write");
        written.check(0, NEW);
    });
}

/// [WB-2]: the same, while a writer makes the line dirty again.
#[test]
fn two_cleaners_and_a_writer() {
    let executions = explore(2, || {
        let written = Written::dirty();
        let cleaners = [0; 2].map(|_| thread::spawn(move || written.clean(0)));
        assert!(written.write(0, NEW + 1));
        for cleaner in cleaners {
            cleaner.join().unwrap();
        }
        written.check(0, NEW + 1);
    });
    assert!(executions > 1);
}

/// [WB-4]: the slot of a line goes to another one only after the line was written, whoever writes
/// it.
#[test]
fn a_cleaner_and_an_evictor() {
    check(3, |beginning| {
        let written = Written::dirty();
        let table = written.cache.table;
        let evictor = move || {
            let slot = match table.victim(1) {
                Found::Slot(slot) => Some(slot),
                Found::Dirty(cleaning) => {
                    written.begun(cleaning);
                    written.carry_out(cleaning);
                    table.cleaned(cleaning.line);
                    table.take_cleaned(cleaning)
                }
                Found::Nothing => None,
            };
            if let Some(slot) = slot {
                let claim = written.cache.claim(1).expect("nobody else wants line 1");
                written.cache.finish(table.attach(claim, slot));
            }
        };
        race(beginning, move || written.clean(0), evictor);
        assert_eq!(written.ssd.at(0).load(Order::Relaxed), NEW);
    });
}

/// [WB-6]: a write that failed leaves the line dirty, for the next.
#[test]
fn a_failed_write_and_a_cleaner() {
    check(3, |beginning| {
        let written = Written::dirty();
        let done = cell::<u64, Device>(0);
        let failing = move || {
            if let Some(cleaning) = written.begin_clean(0) {
                written.in_flight.at(cleaning.line).store(0, Order::Relaxed);
                written.cache.table.clean_failed(0);
            }
        };
        let other = move || {
            if written.clean(0) {
                done.store(1, Order::Relaxed);
            }
        };
        race(beginning, failing, other);
        let clean = !written.cache.word(0).is_dirty();
        assert_eq!(clean, done.load(Order::Relaxed) == 1);
        written.check(0, NEW);
    });
}
