//! What the CPU prepares: the memory of a queue pair, and its description as plain data.
#![allow(unsafe_code, reason = "a descriptor brings raw addresses")]
// UNSAFETY: `Queue::from_desc` turns the addresses of a descriptor into handles; whoever calls it
// vouches for them.

mod any;

pub use any::AnyQueue;

use core::ops::Range;
use core::ptr::with_exposed_provenance_mut;

use warpstore_simt::{Native, NativeCell, NativeCells, Scope, Word};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bam::{BAM_CIDS, BAM_STRIDE, Bam, BamWords};
use crate::queue::FAULT_WORDS;
use crate::ring::Ring;
use crate::{Locked, Protocol, Queue, Shape, Ticket, Wide, Words};

/// Words in a cache line of 128 bytes, the unit at which GPU atomics contend.
const LINE: u64 = 16;

// Offsets in words. Each hot word has a line of its own.
const TICKET: u64 = 0;
const TAIL: u64 = LINE;
const CQ_HEAD: u64 = 2 * LINE;
const DEAD: u64 = 3 * LINE;
const RUNG: u64 = 4 * LINE;
const FAULTS: u64 = 5 * LINE;
const ARRAYS: u64 = 6 * LINE;

// The same for BaM's protocol. Ticket, tail, CQ head, the dead word and the fault counters, which it
// leaves at 0, lie where the others have them.
const SQ_HEAD: u64 = 4 * LINE;
const TAIL_LOCK: u64 = 6 * LINE;
const CQ_LOCK: u64 = 7 * LINE;
const CID_TICKET: u64 = 8 * LINE;
const BAM_ARRAYS: u64 = 9 * LINE;
/// Arrays with one element an entry: turn, both marks, place. The CIDs follow.
const BAM_ARRAY_COUNT: u64 = 4;

/// Where the private words of a queue pair lie in one allocation of GPU memory (or of plain
/// memory, where submitters are host threads).
///
/// The allocation is [`bytes`](Layout::bytes) long, aligned to 128 bytes, and zeroed, with every
/// byte of [`mark_bytes`](Layout::mark_bytes) set to 0xff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: Shape,
    protocol: Protocol,
    /// Words of one array, in whole lines.
    array: u64,
}

impl Layout {
    /// Layout for queue pairs of this shape, used by [`Protocol::Hop`].
    #[inline(always)]
    pub const fn of(shape: Shape) -> Self {
        Self::with(shape, Protocol::Hop)
    }

    /// Layout for queue pairs of this shape, used by `protocol`.
    #[inline(always)]
    pub const fn with(shape: Shape, protocol: Protocol) -> Self {
        let words = match protocol {
            Protocol::Hop | Protocol::Lock => shape.depth(),
            Protocol::Bam => shape.depth() * BAM_STRIDE,
        };
        Self {
            shape,
            protocol,
            array: words.next_multiple_of(LINE),
        }
    }

    /// Size of the allocation.
    pub const fn bytes(self) -> u64 {
        let words = match self.protocol {
            Protocol::Hop | Protocol::Lock => self.tags() + self.array,
            Protocol::Bam => self.bam_array(BAM_ARRAY_COUNT) + BAM_CIDS * self.array,
        };
        words * 8
    }

    /// The bytes of the allocation that start as 0xff: empty marks. There may be none.
    pub const fn mark_bytes(self) -> Range<u64> {
        match self.protocol {
            Protocol::Hop | Protocol::Lock => self.marks() * 8..(self.marks() + self.array) * 8,
            Protocol::Bam => 0..0,
        }
    }

    /// The byte of the allocation where the 32-bit word begins that is not 0 once the queue has been
    /// given up.
    pub const fn dead_byte(self) -> u64 {
        DEAD * 8
    }

    /// Describes the queue pair `id` whose private words begin at `words`.
    pub const fn describe(self, id: u16, words: u64, rings: RingAddresses) -> QueueDesc {
        let Shape {
            log2_depth,
            cap,
            cadence,
            far,
        } = self.shape;
        QueueDesc {
            words,
            rings,
            log2_depth,
            cap,
            cadence,
            id,
            protocol: self.protocol as u8,
            far: far as u8,
        }
    }

    /// CID and tag of every command in flight, of which `words` is a copy of the private words. For
    /// people: the copy of a queue in use may be of several moments. BaM's protocol keeps no such
    /// record; then there are none.
    pub fn in_flight(self, words: &[u64]) -> impl Iterator<Item = (u16, u64)> {
        let ring = Ring::<Wide>::new(self.shape.log2_depth);
        let slots = match self.protocol {
            Protocol::Hop | Protocol::Lock => self.shape.depth(),
            Protocol::Bam => 0,
        };
        (0..slots).filter_map(move |slot| {
            let state = *words.get((ARRAYS + slot) as usize)?;
            let tag = *words.get((self.tags() + slot) as usize)?;
            Some((ring.cid_in_flight(slot, state)?, tag))
        })
    }

    /// First word of array `number` of BaM's protocol; the last is that of the CIDs.
    const fn bam_array(self, number: u64) -> u64 {
        BAM_ARRAYS + number * self.array
    }

    const fn marks(self) -> u64 {
        ARRAYS + self.array
    }

    const fn tags(self) -> u64 {
        ARRAYS + 2 * self.array
    }
}

/// What controller and submitter share, as addresses in the submitter's space.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RingAddresses {
    /// Submission ring, 64 bytes an entry.
    pub sq: u64,
    /// Completion ring, 16 bytes an entry.
    pub cq: u64,
    /// SQ tail doorbell, 32 bits.
    pub sq_doorbell: u64,
    /// CQ head doorbell, 32 bits.
    pub cq_doorbell: u64,
}

/// A queue pair as plain data, made by the CPU with [`Layout::describe`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct QueueDesc {
    /// Address of the private words.
    pub words: u64,
    /// Rings and doorbells.
    pub rings: RingAddresses,
    /// log2 of the entries in either ring.
    pub log2_depth: u32,
    /// Most commands in flight.
    pub cap: u32,
    /// CQEs taken between two CQ doorbells.
    pub cadence: u32,
    /// Identifier of the submission queue.
    pub id: u16,
    /// A [`Protocol`].
    pub protocol: u8,
    /// 1 if the completion ring is [`Shape::far`], else 0.
    pub far: u8,
}

const _: () = {
    assert!(size_of::<QueueDesc>() == 56);
    assert!(core::mem::offset_of!(QueueDesc, words) == 0);
    assert!(core::mem::offset_of!(QueueDesc, rings) == 8);
    assert!(core::mem::offset_of!(QueueDesc, log2_depth) == 40);
    assert!(core::mem::offset_of!(QueueDesc, cap) == 44);
    assert!(core::mem::offset_of!(QueueDesc, cadence) == 48);
    assert!(core::mem::offset_of!(QueueDesc, id) == 52);
    assert!(core::mem::offset_of!(QueueDesc, protocol) == 54);
    assert!(core::mem::offset_of!(QueueDesc, far) == 55);
    assert!(size_of::<RingAddresses>() == 32);
    assert!(core::mem::offset_of!(RingAddresses, sq) == 0);
    assert!(core::mem::offset_of!(RingAddresses, cq) == 8);
    assert!(core::mem::offset_of!(RingAddresses, sq_doorbell) == 16);
    assert!(core::mem::offset_of!(RingAddresses, cq_doorbell) == 24);
    assert!(FAULT_WORDS <= LINE);
    assert!(BAM_STRIDE <= LINE && BAM_CIDS.is_power_of_two());
};

impl<W: Ticket> Queue<Native, W> {
    /// The queue pair that `desc` describes.
    ///
    /// # Safety
    /// `desc` comes from [`Layout::describe`]; its addresses are valid in this address space, for
    /// reads and writes, as long as the queue or a copy is used: `words` for [`Layout::bytes`]
    /// bytes, aligned to 128, initialised as [`Layout`] says before the first use and written
    /// only through queues since; the rings for `depth` entries, aligned to 16 bytes; the
    /// doorbells for 4 bytes, aligned to 4. Others access them only as an NVMe controller would,
    /// or atomically.
    #[inline(always)]
    pub unsafe fn from_desc(desc: &QueueDesc) -> Self {
        let shape = shape_of(desc);
        let (layout, depth) = (Layout::of(shape), shape.depth());
        let memory = Memory(());
        let words = Words {
            ticket: memory.cell(desc.words + TICKET * 8),
            tail: memory.cell(desc.words + TAIL * 8),
            cq_head: memory.cell(desc.words + CQ_HEAD * 8),
            dead: memory.cell(desc.words + DEAD * 8),
            rung: memory.cell(desc.words + RUNG * 8),
            faults: memory.cells(desc.words + FAULTS * 8, FAULT_WORDS),
            state: memory.cells(desc.words + ARRAYS * 8, depth),
            mark: memory.cells(desc.words + layout.marks() * 8, depth),
            tag: memory.cells(desc.words + layout.tags() * 8, depth),
            sq: memory.cells(desc.rings.sq, depth * 8),
            cq: memory.cells(desc.rings.cq, depth * 2),
            sq_doorbell: memory.cell(desc.rings.sq_doorbell),
            cq_doorbell: memory.cell(desc.rings.cq_doorbell),
        };
        Self::new(words, shape, desc.id)
    }
}

impl<W: Ticket> Locked<Native, W> {
    /// The queue pair that `desc` describes.
    ///
    /// # Safety
    /// As [`Queue::from_desc`].
    #[inline(always)]
    pub(crate) unsafe fn from_desc(desc: &QueueDesc) -> Self {
        // SAFETY: the caller's promise is the same.
        Self(unsafe { Queue::from_desc(desc) })
    }
}

impl<W: Ticket> Bam<Native, W> {
    /// The queue pair that `desc` describes.
    ///
    /// # Safety
    /// As [`Queue::from_desc`], with a description for [`Protocol::Bam`].
    #[inline(always)]
    pub(crate) unsafe fn from_desc(desc: &QueueDesc) -> Self {
        let shape = shape_of(desc);
        let (layout, depth) = (Layout::with(shape, Protocol::Bam), shape.depth());
        let memory = Memory(());
        let array = |number, elements| {
            let words = desc.words + layout.bam_array(number) * 8;
            memory.cells(words, elements * BAM_STRIDE)
        };
        let words = BamWords {
            ticket: memory.cell(desc.words + TICKET * 8),
            cid_ticket: memory.cell(desc.words + CID_TICKET * 8),
            tail: memory.cell(desc.words + TAIL * 8),
            tail_lock: memory.cell(desc.words + TAIL_LOCK * 8),
            sq_head: memory.cell(desc.words + SQ_HEAD * 8),
            cq_head: memory.cell(desc.words + CQ_HEAD * 8),
            cq_lock: memory.cell(desc.words + CQ_LOCK * 8),
            dead: memory.cell(desc.words + DEAD * 8),
            turn: array(0, depth),
            tail_mark: array(1, depth),
            head_mark: array(2, depth),
            place: array(3, depth),
            cid: array(BAM_ARRAY_COUNT, BAM_CIDS * depth),
            sq: memory.cells(desc.rings.sq, depth * 8),
            cq: memory.cells(desc.rings.cq, depth * 2),
            sq_doorbell: memory.cell(desc.rings.sq_doorbell),
            cq_doorbell: memory.cell(desc.rings.cq_doorbell),
        };
        Self::new(words, shape, desc.id)
    }
}

#[inline(always)]
fn shape_of(desc: &QueueDesc) -> Shape {
    Shape {
        log2_depth: desc.log2_depth,
        cap: desc.cap,
        cadence: desc.cadence,
        far: desc.far != 0,
    }
}

/// Addresses that the caller of [`Queue::from_desc`] vouches for; made nowhere else.
#[derive(Clone, Copy)]
struct Memory(());

impl Memory {
    #[inline(always)]
    fn cell<T: Word, S: Scope>(self, address: u64) -> NativeCell<T, S> {
        // SAFETY: the caller of `from_desc` vouches for the word at this address.
        unsafe { NativeCell::new(with_exposed_provenance_mut(address as usize)) }
    }

    #[inline(always)]
    fn cells<T: Word, S: Scope>(self, address: u64, len: u64) -> NativeCells<T, S> {
        // SAFETY: as in `cell`, for `len` words.
        unsafe { NativeCells::new(with_exposed_provenance_mut(address as usize), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_flight_are_named_by_cid_and_tag() {
        let layout = Layout::of(Shape::new(4, u32::MAX).unwrap());
        let mut words = std::vec![0; (layout.bytes() / 8) as usize];
        // Slot 1 in its third lap, in flight; slot 2 has completed its first.
        words[ARRAYS as usize + 1] = 2 * 2 + 1;
        words[layout.tags() as usize + 1] = 77;
        words[ARRAYS as usize + 2] = 2;
        assert!(layout.in_flight(&words).eq([(2 << 2 | 1, 77)]));
        assert_eq!(layout.in_flight(&[]).count(), 0);
    }

    #[test]
    fn words_arrays_and_marks_do_not_overlap() {
        for log2_depth in 1..=12 {
            let shape = Shape::new(1 << log2_depth, u32::MAX).unwrap();
            let layout = Layout::of(shape);
            assert!(ARRAYS + shape.depth() <= layout.marks());
            assert!(layout.marks() + shape.depth() <= layout.tags());
            assert!((layout.tags() + shape.depth()) * 8 <= layout.bytes());
            assert_eq!(layout.mark_bytes(), layout.marks() * 8..layout.tags() * 8);
            assert_eq!(layout.bytes() % (LINE * 8), 0);
            let bam = Layout::with(shape, Protocol::Bam);
            let elements = shape.depth() * BAM_STRIDE;
            for array in 0..BAM_ARRAY_COUNT {
                assert!(bam.bam_array(array) + elements <= bam.bam_array(array + 1));
            }
            let cids = bam.bam_array(BAM_ARRAY_COUNT) + elements * BAM_CIDS;
            assert!(cids * 8 <= bam.bytes());
            assert!(bam.mark_bytes().is_empty());
        }
    }
}
