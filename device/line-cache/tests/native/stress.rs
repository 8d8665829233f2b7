//! Many lanes on few slots, on the host runner: no torn read is believed, and everybody ends.

use std::sync::atomic::{AtomicU64, Ordering};

use line_cache::{Failure, LineTable, Look, Meta, NotPinned, Outcome};
use warpstore_simt::host::{Grid, Interleaving, Workers, launch};
use warpstore_simt::{Cell, Cells, Device, Native, NativeCells, Order, Platform, thread};

use crate::words::Words;

const LINES: u64 = 16;
const WORDS_PER_SLOT: u64 = 4;
const READS: u64 = 40;
/// Optimistic attempts before a reader pins.
const OPTIMISTIC: u32 = 8;
/// Turns of one read before it is counted as given up.
const TURNS: u32 = 20_000;

/// How the reads ended.
#[derive(Default)]
struct Tally {
    optimistic: AtomicU64,
    pinned: AtomicU64,
    bounced: AtomicU64,
    failed: AtomicU64,
    gave_up: AtomicU64,
}

impl Tally {
    fn total(&self) -> u64 {
        [
            &self.optimistic,
            &self.pinned,
            &self.bounced,
            &self.failed,
            &self.gave_up,
        ]
        .map(|count| count.load(Ordering::Relaxed))
        .iter()
        .sum()
    }
}

fn value(line: u64, version: u16, word: u64) -> u64 {
    (line << 32 | u64::from(version) << 8 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    table: LineTable<Native>,
    data: NativeCells<u64, Device>,
    tally: &'a Tally,
}

impl<'a> Reader<'a> {
    /// One access, as the device API makes it. Returns the counter that it belongs to.
    fn read(self, line: u64, draw: u64) -> &'a AtomicU64 {
        for turn in 0..TURNS {
            let opened = self.table.open(line);
            match opened.look() {
                Look::Hit(meta) if turn < OPTIMISTIC => {
                    let bytes = self.load(meta);
                    self.table.touch(line, meta);
                    let bits = bytes.iter().fold(0, |bits, word| bits | word);
                    if self.table.validate(line, meta, bits) {
                        Self::verify(line, meta, bytes);
                        return &self.tally.optimistic;
                    }
                }
                Look::Hit(_) => match self.table.pin(line) {
                    Ok(meta) => {
                        let bytes = self.load(meta);
                        self.table.unpin(line);
                        Self::verify(line, meta, bytes);
                        return &self.tally.pinned;
                    }
                    Err(NotPinned::Full) => panic!("fewer lanes than pins"),
                    Err(_) => Native::pause(turn),
                },
                Look::Busy(meta) => {
                    if let Some(Outcome::Failed(_)) = self.wait(line, meta.version()) {
                        return &self.tally.failed;
                    }
                }
                Look::Absent(meta) | Look::Failed(meta) => {
                    if let Some(ended) = self.miss(line, meta, draw) {
                        return ended;
                    }
                }
            }
        }
        &self.tally.gave_up
    }

    fn load(self, meta: Meta) -> [u64; WORDS_PER_SLOT as usize] {
        let first = u64::from(meta.slot()) * WORDS_PER_SLOT;
        std::array::from_fn(|word| self.data.at(first + word as u64).load(Order::Relaxed))
    }

    fn verify(line: u64, meta: Meta, bytes: [u64; WORDS_PER_SLOT as usize]) {
        let expected = std::array::from_fn(|word| value(line, meta.version(), word as u64));
        assert_eq!(bytes, expected, "torn read of line {line}, {meta:?}");
    }

    fn wait(self, line: u64, version: u16) -> Option<Outcome> {
        for turn in 0..TURNS {
            if let Some(outcome) = self.table.settled(line, version) {
                return Some(outcome);
            }
            Native::pause(turn);
        }
        None
    }

    /// Fetches the line, or goes round the cache. None: look again.
    fn miss(self, line: u64, meta: Meta, draw: u64) -> Option<&'a AtomicU64> {
        let claim = self.table.claim(line, meta)?;
        let Some(slot) = self.table.victim(2 * self.table.slots()).slot() else {
            self.table.release_claim(claim);
            return Some(&self.tally.bounced);
        };
        let fetch = self.table.attach(claim, slot);
        // The doorbell's fence; the lane is the controller too.
        Native::fence::<Device>(Order::AcqRel);
        if draw.is_multiple_of(13) {
            self.table.fail(fetch, Failure::new(1, 0x281));
            return Some(&self.tally.failed);
        }
        for word in 0..WORDS_PER_SLOT {
            let at = u64::from(fetch.slot) * WORDS_PER_SLOT + word;
            self.data
                .at(at)
                .store(value(line, fetch.version, word), Order::Relaxed);
        }
        self.table.publish(fetch);
        None
    }
}

fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

fn stress(blocks: u32, slots: usize, seed: u64) -> Tally {
    let words = Words::new(LINES as usize, slots, WORDS_PER_SLOT as usize);
    let (table, data, tally) = (words.table(), words.data(), Tally::default());
    let reader = Reader {
        table,
        data,
        tally: &tally,
    };
    let body = || {
        let mut draw = (thread::index_1d() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
        for _ in 0..READS {
            draw = xorshift(draw);
            reader
                .read(draw % LINES, draw >> 8)
                .fetch_add(1, Ordering::Relaxed);
        }
    };
    let workers = Workers {
        threads: 2,
        resident_blocks: blocks as usize,
    };
    launch(
        Grid {
            grid_dim: blocks,
            block_dim: 64,
        },
        workers,
        Interleaving::Seeded(seed),
        &body,
    )
    .expect("every lane verifies its reads and returns");
    let lanes = u64::from(blocks) * 64;
    assert_eq!(tally.total(), lanes * READS, "every read ended");
    assert_eq!(
        tally.gave_up.load(Ordering::Relaxed),
        0,
        "with {slots} slots, seed {seed}"
    );
    let pins = (0..LINES).map(|line| table.open(line).pins()).sum::<u32>();
    assert_eq!(pins, 0, "every pin was taken off");
    tally
}

#[test]
fn few_slots_many_lanes() {
    for slots in [1, 2, 7] {
        let mut believed = 0;
        for seed in 1..=3 {
            let tally = stress(if seed == 1 { 4 } else { 1 }, slots, seed);
            believed += tally.optimistic.load(Ordering::Relaxed);
        }
        assert!(
            believed > 0,
            "with {slots} slots no optimistic read succeeded"
        );
    }
}
