//! The store: SSDs with their queues, one cache, and how a line finds its SSD.
#![allow(unsafe_code, reason = "a store is plain data at a raw address")]
// UNSAFETY: the description and the queue descriptions behind it are written by the host before
// a kernel starts and stay unchanged while kernels run (`Store::from_raw`), so shared references
// to them are sound; all memory that changes is reached through cells.

use core::num::NonZeroU32;

use line_cache::LineTable;
use nvme_queue::{AnyQueue, Patience, Protocol, QueueDesc};
use nvme_wire::Sqe;
use warpstore_simt::{
    Device, Native, NativeBytes, NativeCell, NativeCells, Platform, System, thread,
};

use crate::errors::ErrorRing;
use crate::plan::WHOLE_LINE;
use crate::pool::Pool;
use crate::stripe::{Place, StripeMap};

/// What an access does on its way to the SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CacheMode {
    /// Nothing is kept: each access of each lane is a command of its own, for the LBA that it needs.
    /// Only lanes that hold a line ([`Array::line`](crate::Array::line)) together share one.
    None = 0,
    /// Optimistic hits, coalesced misses (the default).
    Optimistic = 1,
    /// A baseline: each lane acts for itself. For kernels that read by [`Naive`](crate::counted::Naive).
    Naive = 2,
    /// A baseline: coalesced misses, for kernels that read by [`Bam`](crate::counted::Bam).
    Bam = 3,
    /// A baseline: the same, for kernels that read by [`BamReuse`](crate::counted::BamReuse).
    BamReuse = 4,
}

impl CacheMode {
    /// Whether hits pin lines for lanes by the lane, in a count that ends at
    /// [`MAX_PINS`](line_cache::MAX_PINS).
    pub const fn counts(self) -> bool {
        matches!(self, Self::Naive | Self::Bam | Self::BamReuse)
    }
}

/// One SSD of a store.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SsdDesc {
    /// First LBA of the store on the namespace.
    pub first_lba: u64,
    /// Namespace.
    pub nsid: u32,
    /// log2 of the bytes of an LBA.
    pub lba_shift: u32,
}

/// Everything a kernel needs, as plain data that the host writes before the first launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StoreDesc {
    /// Address of `map.ssds × queues_per_ssd` queue descriptions.
    pub queues: u64,
    /// Address of `map.ssds` SSD descriptions.
    pub ssd_table: u64,
    /// How lines lie on the SSDs.
    pub map: StripeMap,
    /// Queue pairs of each SSD.
    pub queues_per_ssd: NonZeroU32,
    /// How commands enter the queues, as their descriptions say too.
    pub protocol: Protocol,
    /// What an access does on its way.
    pub mode: CacheMode,
    /// The line table.
    pub table: LineTable<Native>,
    /// The cache's slots. Where they are staged, their IOVAs are those of the staging pieces.
    pub slots: Pool,
    /// A staging piece for each slot, where SSDs do not reach the slots themselves (`staging.rs`); of
    /// no bytes where they do.
    pub staging: NativeBytes<System>,
    /// Buffers for accesses that go round the cache.
    pub bounce: Pool,
    /// One word a bounce buffer; see `bounce.rs`.
    pub bounce_words: NativeCells<u64, Device>,
    /// Buffers for whole-block transfers ([`Blocks`](crate::Blocks)); may be empty.
    pub blocks: Pool,
    /// One word a block buffer: result of its last command.
    pub block_words: NativeCells<u64, Device>,
    /// Nonzero when kernels shall stop.
    pub abort: NativeCell<u32, System>,
    /// Where failed commands are noted for the host.
    pub errors: ErrorRing,
    /// Longest wait of one access. Nanoseconds.
    pub timeout_ns: u64,
}

/// Which way bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Transfer {
    /// From the SSD.
    Read,
    /// To the SSD.
    Write,
}

impl Transfer {
    #[inline(always)]
    fn command(self, nsid: u32, slba: u64, nlb_z: u16, prp1: u64, prp2: u64) -> Sqe {
        match self {
            Self::Read => Sqe::read(nsid, slba, nlb_z, prp1, prp2),
            Self::Write => Sqe::write(nsid, slba, nlb_z, prp1, prp2),
        }
    }
}

/// Handle to a store.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Store(*const StoreDesc);

// SAFETY: the handle points to immutable plain data; see `from_raw`.
unsafe impl Send for Store {}
// SAFETY: as for Send.
unsafe impl Sync for Store {}

impl Store {
    /// Takes the description at `address`.
    ///
    /// # Safety
    /// The description is readable there by the side that runs the kernel, everything it names is
    /// what its fields' docs say, and none of it changes (cells excepted) while a kernel that
    /// holds the handle runs.
    pub const unsafe fn from_raw(address: u64) -> Self {
        Self(address as *const StoreDesc)
    }

    /// Address and bytes of the description, for the host.
    pub(crate) fn place(self) -> (u64, u64) {
        (self.0 as u64, size_of::<StoreDesc>() as u64)
    }

    /// The description, for as long as the kernel runs that got the handle.
    #[inline(always)]
    pub(crate) fn desc<'kernel>(self) -> &'kernel StoreDesc {
        // SAFETY: `from_raw`'s caller vouched for the address and that nobody writes there.
        unsafe { &*self.0 }
    }

    /// Whether lines are kept at all.
    #[inline(always)]
    pub(crate) fn caches(self) -> bool {
        self.desc().mode != CacheMode::None
    }

    /// Whether lanes of a warp that miss one line share the work for it.
    #[inline(always)]
    pub(crate) fn coalesces(self) -> bool {
        !matches!(self.desc().mode, CacheMode::None | CacheMode::Naive)
    }

    /// Number of queue pairs of all SSDs.
    #[inline(always)]
    fn queues(self) -> NonZeroU32 {
        let desc = self.desc();
        desc.map.ssds.saturating_mul(desc.queues_per_ssd)
    }

    /// Queue `index` (SSD × queues per SSD + queue); beyond the last, the first.
    #[inline(always)]
    pub(crate) fn queue<'kernel>(self, index: u32) -> AnyQueue<'kernel> {
        let desc = self.desc();
        let index = if index < self.queues().get() {
            index
        } else {
            0
        };
        let queue = (desc.queues as *const QueueDesc).wrapping_add(index as usize);
        // SAFETY: the index is below the length of the table, which is immutable.
        let queue = unsafe { &*queue };
        // SAFETY: the host built the description from live rings and words.
        unsafe { AnyQueue::from_desc(queue) }
    }

    #[inline(always)]
    fn ssd<'kernel>(self, index: u32) -> &'kernel SsdDesc {
        let desc = self.desc();
        let index = if index < desc.map.ssds.get() {
            index
        } else {
            0
        };
        let ssd = (desc.ssd_table as *const SsdDesc).wrapping_add(index as usize);
        // SAFETY: the index is below the length of the table, which is immutable.
        unsafe { &*ssd }
    }

    /// Whether the bytes of slots go through staging pieces.
    #[inline(always)]
    pub(crate) fn is_staged(self) -> bool {
        !self.desc().staging.is_empty()
    }

    /// The queue of `ssd` that this warp submits to: spread by warp, so that a warp's commands
    /// share one ticket, one doorbell and one completion ring.
    #[inline(always)]
    pub(crate) fn home_queue(self, ssd: u32) -> u32 {
        let queues = self.desc().queues_per_ssd;
        ssd * queues.get() + warp_index() % queues
    }

    /// A queue of `ssd` that is alive, if there is one: this warp's, else the first. BaM's protocol
    /// admits no more lanes to a queue than those whose own it is ([BQ-7]): there it is this warp's.
    #[inline(always)]
    pub(crate) fn living_queue(self, ssd: u32) -> u32 {
        let home = self.home_queue(ssd);
        let queues = match self.desc().protocol {
            Protocol::Bam => 0,
            _ => self.desc().queues_per_ssd.get(),
        };
        let mut next = 0;
        while next < queues && self.queue(home).is_dead() {
            let other = ssd * queues + next;
            if !self.queue(other).is_dead() {
                return other;
            }
            next += 1;
        }
        home
    }

    /// Which lanes submit together: those with the same number. One for each queue, or, where every
    /// lane acts for itself, one for all: a lane then waits for no other lane's SSD.
    #[inline(always)]
    pub(crate) fn company(self, queue: u32) -> u32 {
        if self.desc().protocol.is_per_lane() {
            0
        } else {
            queue
        }
    }

    /// A queue of any SSD, another one each `turn`: completions that nobody waits for in their
    /// own queue are found this way.
    #[inline(always)]
    pub(crate) fn any_queue(self, turn: u32) -> u32 {
        warp_index().wrapping_add(turn) % self.queues()
    }

    /// Where line `line` of the store lies, for this warp.
    #[inline(always)]
    pub(crate) fn route(self, line: u64) -> Place {
        self.desc().map.place(line, warp_index())
    }

    /// The command that moves a whole line between its place and piece `index` of `pool`.
    #[inline(always)]
    pub(crate) fn line(self, transfer: Transfer, route: Place, pool: &Pool, index: u64) -> Sqe {
        let ssd = self.ssd(route.ssd);
        let shift = pool.shift - ssd.lba_shift;
        let (prp1, prp2) = pool.prps(index);
        let slba = ssd.first_lba + (route.line << shift);
        transfer.command(ssd.nsid, slba, ((1u32 << shift) - 1) as u16, prp1, prp2)
    }

    /// The command that moves the LBA of a line that holds its byte `part`, or all of it if that is
    /// [`WHOLE_LINE`], between its place and the same place of bounce buffer `buffer`.
    #[inline(always)]
    pub(crate) fn beside(self, transfer: Transfer, route: Place, buffer: u64, part: u64) -> Sqe {
        let pool = &self.desc().bounce;
        if part == WHOLE_LINE {
            return self.line(transfer, route, pool, buffer);
        }
        let ssd = self.ssd(route.ssd);
        let lba = part >> ssd.lba_shift;
        let prp1 = pool.iova + (buffer << pool.shift) + (lba << ssd.lba_shift);
        let slba = ssd.first_lba + (route.line << (pool.shift - ssd.lba_shift)) + lba;
        transfer.command(ssd.nsid, slba, 0, prp1, 0)
    }

    /// The command that reads the piece-sized block at byte `block << pool.shift` of an SSD into
    /// piece `index` of `pool`.
    #[inline(always)]
    pub(crate) fn read_block(self, ssd: u32, block: u64, pool: &Pool, index: u64) -> Sqe {
        self.line(Transfer::Read, Place { ssd, line: block }, pool, index)
    }

    /// The command that makes what was written to an SSD durable (NVM Command Set 3.2.1, Flush).
    #[inline(always)]
    pub(crate) fn flush_ssd(self, ssd: u32) -> Sqe {
        Sqe::flush(self.ssd(ssd).nsid)
    }

    /// The bound of a wait that begins now.
    #[inline(always)]
    pub(crate) fn patience(self) -> Patience<Native> {
        self.patience_until(Native::now_ns().saturating_add(self.desc().timeout_ns))
    }

    /// The bound of a submission that begins now, of an access that ends at `deadline_ns`. It has
    /// some time even if an earlier one, to another SSD that is stuck, took all of that: else
    /// its queue would be given up for the other's fault.
    #[inline(always)]
    pub(crate) fn patience_to_submit(self, deadline_ns: u64) -> Patience<Native> {
        let some = self.desc().timeout_ns / 4;
        let least = Native::now_ns().saturating_add(some);
        self.patience_until(if deadline_ns > least {
            deadline_ns
        } else {
            least
        })
    }

    /// The bound of a wait that ends at `deadline_ns`.
    #[inline(always)]
    pub(crate) fn patience_until(self, deadline_ns: u64) -> Patience<Native> {
        Patience {
            deadline_ns,
            abort: self.desc().abort,
        }
    }
}

/// Index of this warp in the grid.
#[inline(always)]
pub(crate) fn warp_index() -> u32 {
    let warps_per_block = thread::block_dim_x().div_ceil(32);
    thread::block_idx_x() * warps_per_block + thread::thread_idx_x() / 32
}
