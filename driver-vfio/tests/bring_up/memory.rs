//! Page-aligned memory that tests give to the driver.
#![allow(unsafe_code, reason = "cells are made from raw addresses")]
// UNSAFETY: cells over heap memory of atomics, which its owner keeps as long as the driver uses
// the cells.

use std::cell::OnceCell;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use driver_vfio::{ADMIN_PRIVATE_WORDS, AdminCells, AdminMemory, DmaRegion, QueuePair};
use nvme_queue::{Completion, Finish, Layout, Patience, Queue, Shape};
use nvme_wire::{Sqe, Status};
use warpstore_simt::{
    Cell, Cells, Device, Native, NativeCell, NativeCells, Order, Platform, Solo, System,
};

/// Words of the largest page that the driver takes.
const ALIGNMENT: usize = 64 * 1024 / 8;

/// Aligned words; all ones at first, so that whatever must be zeroed shows.
pub struct Words {
    memory: Vec<AtomicU64>,
    first: usize,
}

impl Words {
    pub fn new(len: usize) -> Self {
        let memory: Vec<_> = (0..len + ALIGNMENT)
            .map(|_| AtomicU64::new(u64::MAX))
            .collect();
        let first = memory.as_ptr().align_offset(ALIGNMENT * 8);
        Self { memory, first }
    }

    /// Zeroes the memory, as rings must be.
    pub fn zero(&self) {
        for word in &self.memory[self.first..] {
            word.store(0, Ordering::Relaxed);
        }
    }

    pub fn cells(&self) -> NativeCells<u64, System> {
        let len = self.memory.len() - ALIGNMENT;
        let address = self.memory[self.first..].as_ptr().cast_mut().cast();
        // SAFETY: `len` words of atomics lie from there on, which live as long as `self`; tests
        // keep it until the controller has stopped.
        unsafe { NativeCells::new(address, len as u64) }
    }
}

/// Memory for an admin queue.
pub struct Admin {
    shared: Words,
    private: Vec<AtomicU64>,
    flags: [AtomicU32; 2],
}

impl Admin {
    pub fn new(shared_bytes: u64) -> Arc<Self> {
        let junk = || AtomicU64::new(u64::MAX);
        Arc::new(Self {
            shared: Words::new(shared_bytes as usize / 8),
            private: (0..ADMIN_PRIVATE_WORDS).map(|_| junk()).collect(),
            flags: [AtomicU32::new(1), AtomicU32::new(0)],
        })
    }
}

impl AdminMemory for Admin {
    fn cells(&self) -> AdminCells {
        let private = self.private.as_ptr().cast_mut().cast();
        let flag = |index: usize| self.flags[index].as_ptr();
        AdminCells {
            shared: self.shared.cells(),
            // SAFETY: the vector's atomics, which live as long as `self`; the driver keeps it.
            private: unsafe { NativeCells::<_, Device>::new(private, ADMIN_PRIVATE_WORDS) },
            // SAFETY: as for private.
            dead: unsafe { NativeCell::new(flag(0)) },
            // SAFETY: as for private.
            abort: unsafe { NativeCell::new(flag(1)) },
        }
    }
}

/// One 32-bit word, as a doorbell.
pub fn doorbell(word: &AtomicU32) -> NativeCell<u32, System> {
    // SAFETY: the word lives as long as the backing that owns it, which the driver keeps.
    unsafe { NativeCell::new(word.as_ptr()) }
}

/// The words at an IOVA that the driver gave to a controller whose IOVAs are addresses.
pub fn at_iova(iova: u64, words: u64) -> NativeCells<u64, System> {
    // SAFETY: the driver keeps the memory of its admin queue while the controller is enabled, and
    // tests look there only while they answer a command.
    unsafe { NativeCells::new(with_exposed_provenance_mut(iova as usize), words) }
}

/// A submitter of one thread on an I/O queue pair.
pub struct Submitter {
    queue: Queue<Native>,
    _private: Words,
    abort: AtomicU32,
}

impl Submitter {
    pub fn new(pair: &QueuePair) -> Self {
        let layout = Layout::of(Shape::new(pair.entries, u32::MAX).unwrap());
        let private = Words::new(layout.bytes() as usize / 8);
        let marks = layout.mark_bytes();
        for index in 0..layout.bytes() / 8 {
            let is_mark = marks.contains(&(index * 8));
            private
                .cells()
                .at(index)
                .store(if is_mark { u64::MAX } else { 0 }, Order::Relaxed);
        }
        let address = DmaRegion::from(private.cells()).address();
        // SAFETY: the words were set up just now and live as long as the queue; rings and
        // doorbells are those of a pair that exists, which tests delete last.
        let queue = unsafe { Queue::from_desc(&layout.describe(pair.qid, address, pair.rings)) };
        Self {
            queue,
            _private: private,
            abort: AtomicU32::new(0),
        }
    }

    /// Submits one command and waits for its completion.
    pub fn run(&self, command: Sqe) -> Status {
        let done = Done(OnceCell::new());
        let patience = Patience {
            deadline_ns: Native::now_ns() + 5_000_000_000,
            abort: doorbell(&self.abort),
        };
        self.queue
            .submit(Solo, command, 1, &done, &patience)
            .unwrap();
        let mut attempt = 0;
        while done.0.get().is_none() {
            assert_eq!(patience.exhausted(), None, "no completion");
            self.queue.drain(Solo, &done);
            Native::pause(attempt);
            attempt += 1;
        }
        assert_eq!(self.queue.faults().total(), 0);
        done.0.into_inner().unwrap()
    }
}

struct Done(OnceCell<Status>);

impl Finish for Done {
    fn finish(&self, completion: Completion) {
        self.0.set(completion.status).unwrap();
    }
}
