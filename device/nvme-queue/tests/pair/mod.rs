//! A queue pair in plain memory, prepared as the CPU prepares one for a GPU.
#![allow(
    unsafe_code,
    reason = "the test owns the memory that a descriptor names"
)]
// UNSAFETY: descriptors and handles name the allocations of a `Pair`, which keeps them.

use nvme_queue::{AnyQueue, Bam, Layout, Protocol, Queue, QueueDesc, RingAddresses, Shape, Ticket};
use warpstore_simt::{Native, NativeCell, NativeCells, Scope, Word};

use crate::controller::{Controller, Rings, SQID};

#[derive(Clone)]
#[repr(C, align(128))]
struct Line([u8; 128]);

/// Memory of a queue pair and both views of it. The views do not outlive it.
pub struct Pair<W: Ticket> {
    /// What [`Protocol::Hop`] works on.
    pub queue: Queue<Native, W>,
    desc: QueueDesc,
    rings: Rings<Native>,
    _memory: [Vec<Line>; 4],
}

impl<W: Ticket> Pair<W> {
    pub fn with(depth: u32, protocol: Protocol) -> Self {
        let shape = Shape::new(depth, u32::MAX).unwrap();
        let layout = Layout::with(shape, protocol);
        let lines = |bytes: u64| vec![Line([0; 128]); bytes.div_ceil(128) as usize];
        let mut words = lines(layout.bytes());
        for byte in layout.mark_bytes() {
            words[byte as usize / 128].0[byte as usize % 128] = 0xff;
        }
        let mut memory = [
            words,
            lines(u64::from(depth) * 64),
            lines(u64::from(depth) * 16),
            lines(256),
        ];
        let [words, sq, cq, doorbells] = memory
            .each_mut()
            .map(|part| part.as_mut_ptr().expose_provenance() as u64);
        let rings = RingAddresses {
            sq,
            cq,
            sq_doorbell: doorbells,
            cq_doorbell: doorbells + 128,
        };
        let desc = layout.describe(SQID, words, rings);
        // SAFETY: the allocations have the sizes, alignments and contents that `Layout` asks
        // for, and live in `_memory` beside the queue.
        let queue = unsafe { Queue::from_desc(&desc) };
        // SAFETY: as above; the controller side sees the same rings.
        let sq = unsafe { NativeCells::new(pointer(rings.sq), u64::from(depth) * 8) };
        // SAFETY: as above.
        let cq = unsafe { NativeCells::new(pointer(rings.cq), u64::from(depth) * 2) };
        // SAFETY: as above.
        let sq_doorbell = unsafe { NativeCell::new(pointer(rings.sq_doorbell)) };
        // SAFETY: as above.
        let cq_doorbell = unsafe { NativeCell::new(pointer(rings.cq_doorbell)) };
        let rings = Rings {
            sq,
            cq,
            sq_doorbell,
            cq_doorbell,
        };
        Self {
            queue,
            desc,
            rings,
            _memory: memory,
        }
    }

    /// The queue pair with the protocol that it was made for.
    pub fn any(&self) -> AnyQueue<'_, W> {
        // SAFETY: as in `with`.
        unsafe { AnyQueue::from_desc(&self.desc) }
    }

    pub fn controller(&self) -> Controller<Native> {
        let shape = self.queue.shape();
        let cap = match self.any().protocol() {
            Protocol::Hop | Protocol::Lock => shape.cap(),
            Protocol::Bam => Bam::<Native, W>::most_threads(shape),
        };
        Controller::new(self.rings, shape.depth() as u32, cap, 0)
    }
}

/// A word that nobody but this test knows, never freed.
pub fn word<T: Word, S: Scope>(value: T) -> NativeCell<T, S> {
    // SAFETY: a leaked allocation is valid for ever.
    unsafe { NativeCell::new(Box::leak(Box::new(value))) }
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
