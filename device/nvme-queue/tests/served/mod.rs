//! A controller under loom, the rings that it serves, and what became of each command.

use nvme_queue::{Completion, EMPTY, FAULT_WORDS, Finish, Narrow, Patience, Words};
use warpstore_loom::{Loom, LoomCells, cell, cells};
use warpstore_simt::{Cell, Cells, Device, Order, System};

use crate::controller::{Controller, Rings};

/// Tickets of 6 bits wrap at 64.
pub type Width = Narrow<6>;

/// What became of each command, by serial number.
#[derive(Clone, Copy)]
pub struct Ledger {
    finished: LoomCells<u64, Device>,
    /// What the controller "read from the disk": written before the CQE, checked after it.
    data: LoomCells<u64, System>,
}

impl Ledger {
    pub fn times_finished(self, serial: u64) -> u64 {
        self.finished.at(serial).load(Order::Relaxed)
    }
}

impl Finish for Ledger {
    fn finish(&self, completion: Completion) {
        let serial = completion.tag;
        assert!(completion.status.is_success());
        assert_eq!(
            u64::from(completion.dw0),
            serial,
            "the result of another command"
        );
        assert_eq!(
            self.data.at(serial).load(Order::Relaxed),
            serial + 100,
            "CQE came before data"
        );
        self.finished.at(serial).fetch_add(1, Order::Relaxed);
    }
}

/// Rings through which some commands have gone, all of them done, and who serves them.
pub struct Served {
    pub controller: Controller<Loom>,
    pub ledger: Ledger,
    pub patience: Patience<Loom>,
    pub rings: Rings<Loom>,
}

/// First index from `start` on that falls on `slot`; the slot is free for its lap.
pub fn next(start: u64, slot: u64, slots: u64) -> u64 {
    (start..start + slots)
        .find(|index| index % slots == slot)
        .unwrap()
}

impl Served {
    /// Rings of `depth` entries after `start` commands; `commands` more will come, at most `cap` at a
    /// time.
    pub fn new(depth: u32, cap: u32, start: u64, commands: usize) -> Self {
        let slots = u64::from(depth);
        let old_phase = |slot: u64| u64::from(next(start, slot, slots) / slots % 2 == 1);
        let cq: Vec<u64> = (0..slots)
            .flat_map(|slot| [0, old_phase(slot) << 48])
            .collect();
        let doorbell = (start % slots) as u32;
        let rings = Rings {
            sq: cells(&vec![0; depth as usize * 8]),
            cq: cells(&cq),
            sq_doorbell: cell(doorbell),
            cq_doorbell: cell(doorbell),
        };
        Self {
            controller: Controller::new(rings, depth, cap, start as u32),
            ledger: Ledger {
                finished: cells(&vec![0; commands]),
                data: cells(&vec![0; commands]),
            },
            patience: Patience {
                deadline_ns: u64::MAX,
                abort: cell(0),
            },
            rings,
        }
    }

    /// The words of a queue of `depth` that has seen `start` commands; `ticket`, `tail` and `rung`
    /// are each protocol's own.
    pub fn words(&self, depth: u32, start: u64, ticket: u64, tail: u64) -> Words<Loom> {
        let slots = u64::from(depth);
        let state: Vec<u64> = (0..slots)
            .map(|slot| 2 * (next(start, slot, slots) % 64 / slots))
            .collect();
        Words {
            ticket: cell(ticket),
            tail: cell(tail),
            cq_head: cell(start << 1),
            dead: cell(0),
            rung: cell(tail),
            faults: cells(&[0; FAULT_WORDS as usize]),
            state: cells(&state),
            mark: cells(&vec![EMPTY; depth as usize]),
            tag: cells(&vec![0; depth as usize]),
            sq: self.rings.sq,
            cq: self.rings.cq,
            sq_doorbell: self.rings.sq_doorbell,
            cq_doorbell: self.rings.cq_doorbell,
        }
    }

    /// Completes the `nth` command in flight, its data first.
    pub fn complete(&mut self, nth: usize) {
        let serial = self.controller.in_flight[nth].slba();
        self.ledger
            .data
            .at(serial)
            .store(serial + 100, Order::Relaxed);
        self.controller.complete(nth);
    }

    /// Completes everything that is published now, in order.
    pub fn serve(&mut self) {
        self.controller.fetch();
        while !self.controller.in_flight.is_empty() && self.controller.has_room() {
            self.complete(0);
        }
    }

    /// When all threads are joined and everything is drained.
    pub fn assert_all_finished_once(&self) {
        for serial in 0..self.ledger.finished.len() {
            assert_eq!(self.ledger.times_finished(serial), 1, "command {serial}");
        }
    }
}

pub fn assert_explored(executions: u64) {
    println!("{executions} executions");
    assert!(executions > 1);
}
