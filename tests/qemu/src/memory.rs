//! Page-aligned memory that tests give to the driver, and a submitter of one thread.
#![allow(unsafe_code, reason = "cells are made from raw addresses")]
// UNSAFETY: cells over memory that an owner, kept beside them, keeps as long as the driver uses
// them.

use std::any::Any;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use driver_vfio::{DmaRegion, Proxy, QUEUE_PRIVATE_WORDS, QueueCells, QueueMemory, QueuePair};
use nvme_queue::{Completion, Finish, Layout, Patience, Queue, Shape};
use nvme_wire::{Sqe, Status};
use warpstore_simt::{
    Cell, Cells, Device, Native, NativeCell, NativeCells, Order, Platform, Solo, System,
};

/// Words of the largest page that the driver takes.
const ALIGNMENT: usize = 64 * 1024 / 8;

/// How long a submitter waits for a command: no test means to reach it.
const LIMIT_NS: u64 = 30_000_000_000;

/// Aligned words, and whatever keeps them.
pub struct Words {
    cells: NativeCells<u64, System>,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Words {
    /// `len` words of the heap, aligned to 64 KiB; all ones at first, so that whatever must be
    /// zeroed shows.
    pub fn new(len: usize) -> Self {
        let memory: Arc<Vec<_>> = Arc::new(
            (0..len + ALIGNMENT)
                .map(|_| AtomicU64::new(u64::MAX))
                .collect(),
        );
        let first = memory.as_ptr().align_offset(ALIGNMENT * 8);
        let address = memory[first..].as_ptr().cast_mut().cast();
        // SAFETY: `len` words of atomics lie from there on, which the owner keeps.
        let cells = unsafe { NativeCells::new(address, len as u64) };
        Self {
            cells,
            _owner: memory,
        }
    }

    /// Stores `value` in every word.
    pub fn fill(&self, value: u64) {
        for index in 0..self.cells.len() {
            self.cells.at(index).store(value, Order::Relaxed);
        }
    }

    /// Zeroes the memory, as rings must be.
    pub fn zero(&self) {
        self.fill(0);
    }

    /// The words; they are there as long as `self`.
    pub fn cells(&self) -> NativeCells<u64, System> {
        self.cells
    }
}

/// Memory that is given out once, from the bottom up.
pub struct Arena {
    cells: NativeCells<u64, System>,
    next: AtomicU64,
    owner: Arc<dyn Any + Send + Sync>,
}

impl Arena {
    /// Gives out `cells`, which `owner` keeps.
    pub fn new(cells: NativeCells<u64, System>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            cells,
            next: AtomicU64::new(0),
            owner,
        }
    }

    /// At least `bytes` of memory, in whole pages of any size, at a multiple of 64 KiB from its
    /// beginning; all ones at first, so that whatever must be zeroed shows.
    ///
    /// # Panics
    /// If there is too little.
    pub fn allocate(&self, bytes: u64) -> Words {
        let len = (bytes / 8).next_multiple_of(ALIGNMENT as u64);
        let words = Words {
            cells: self
                .cells
                .part(self.next.fetch_add(len, Ordering::Relaxed), len),
            _owner: Arc::clone(&self.owner),
        };
        words.fill(u64::MAX);
        words
    }
}

/// Memory for an admin queue.
pub struct Admin {
    shared: Words,
    private: Vec<AtomicU64>,
    flags: [AtomicU32; 2],
}

impl Admin {
    /// Shares `shared_bytes` of the heap with the controller.
    pub fn new(shared_bytes: u64) -> Arc<Self> {
        Self::sharing(Words::new(shared_bytes as usize / 8))
    }

    /// Shares `shared` with the controller.
    pub fn sharing(shared: Words) -> Arc<Self> {
        let junk = || AtomicU64::new(u64::MAX);
        Arc::new(Self {
            shared,
            private: (0..QUEUE_PRIVATE_WORDS).map(|_| junk()).collect(),
            flags: [AtomicU32::new(1), AtomicU32::new(0)],
        })
    }
}

impl QueueMemory for Admin {
    fn cells(&self) -> QueueCells {
        let private = self.private.as_ptr().cast_mut().cast();
        let flag = |index: usize| self.flags[index].as_ptr();
        QueueCells {
            shared: self.shared.cells(),
            // SAFETY: the vector's atomics, which live as long as `self`; the driver keeps it.
            private: unsafe { NativeCells::<_, Device>::new(private, QUEUE_PRIVATE_WORDS) },
            // SAFETY: as for private.
            dead: unsafe { NativeCell::new(flag(0)) },
            // SAFETY: as for private.
            abort: unsafe { NativeCell::new(flag(1)) },
        }
    }
}

/// One 32-bit word, as a doorbell. Its owner lives as long as the handle is used.
pub fn doorbell(word: &AtomicU32) -> NativeCell<u32, System> {
    // SAFETY: the word lives as long as the backing that owns it, which the driver keeps.
    unsafe { NativeCell::new(word.as_ptr()) }
}

/// A submitter of one thread on an I/O queue pair.
pub struct Submitter {
    queue: Queue<Native>,
    /// Passes doorbells on, if the controller takes them from memory; before its page.
    _proxy: Option<(Proxy, Words)>,
    _private: Words,
    abort: AtomicU32,
}

impl Submitter {
    /// Takes a pair that was created just now, and that nobody else submits to.
    pub fn new(pair: &QueuePair) -> Self {
        let proxy = pair.shadows[0].map(|_| proxy(pair));
        let pair = match &proxy {
            Some((_, page)) => &Proxy::stand_in(&[*pair], halves(page))[0],
            None => pair,
        };
        let layout = Layout::of(Shape::new(pair.entries, u32::MAX).expect("the driver checked it"));
        let private = Words::new(layout.bytes() as usize / 8);
        let marks = layout.mark_bytes();
        for index in 0..layout.bytes() / 8 {
            let initial = if marks.contains(&(index * 8)) {
                u64::MAX
            } else {
                0
            };
            private.cells().at(index).store(initial, Order::Relaxed);
        }
        let address = DmaRegion::from(private.cells()).address();
        // SAFETY: the words were set up just now and live as long as the queue; rings and
        // doorbells are those of a pair that exists, which tests delete last.
        let queue = unsafe { Queue::from_desc(&layout.describe(pair.qid, address, pair.rings)) };
        Self {
            queue,
            _proxy: proxy,
            _private: private,
            abort: AtomicU32::new(0),
        }
    }

    /// Submits one command and waits for its completion.
    ///
    /// # Panics
    /// As [`run_all`](Self::run_all).
    pub fn run(&self, command: Sqe) -> Status {
        self.run_all(&[command])[0]
    }

    /// Submits one command and does not wait for it.
    ///
    /// # Panics
    /// If the queue does not take it.
    pub fn submit(&self, command: Sqe) {
        self.queue
            .submit(Solo, command, 0, &Ignored, &self.patience())
            .expect("the queue takes commands");
    }

    /// [`LIMIT_NS`] from now on.
    fn patience(&self) -> Patience<Native> {
        Patience {
            deadline_ns: Native::now_ns() + LIMIT_NS,
            abort: doorbell(&self.abort),
        }
    }

    /// Submits all commands, as many at a time as the queue takes, and waits for all.
    ///
    /// # Panics
    /// If a command does not complete in time, or the queue saw a faulty completion.
    pub fn run_all(&self, commands: &[Sqe]) -> Vec<Status> {
        let done = Done(commands.iter().map(|_| OnceCell::new()).collect());
        for (tag, command) in commands.iter().enumerate() {
            self.queue
                .submit(Solo, *command, tag as u64, &done, &self.patience())
                .expect("the queue takes commands");
        }
        let patience = self.patience();
        let mut attempt = 0;
        while done.0.iter().any(|status| status.get().is_none()) {
            assert_eq!(patience.exhausted(), None, "no completion");
            self.queue.drain(Solo, &done);
            Native::pause(attempt);
            attempt += 1;
        }
        assert_eq!(self.queue.faults().total(), 0);
        done.0
            .into_iter()
            .filter_map(OnceCell::into_inner)
            .collect()
    }
}

/// A proxy for a pair, and the page in which it is rung.
fn proxy(pair: &QueuePair) -> (Proxy, Words) {
    let page = Words::new(Proxy::words(1) as usize / 2);
    page.zero();
    // SAFETY: the page stays beside the proxy. The pair's doorbells are looked at when somebody rings, and
    // tests ring no pair that they have deleted.
    let proxy = unsafe { Proxy::start(std::slice::from_ref(pair), halves(&page)) };
    (proxy.expect("there is a thread"), page)
}

/// A page of doorbells, zeroed already.
fn halves(page: &Words) -> NativeCells<u32, System> {
    // SAFETY: from here on it holds doorbells, and nothing else uses it.
    unsafe { page.cells().halves() }
}

/// Completions that nobody waits for.
struct Ignored;

impl Finish for Ignored {
    fn finish(&self, _: Completion) {}
}

/// The status of each command, by its tag.
struct Done(Vec<OnceCell<Status>>);

impl Finish for Done {
    fn finish(&self, completion: Completion) {
        self.0[completion.tag as usize]
            .set(completion.status)
            .expect("a command completes once");
    }
}
