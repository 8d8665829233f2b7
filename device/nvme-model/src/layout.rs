//! The service image: everything the I/O service reads and writes besides rings, buffers and
//! media, as 64-bit words at fixed offsets.
//!
//! ```text
//! header | namespaces | instance clocks | DMA ranges | fault rules | queue records | pending rings | late commands
//! ```
//!
//! An image holds no address inside itself, so a copy of its bytes works at another address:
//! that is how a controller moves to the GPU. The CPU's controller writes header, namespaces,
//! ranges and the first half of the records; the one warp that serves a queue writes the second
//! half of its record and its pending ring.

/// Words of the header.
pub mod header {
    /// Number of queue records.
    pub const QUEUES: u64 = 0;
    /// Bytes of a memory page (CC.MPS).
    pub const PAGE: u64 = 1;
    /// Largest transfer in bytes (MDTS).
    pub const MAX_TRANSFER: u64 = 2;
    /// Number of namespaces.
    pub const NAMESPACES: u64 = 3;
    /// Address of the media; 0 without media. A pair with [`MEDIA_BYTES`].
    pub const MEDIA: u64 = 4;
    /// Bytes of the media; 0 without media.
    pub const MEDIA_BYTES: u64 = 5;
    /// Address of the mapped file, as long as the media, that Flush has to write back; 0 if
    /// there is none.
    pub const FILE: u64 = 6;
    /// DMA ranges in use.
    pub const RANGES: u64 = 7;
    /// Entries of each pending ring, minus one (a power of two minus one).
    pub const PENDING_MASK: u64 = 8;
    /// Warps that serve the image now.
    pub const SERVING: u64 = 9;
    /// How the I/O queues are served: bits of [`super::mode`].
    pub const MODE: u64 = 10;
    /// Address of the two link clocks (reads, writes); 0 without a link term.
    pub const LINK_ADDRESS: u64 = 11;
    /// Link time of one payload byte, in 2^-20 ns.
    pub const LINK_PER_BYTE: u64 = 12;
    /// Minimum latency in ns: reads, then writes.
    pub const MIN_LATENCY: u64 = 14;
    /// Occupation of an instance in ns: read 512 B, read 4 KiB, write 512 B, write 4 KiB.
    pub const OCCUPATION: u64 = 16;
    /// Address of the host's `WriteCache`; 0 without a volatile write cache.
    pub const WRITE_CACHE: u64 = 20;
    /// Number of fault rules.
    pub const FAULTS: u64 = 21;
    /// Seed of what they leave to chance.
    pub const FAULT_SEED: u64 = 22;
    /// First word of the late commands; 0 if no rule makes any.
    pub const LATE: u64 = 23;
}

/// Bits of the header's mode.
pub mod mode {
    /// Commands take modelled time.
    pub const TIMED: u64 = 1;
    /// The controller is gone, by removal or a power cut; until its power is on again nothing is
    /// served.
    pub const GONE: u64 = 2;
    /// The controller has failed (CSTS.CFS); until it is reset nothing is served.
    pub const FATAL: u64 = 4;
    /// Number of bits.
    pub const BITS: u32 = 3;
}

/// Words of a namespace entry.
pub mod namespace {
    /// First byte in the media.
    pub const BASE: u64 = 0;
    /// Size in LBAs.
    pub const LBAS: u64 = 1;
    /// log2 of the LBA size.
    pub const SHIFT: u64 = 2;
    /// Words of an entry.
    pub const WORDS: u64 = 4;
}

/// Words of a DMA range.
pub mod dma_range {
    /// First IOVA. A pair with the IOVA after the last one, both 0 in an entry that is free.
    pub const START: u64 = 0;
    /// What an IOVA of the range has to be added to make the address of its byte, modulo 2^64.
    pub const OFFSET: u64 = 2;
    /// Words of an entry.
    pub const WORDS: u64 = 4;
}

/// Words of a queue record.
pub mod record {
    /// Generation that the controller wants; odd while the queue exists. A pair with [`ADOPTED`].
    pub const REQUESTED: u64 = 0;
    /// Generation that the service works on.
    pub const ADOPTED: u64 = 1;
    /// Address of the submission ring.
    pub const SQ: u64 = 2;
    /// Address of the completion ring.
    pub const CQ: u64 = 3;
    /// Address of the SQ tail doorbell.
    pub const SQ_DOORBELL: u64 = 4;
    /// Address of the CQ head doorbell.
    pub const CQ_DOORBELL: u64 = 5;
    /// SQ entries (low half) and CQ entries (high half). A pair with [`SQID`].
    pub const ENTRIES: u64 = 6;
    /// Identifier of the submission queue.
    pub const SQID: u64 = 7;
    /// Two words. Position in the rings: SQ head 0..16, CQ tail 16..32, phase 32. Last valid
    /// doorbells: SQ tail (low half), CQ head (high half).
    pub const POSITION: u64 = 16;
    /// Pending ring: head (low half), tail (high half), both free-running.
    pub const PENDING: u64 = 18;
    /// Last invalid doorbells, in the same halves; 0 where the value was valid.
    pub const REFUSED: u64 = 19;
    /// First of the counters, in the order of `crate::service::Counter`.
    pub const COUNTERS: u64 = 24;
    /// Words of a record: 256 bytes, so that no two warps write one cache line.
    pub const WORDS: u64 = 32;
}

/// Words of a fault rule. The pairs are read together.
pub mod fault {
    /// A value of [`super::manner`] (bits 0..8), kinds of commands (8..11), status (16..31),
    /// submission queue or 0 for any (32..48). A pair with [`PLACE`].
    pub const WHAT: u64 = 0;
    /// Hits only the so-manieth command of its queue, from 1; 0: any.
    pub const PLACE: u64 = 1;
    /// Hits if a random word is at most this. A pair with [`LIMIT`].
    pub const CHANCE: u64 = 2;
    /// Hits so often at most; all ones: always.
    pub const LIMIT: u64 = 3;
    /// First LBA that a command must touch. A pair with [`LAST_LBA`].
    pub const FIRST_LBA: u64 = 4;
    /// Last such LBA.
    pub const LAST_LBA: u64 = 5;
    /// Time that a completion comes late, in ns.
    pub const DELAY: u64 = 6;
    /// How often it has hit; with a limit, how often it would have.
    pub const HITS: u64 = 7;
    /// Words of a rule.
    pub const WORDS: u64 = 8;
    /// It hits reads.
    pub const READS: u64 = 1;
    /// It hits writes.
    pub const WRITES: u64 = 2;
    /// It hits flushes.
    pub const FLUSHES: u64 = 4;
}

/// What a fault rule does to a command.
pub mod manner {
    /// Fails it with a status.
    pub const STATUS: u64 = 1;
    /// Posts no completion.
    pub const DROP: u64 = 2;
    /// Posts the completion late.
    pub const DELAY: u64 = 3;
    /// Posts the completion twice.
    pub const DUPLICATE: u64 = 4;
    /// Posts one with CID FFFFh first.
    pub const UNKNOWN_CID: u64 = 5;
    /// Posts one with the CID of a lap ago first.
    pub const STALE_CID: u64 = 6;
    /// Posts the completion with the other phase.
    pub const WRONG_PHASE: u64 = 7;
    /// Stops the controller: CSTS.CFS.
    pub const FATAL: u64 = 8;
    /// Removes the controller.
    pub const REMOVAL: u64 = 9;
    /// Carries it out late.
    pub const LATE: u64 = 10;
}

/// Most namespaces of a controller.
pub const MAX_NAMESPACES: u64 = 16;
/// Most fault rules of a controller.
pub const MAX_FAULTS: u64 = 16;
/// Most DMA ranges that can be mapped at once.
pub const MAX_RANGES: u64 = 256;
/// Instances (independent units) of the timing model.
pub const INSTANCES: u64 = 8;

const NAMESPACE_TABLE: u64 = 32;
const CLOCKS: u64 = NAMESPACE_TABLE + MAX_NAMESPACES * namespace::WORDS;
// A clock a 32-byte sector.
const CLOCK_WORDS: u64 = 4;
const RANGE_TABLE: u64 = CLOCKS + INSTANCES * CLOCK_WORDS;
const FAULT_TABLE: u64 = RANGE_TABLE + dma_range::WORDS * MAX_RANGES;
const RECORDS: u64 = FAULT_TABLE + MAX_FAULTS * fault::WORDS;

const _: () = assert!(RECORDS.is_multiple_of(16) && RANGE_TABLE.is_multiple_of(2));

/// First word of the entry of `nsid`, which is at least 1.
#[inline(always)]
pub const fn namespace_entry(nsid: u64) -> u64 {
    NAMESPACE_TABLE + (nsid - 1) * namespace::WORDS
}

/// The clock of an instance.
#[inline(always)]
pub const fn clock(instance: u64) -> u64 {
    CLOCKS + instance * CLOCK_WORDS
}

/// First word of DMA range `index`.
#[inline(always)]
pub const fn range(index: u64) -> u64 {
    RANGE_TABLE + index * dma_range::WORDS
}

/// First word of fault rule `index`.
#[inline(always)]
pub const fn fault_rule(index: u64) -> u64 {
    FAULT_TABLE + index * fault::WORDS
}

/// First word of the record of queue pair `queue`.
#[inline(always)]
pub const fn record_of(queue: u32) -> u64 {
    RECORDS + queue as u64 * record::WORDS
}

/// First word of pending entry `slot` of `queue`: due time, then what to post.
#[inline(always)]
pub const fn pending(queues: u64, entries: u64, queue: u64, slot: u64) -> u64 {
    RECORDS + queues * record::WORDS + (queue * entries + slot) * 2
}

/// Words of a late command: what it is decoded to, while it waits.
pub const LATE_WORDS: u64 = 4;

/// First word of the late command whose pending entry begins at word `entry`, in an image whose late
/// commands begin at `late`: there is one for each pending entry.
#[inline(always)]
pub const fn late_command(late: u64, queues: u64, entry: u64) -> u64 {
    late + (entry - record_of(queues as u32)) / 2 * LATE_WORDS
}

/// Words of an image for `queues` queues of at most `entries` (a power of two) entries, without late
/// commands: these begin there.
pub const fn words(queues: u64, entries: u64) -> u64 {
    pending(queues, entries, queues, 0)
}
