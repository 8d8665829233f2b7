//! A cache on loom's words, and races between two sides of it.

use line_cache::{Claim, Fetch, LineTable, Look, Meta, Outcome, ReadOrder};
use loom::thread;
use warpstore_loom::{Loom, LoomCells, cell, cells, explore};
use warpstore_simt::{Cell, Cells, Device, Order, Platform};

/// Bytes of a fetch that the controller gave up half-way.
pub const PARTIAL: u64 = 999;

/// A table and the bytes of its slots.
#[derive(Clone, Copy)]
pub struct Cache {
    pub table: LineTable<Loom>,
    meta: LoomCells<u64, Device>,
    pub data: LoomCells<u64, Device>,
}

pub fn value(line: u64, version: u16) -> u64 {
    100 * (line + 1) + u64::from(version)
}

impl Cache {
    pub fn new(lines: usize, slots: usize) -> Self {
        Self::ordered(lines, slots, ReadOrder::Strict)
    }

    pub fn ordered(lines: usize, slots: usize, order: ReadOrder) -> Self {
        let meta = cells(&vec![0; lines]);
        let owner = cells(&vec![0; slots]);
        let table = LineTable::new(meta, owner, cell(0), order, 0);
        Self {
            table,
            meta,
            data: cells(&vec![0; 2 * slots]),
        }
    }

    /// As `new`, with line 0 resident in slot 0, not referenced, the hand before slot 0.
    pub fn with_line_0(lines: usize, slots: usize) -> Self {
        let cache = Self::new(lines, slots);
        cache.fill(0).expect("an empty cache has room");
        for _ in 0..slots * 2 - 1 {
            // The second visit of slot 0 takes the mark; the other slots are given back.
            if let Some(slot) = cache.table.victim(1).slot() {
                cache.table.free_slot(slot);
            }
        }
        cache
    }

    pub fn word(self, line: u64) -> Meta {
        Meta::from_bits(self.meta.at(line).load(Order::Relaxed))
    }

    pub fn claim(self, line: u64) -> Option<Claim> {
        match self.table.look(line) {
            Look::Absent(meta) | Look::Failed(meta) => self.table.claim(line, meta),
            Look::Hit(_) | Look::Busy(_) => None,
        }
    }

    pub fn begin(self, line: u64) -> Option<Fetch> {
        let claim = self.claim(line)?;
        match self.table.victim(2).slot() {
            Some(slot) => Some(self.table.attach(claim, slot)),
            None => {
                self.table.release_claim(claim);
                None
            }
        }
    }

    /// What the controller does after the doorbell.
    pub fn write(self, slot: u32, value: u64) {
        Loom::fence::<Device>(Order::AcqRel);
        Loom::store_pair(self.data, u64::from(slot) * 2, [value; 2]);
    }

    /// What a kernel does that has pinned the line.
    pub fn store(self, slot: u32, value: u64) {
        Loom::store_pair(self.data, u64::from(slot) * 2, [value; 2]);
    }

    pub fn finish(self, fetch: Fetch) {
        self.write(fetch.slot, value(fetch.line, fetch.version));
        self.table.publish(fetch);
    }

    pub fn fill(self, line: u64) -> Option<Fetch> {
        let fetch = self.begin(line)?;
        self.finish(fetch);
        Some(fetch)
    }

    pub fn bytes(self, slot: u32) -> [u64; 2] {
        Loom::load_pair(self.data, u64::from(slot) * 2)
    }

    /// One optimistic read. A validated one holds the bytes of the version it opened.
    pub fn read(self, line: u64) -> bool {
        let opened = self.table.open(line);
        let Look::Hit(meta) = opened.look() else {
            return false;
        };
        self.read_opened(line, meta)
    }

    pub fn read_opened(self, line: u64, meta: Meta) -> bool {
        let bytes = self.bytes(meta.slot());
        let valid = self.table.validate(line, meta, bytes[0] | bytes[1]);
        if valid {
            assert_eq!(
                bytes,
                [value(line, meta.version()); 2],
                "torn read of line {line}"
            );
        }
        valid
    }

    pub fn wait(self, line: u64, version: u16) -> Outcome {
        let mut attempt = 0;
        loop {
            if let Some(outcome) = self.table.settled(line, version) {
                return outcome;
            }
            Loom::pause(attempt);
            attempt += 1;
        }
    }
}

/// Which of the two sides of a race begins; loom derives the other interleavings from there.
///
/// It explores both beginnings, because loom remembers only the last access to a word when it
/// looks for races: one side's load is forgotten once the other side has loaded the same word,
/// and then a store does not seem to race with it.
#[derive(Clone, Copy)]
pub enum Beginning {
    Left,
    Right,
}

/// Runs both sides against each other and returns what they return.
pub fn race<L: 'static, R: 'static>(
    beginning: Beginning,
    left: impl FnOnce() -> L + 'static,
    right: impl FnOnce() -> R + 'static,
) -> (L, R) {
    match beginning {
        Beginning::Left => {
            let right = thread::spawn(right);
            (left(), right.join().unwrap())
        }
        Beginning::Right => {
            let left = thread::spawn(left);
            let right = right();
            (left.join().unwrap(), right)
        }
    }
}

/// Explores `scenario` from both beginnings, with at most `preemptions` involuntary switches.
pub fn check(preemptions: usize, scenario: impl Fn(Beginning) + Copy + Send + Sync + 'static) {
    let left = explore(preemptions, move || scenario(Beginning::Left));
    let right = explore(preemptions, move || scenario(Beginning::Right));
    assert!(left > 1 || right > 1, "one execution explores nothing");
}
