//! The line state machine under every interleaving, and every stale value that a relaxed load
//! may return, within a bound on preemptions.
//!
//! A slot has two words of data, both `value(line, version)`: bytes that differ, or that are
//! another incarnation's, are a torn read. The thread that fills a slot plays the controller
//! too: its fence is the one before the doorbell.

mod cache;
mod writes;

use cache::{Cache, PARTIAL, check, race, value};
use line_cache::{Failure, Look, Outcome, ReadOrder, SlotClaim};
use loom::thread;
use warpstore_loom::cell;
use warpstore_simt::{Cell, Cells, Device, Order};

/// [LC-1], [LC-2]: the slot is overwritten by another line.
#[test]
fn a_reader_and_an_evictor_that_refills_the_slot() {
    check(3, |beginning| {
        let cache = Cache::with_line_0(2, 1);
        let reader = move || (cache.read(0), cache.read(1));
        race(beginning, reader, move || cache.fill(1));
        assert!(cache.read(0) != cache.read(1), "one slot holds one line");
    });
}

/// [LC-3]: the line comes back into the same slot, so only the version tells.
#[test]
fn a_reader_and_a_line_that_comes_back() {
    check(3, |beginning| {
        let cache = Cache::with_line_0(1, 1);
        let evictor = move || {
            if let Some(slot) = cache.table.victim(2).slot()
                && let Some(claim) = cache.claim(0)
            {
                let fetch = cache.table.attach(claim, slot);
                cache.write(fetch.slot, value(0, 1));
                cache.table.publish(fetch);
            }
        };
        race(beginning, move || cache.read(0), evictor);
    });
}

/// [HW-1]: the dependency is for NVIDIA GPUs. Loom's machine knows none, so it fences.
#[test]
fn a_reader_that_asks_for_the_dependency() {
    check(3, |beginning| {
        let cache = Cache::ordered(2, 1, ReadOrder::Dependency);
        cache.fill(0);
        race(beginning, move || cache.read(0), move || cache.fill(1));
    });
}

/// [LC-1]: a waiter goes on with the word that ended its wait.
#[test]
fn a_waiter_and_the_publication() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let fetch = cache.begin(0).expect("an empty cache has room");
        let waiter = move || {
            let outcome = cache.wait(0, fetch.version);
            let Outcome::Ready(meta) = outcome else {
                panic!("published, not {outcome:?}")
            };
            assert!(cache.read_opened(0, meta), "nothing evicts here");
        };
        let finisher = move || {
            assert_eq!(cache.table.fetch_of(0), Some(fetch));
            cache.finish(fetch);
        };
        race(beginning, waiter, finisher);
    });
}

/// [LC-5]: one of two claimers wins, a late reader's mark or not.
#[test]
fn two_claimers_and_a_late_mark() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let absent = cache.word(0);
        let late = thread::spawn(move || cache.table.touch(0, absent));
        let claimer = move || cache.table.claim(0, absent).is_some();
        let (first, second) = race(beginning, claimer, claimer);
        assert!(first != second, "exactly one claims the line");
        late.join().unwrap();
        assert!(matches!(cache.table.look(0), Look::Busy(_)));
    });
}

/// [LC-5], [LC-9]: a mark that comes late harms neither the fetch nor the next reader.
#[test]
fn a_fill_and_a_late_mark() {
    check(3, |beginning| {
        let cache = Cache::with_line_0(1, 1);
        let opened = cache.word(0);
        let filler = move || {
            if let Some(slot) = cache.table.victim(1).slot() {
                let claim = cache.claim(0).expect("only the mark interferes");
                cache.finish(cache.table.attach(claim, slot));
                assert_eq!(cache.word(0).version(), 1);
            }
        };
        race(beginning, filler, move || cache.table.touch(0, opened));
        cache.table.touch(0, cache.word(0));
        let opened = cache.table.open(0);
        assert_eq!(opened.pins(), 0);
        assert_eq!(
            cache.table.victim(1).slot(),
            None,
            "the clock takes the mark first"
        );
        assert!(
            cache.read_opened(0, opened),
            "the mark is no part of the comparison"
        );
    });
}

/// [LC-4], [LC-5]: a pinned line keeps its slot, and a pin never lands on an evicted line.
#[test]
fn a_pin_and_an_eviction() {
    check(3, |beginning| {
        let cache = Cache::with_line_0(2, 1);
        let guard = move || {
            let pinned = cache.table.pin(0);
            if let Ok(meta) = pinned {
                // No validation: this is what the pin is for.
                assert_eq!(cache.bytes(meta.slot()), [value(0, 0); 2]);
                cache.table.unpin(0);
            }
            pinned.is_ok()
        };
        let (pinned, filled) = race(beginning, guard, move || cache.fill(1).is_some());
        assert!(pinned || filled, "one of them gets the line");
        assert_eq!(cache.word(0).pins() + cache.word(1).pins(), 0);
        assert!(cache.read(0) != filled);
    });
}

/// [LC-1], [LC-5]: a pin that comes during a fetch waits for VALID, and finds the bytes.
#[test]
fn a_pin_and_a_fetch() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let fetch = cache.begin(0).expect("an empty cache has room");
        let guard = move || {
            if let Ok(meta) = cache.table.pin(0) {
                assert_eq!(cache.bytes(meta.slot()), [value(0, 0); 2]);
                assert_eq!(cache.word(0).pins(), 1);
                assert_eq!(cache.table.victim(3).slot(), None, "a pinned line stays");
                cache.table.unpin(0);
            }
        };
        race(beginning, guard, move || cache.finish(fetch));
        assert_eq!(cache.word(0).pins(), 0);
        assert!(cache.read(0));
    });
}

/// [RC-1]: lanes that count in and find VALID keep the line where it is; the others read nothing.
#[test]
fn counted_lanes_and_an_eviction() {
    check(3, |beginning| {
        let cache = Cache::with_line_0(2, 1);
        let lanes = move || {
            let found = cache.table.count_in(0, 3);
            if let Some(meta) = found {
                // No validation, as under a pin.
                assert_eq!(cache.bytes(meta.slot()), [value(0, 0); 2]);
                cache.table.count_out(0, 3);
            }
            found.is_some()
        };
        let (read, filled) = race(beginning, lanes, move || cache.fill(1).is_some());
        assert!(read || filled, "one of them gets the line");
        assert_eq!(cache.word(0).pins() + cache.word(1).pins(), 0);
        assert!(cache.read(0) != filled);
    });
}

/// [RC-1], [RC-2]: lanes that count in during a fetch take it back, unless they find the bytes.
#[test]
fn counted_lanes_and_a_fetch() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let fetch = cache.begin(0).expect("an empty cache has room");
        let lanes = move || {
            if let Some(meta) = cache.table.count_in(0, 2) {
                assert_eq!(cache.bytes(meta.slot()), [value(0, 0); 2]);
                cache.table.count_out(0, 2);
            }
        };
        race(beginning, lanes, move || cache.finish(fetch));
        assert_eq!(cache.word(0).pins(), 0, "as many went as came");
        assert!(cache.read(0));
    });
}

/// [RC-2]: a claim takes over the pins that it finds, and none is lost.
#[test]
fn counted_lanes_and_a_claim() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let lanes = move || assert_eq!(cache.table.count_in(0, 2), None);
        let (_, claim) = race(beginning, lanes, move || cache.claim(0));
        let claim = claim.or_else(|| cache.claim(0));
        assert!(claim.is_some(), "nobody passes by any more");
        assert_eq!(cache.word(0).pins(), 0, "as many went as came");
        assert!(matches!(cache.table.look(0), Look::Busy(_)));
    });
}

/// [RC-5]: lanes that count all the time make a pin lose its races, and it comes all the same.
#[test]
fn a_pin_among_lanes_that_count() {
    check(16, |beginning| {
        let cache = Cache::with_line_0(1, 1);
        let lanes = move || {
            for _ in 0..4 {
                assert!(cache.table.count_in(0, 1).is_some(), "nothing evicts here");
                cache.table.count_out(0, 1);
            }
        };
        let guard = move || {
            let pinned = cache.table.pin(0);
            assert!(pinned.is_ok(), "{pinned:?}");
            cache.table.unpin(0);
        };
        race(beginning, lanes, guard);
        assert_eq!(cache.word(0).pins(), 0, "as many went as came");
    });
}

/// [RC-5]: a pin that was counted while the line left is taken back, and its bytes are not read.
#[test]
fn a_pin_among_lanes_that_count_and_an_eviction() {
    check(4, |beginning| {
        let cache = Cache::with_line_0(2, 1);
        let lanes = thread::spawn(move || {
            if cache.table.count_in(0, 1).is_some() {
                cache.table.count_out(0, 1);
            }
        });
        let guard = move || {
            if let Ok(meta) = cache.table.pin(0) {
                assert_eq!(cache.bytes(meta.slot()), [value(0, 0); 2]);
                cache.table.unpin(0);
            }
        };
        let (_, filled) = race(beginning, guard, move || cache.fill(1).is_some());
        lanes.join().unwrap();
        assert_eq!(cache.word(0).pins() + cache.word(1).pins(), 0);
        assert!(cache.read(0) != filled);
    });
}

/// [LC-6]: what a pin's holder wrote is there for whoever takes the slot next.
#[test]
fn a_pinned_writer_and_an_eviction() {
    check(3, |beginning| {
        let cache = Cache::with_line_0(1, 1);
        let writer = move || {
            let pinned = cache.table.pin(0).is_ok();
            if pinned {
                cache.data.at(0).store(PARTIAL, Order::Relaxed);
                cache.table.unpin(0);
            }
            pinned
        };
        let evictor = move || {
            cache
                .table
                .victim(2)
                .slot()
                .map(|_| cache.data.at(0).load(Order::Relaxed))
        };
        let (written, found) = race(beginning, writer, evictor);
        if let Some(found) = found {
            assert_eq!(
                found == PARTIAL,
                written,
                "the write is seen, or was refused"
            );
        }
    });
}

/// [LC-7]: a slot changes hands with all that was written into it.
#[test]
fn a_slot_given_back_and_its_next_user() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let slot = cache.table.victim(1).slot().expect("the slot is free");
        let giver = move || {
            cache.write(slot.slot(), PARTIAL);
            cache.table.free_slot(slot);
        };
        let taker = move || {
            if let Some(slot) = cache.table.victim(1).slot() {
                assert_eq!(cache.bytes(slot.slot()), [PARTIAL; 2]);
            }
        };
        race(beginning, giver, taker);
    });
}

/// [LC-7], [LC-8]: a waiter sees the failure, and whoever tries again finds the slot.
#[test]
fn a_failure_and_its_waiter() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let fetch = cache.begin(0).expect("an empty cache has room");
        let failure = Failure::new(3, 0x281);
        let finisher = move || {
            cache.write(fetch.slot, PARTIAL);
            cache.table.fail(fetch, failure);
        };
        let waiter = move || {
            assert_eq!(cache.wait(0, fetch.version), Outcome::Failed(failure));
            let claim = cache.claim(0).expect("a failed line may be claimed");
            let slot = cache
                .table
                .victim(1)
                .slot()
                .expect("its slot was free before it failed");
            assert_eq!(cache.bytes(slot.slot()), [PARTIAL; 2]);
            cache.finish(cache.table.attach(claim, slot));
        };
        race(beginning, finisher, waiter);
        assert!(cache.read(0));
    });
}

/// [LC-5]: a fetch that is given up while its completion comes ends one way, not half of each.
#[test]
fn a_late_completion_and_a_lost_fetch() {
    check(3, |beginning| {
        let cache = Cache::new(1, 1);
        let fetch = cache.begin(0).expect("an empty cache has room");
        let finisher = move || {
            cache.write(fetch.slot, value(0, 0));
            cache
                .table
                .fetch_of(0)
                .is_some_and(|fetch| cache.table.publish(fetch))
        };
        let failure = Failure::new(7, 0);
        let (published, lost) = race(beginning, finisher, move || {
            cache.table.lose(fetch, failure)
        });
        assert!(published != lost);
        match cache.table.look(0) {
            Look::Hit(_) => assert!(published && cache.read(0)),
            Look::Failed(meta) => assert_eq!((meta.failure(), meta.version()), (failure, 1)),
            other => panic!("neither published nor lost: {other:?}"),
        }
        assert!(!cache.table.publish(fetch), "a fetch ends once");
    });
}

/// [LC-8]: a fetch begins after all that was done to the line before, whatever the line was.
#[test]
fn a_claim_sees_the_lines_past() {
    type Past = fn(Cache, SlotClaim);
    let evicted: Past = |_, _kept| {};
    let released: Past = |cache, _kept| {
        if let Some(claim) = cache.claim(0) {
            cache.table.release_claim(claim);
        }
    };
    let failed: Past = |cache, slot| {
        if let Some(claim) = cache.claim(0) {
            cache
                .table
                .fail(cache.table.attach(claim, slot), Failure::new(0, 1));
        }
    };
    for past in [evicted, released, failed] {
        check(3, move |beginning| {
            let cache = Cache::with_line_0(1, 1);
            let ssd = cell::<u64, Device>(0);
            let owner = move || {
                // The line is written back, then evicted.
                ssd.store(1, Order::Relaxed);
                past(
                    cache,
                    cache.table.victim(1).slot().expect("nothing else is about"),
                );
            };
            let claimer = move || {
                if cache.claim(0).is_some() {
                    assert_eq!(
                        ssd.load(Order::Relaxed),
                        1,
                        "the fetch overtook the write-back"
                    );
                }
            };
            race(beginning, owner, claimer);
        });
    }
}

/// [LC-4]: of two that need the only slot, one gets it at a time.
#[test]
fn two_victims_and_one_slot() {
    check(2, |beginning| {
        let cache = Cache::with_line_0(3, 1);
        let (left, right) = race(
            beginning,
            move || cache.fill(1).is_some(),
            move || cache.fill(2).is_some(),
        );
        assert!(left || right, "the slot is not lost");
        let resident = (0..3).filter(|&line| cache.read(line)).count();
        assert_eq!(resident, 1, "one slot holds one line");
    });
}

/// [LC-4]: the clock meets a slot whose word still names a line that lives elsewhere by now.
#[test]
fn a_victim_and_a_line_that_moved() {
    check(3, |beginning| {
        let cache = Cache::with_line_0(1, 2);
        // Keeps the slot that it takes.
        let taker = move || cache.table.victim(1).slot().map(|slot| slot.slot());
        let mover = move || {
            let mut seen = Vec::new();
            if let Some(fetch) = cache.begin(0) {
                cache.finish(fetch);
                seen.push(fetch.slot);
                seen.extend(cache.table.victim(1).slot().map(|slot| slot.slot()));
                if cache.table.pin(0).is_ok() {
                    seen.extend(cache.table.victim(1).slot().map(|slot| slot.slot()));
                    cache.table.unpin(0);
                }
                seen.extend(cache.table.victim(1).slot().map(|slot| slot.slot()));
            }
            seen
        };
        let (taken, seen) = race(beginning, taker, mover);
        assert_eq!(taken, Some(0));
        assert!(!seen.contains(&0), "slot 0 was taken twice");
    });
}
