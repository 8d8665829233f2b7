//! The memory of a store: rings, line table, slots, bounce buffers, and their description.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use driver_vfio::{DmaRegion, Iova, QueuePair, QueuePairRequest, Ring};
use warpstore_device::parts::line_cache::{LineTable, ReadOrder};
use warpstore_device::parts::nvme_queue::{self, QueueDesc, Shape};
use warpstore_device::parts::simt::{Device, Native, NativeBytes, NativeCells, System};
use warpstore_device::{
    ErrorRecord, ErrorRing, LIST_BYTES, PAGE_BYTES, PendingCommand, Pool, SsdDesc, StoreDesc,
    StripeMap,
};

use crate::Error;
use crate::brakes::{Brakes, words_stride};
use crate::buffer::{Buffer, Place};
use crate::config::Configuration;
use crate::ringing::Ringing;
use crate::runner::Runner;
use crate::ssd::Ssd;

/// Failed commands that are kept for the host, beside their number.
const ERROR_RECORDS: u64 = 64;
/// Fewest bounce buffers.
const BOUNCE_COUNT: u64 = 64;
/// Most bytes of them: where lanes outnumber the cache's lines, these are what is in flight.
const BOUNCE_BYTES: u64 = 256 << 20;

/// Everything that a [`StoreDesc`] names.
pub(crate) struct StoreMemory {
    pub(crate) desc: StoreDesc,
    pub(crate) lines: u64,
    /// Where it begins on each SSD. Bytes.
    pub(crate) start: u64,
    description: Buffer,
    errors: Buffer,
    /// What ends waits.
    pub(crate) brakes: Brakes,
    /// What lets kernels ring; it ends before the SSDs do.
    pub(crate) ringing: Ringing,
    _owned: Vec<Buffer>,
}

/// The part of the SSDs that a store has.
pub(crate) struct Extent {
    /// Where it begins on each of them. Bytes: a multiple of every line.
    pub(crate) start: u64,
    /// Bytes of all together.
    pub(crate) bytes: u64,
}

/// Allocates and maps; collects what has to live as long as the store.
struct Builder<'a> {
    runner: &'a Runner,
    config: &'a Configuration,
    ssds: &'a [Ssd],
    owned: Vec<Buffer>,
}

impl StoreMemory {
    /// Creates the I/O queue pairs of `ssds` and everything else that kernels need.
    pub(crate) fn build(
        runner: &Runner,
        config: &Configuration,
        ssds: &[Ssd],
        lanes: u64,
        extent: Option<Extent>,
    ) -> Result<Self, Error> {
        let shape = Shape::new(config.depth, config.in_flight)
            .map_err(|error| Error::Configuration(error.to_string()))?;
        let outside = config.ssd.emulated().is_none();
        let shape = if outside { shape.far() } else { shape };
        let mut builder = Builder {
            runner,
            config,
            ssds,
            owned: Vec::new(),
        };
        let queues = builder.create_queues(shape)?;
        let map = StripeMap {
            unit_lines: nonzero(config.stripe_bytes / u64::from(config.line_bytes))?,
            ssds: NonZeroU32::new(config.ssds).ok_or_else(no_ssd)?,
            layout: config.layout,
        };
        let line_bytes = u64::from(config.line_bytes);
        let (start, lines) = match extent {
            None => (0, map.capacity(ssds_bytes(builder.ssds) / line_bytes)),
            Some(extent) => (extent.start, extent.bytes / line_bytes),
        };
        let ssd_table = builder.ssd_table(start)?;
        let table = builder.table(config, lines)?;
        let (slots, staging) = builder.slots()?;
        // For each lane one of either share, so that no lane waits for another's, within bounds.
        let most = BOUNCE_BYTES / u64::from(config.line_bytes);
        let bounce_count = lanes.saturating_mul(2).clamp(BOUNCE_COUNT, most);
        let bounce = builder.pool(bounce_count, config.line_bytes)?;
        let blocks = match config.blocks {
            Some(blocks) => builder.pool(u64::from(blocks.count), blocks.bytes)?,
            None => builder.pool(0, config.line_bytes)?,
        };
        let errors = builder.near(8 + ERROR_RECORDS * 16)?;
        // Next to the kernels, since every waiting turn reads it: over PCIe that would be traffic.
        let abort = Arc::new(builder.near(64)?);
        let desc = StoreDesc {
            queues: queues.table,
            ssd_table,
            map,
            queues_per_ssd: NonZeroU32::new(config.queues).ok_or_else(no_ssd)?,
            protocol: config.protocol,
            mode: config.mode,
            table,
            slots,
            staging,
            bounce,
            bounce_words: builder.words(bounce_count)?,
            block_words: builder.words(u64::from(blocks.count))?,
            blocks,
            abort: abort.cell(0),
            errors: ErrorRing {
                count: errors.cell(0),
                records: errors.cells(8, ERROR_RECORDS * 2),
            },
            timeout_ns: u64::try_from(config.timeout.as_nanos()).unwrap_or(u64::MAX),
        };
        let description = builder.near(size_of::<StoreDesc>() as u64)?;
        description.write_plain(0, &desc)?;
        Ok(Self {
            desc,
            lines,
            start,
            description,
            errors,
            brakes: Brakes {
                abort,
                queue_words: queues.words,
                layout: queues.layout,
            },
            ringing: queues.ringing,
            _owned: builder.owned,
        })
    }

    /// Address of the description.
    pub(crate) fn address(&self) -> u64 {
        self.description.address()
    }

    /// Number of failed commands so far, and the first of them.
    pub(crate) fn errors(&self) -> Result<(u64, Vec<ErrorRecord>), Error> {
        let mut count = [0u64];
        self.errors.read(0, &mut count)?;
        let kept = count[0].min(ERROR_RECORDS) as usize;
        let mut words = vec![[0u64; 2]; kept];
        self.errors.read(8, &mut words)?;
        Ok((
            count[0],
            words.into_iter().map(ErrorRecord::from_words).collect(),
        ))
    }
}

impl StoreMemory {
    /// The commands of queue `queue` (SSD × queues per SSD + queue) that have not been completed.
    pub(crate) fn in_flight(&self, queue: u32) -> Result<Vec<PendingCommand>, Error> {
        let queues = self.desc.queues_per_ssd.get();
        let Brakes {
            queue_words,
            layout,
            ..
        } = &self.brakes;
        let Some(words) = queue_words.get((queue / queues) as usize) else {
            return Ok(Vec::new());
        };
        let stride = words_stride(*layout) as usize;
        let mut copy = vec![0u64; stride / 8];
        words.read((queue % queues) as usize * stride, &mut copy)?;
        let pending = layout.in_flight(&copy);
        Ok(pending
            .map(|(cid, tag)| PendingCommand { queue, cid, tag })
            .collect())
    }
}

fn no_ssd() -> Error {
    Error::Configuration("a store needs an SSD and a queue pair".to_owned())
}

fn nonzero(value: u64) -> Result<NonZeroU64, Error> {
    NonZeroU64::new(value)
        .ok_or_else(|| Error::Configuration("the stripe unit holds no line".to_owned()))
}

/// Bytes of the smallest SSD: striping needs equal members.
fn ssds_bytes(ssds: &[Ssd]) -> u64 {
    ssds.iter().map(|ssd| ssd.bytes).min().unwrap_or(0)
}

impl Builder<'_> {
    /// Creates the I/O queue pairs that kernels use, on every SSD.
    fn create_queues(&mut self, shape: Shape) -> Result<Queues, Error> {
        let config = self.config;
        let sq_bytes = QueuePairRequest::sq_bytes(config.depth).next_multiple_of(PAGE_BYTES);
        let cq_bytes = QueuePairRequest::cq_bytes(config.depth).next_multiple_of(PAGE_BYTES);
        let layout = nvme_queue::Layout::with(shape, config.protocol);
        let words_stride = words_stride(layout);
        let queues = u64::from(config.queues);
        let mut pairs: Vec<QueuePair> = Vec::new();
        let mut all_words = Vec::new();
        for ssd in self.ssds {
            let rings = self.reachable(queues * (sq_bytes + cq_bytes))?;
            let words = self.near(queues * words_stride)?;
            let iova = map_for_all(std::slice::from_ref(ssd), &rings)?;
            let marks = layout.mark_bytes();
            let empty = vec![0xFFu8; (marks.end - marks.start) as usize];
            for queue in 0..queues {
                words.write((queue * words_stride + marks.start) as usize, &empty)?;
                let ring = |offset| Ring {
                    address: rings.address() + offset,
                    iova: iova.plus(offset),
                };
                let first = queue * (sq_bytes + cq_bytes);
                let request = QueuePairRequest {
                    qid: queue as u16 + 1,
                    entries: config.depth,
                    sq: ring(first),
                    cq: ring(first + sq_bytes),
                };
                pairs.push(ssd.driver().controller().create_queue_pair(request)?);
            }
            self.owned.push(rings);
            all_words.push(Arc::new(words));
        }
        let ringing = Ringing::set_up(self.runner, config, &mut pairs)?;
        let private = all_words
            .iter()
            .flat_map(|words| (0..queues).map(move |queue| words.address() + queue * words_stride));
        let describe =
            |(pair, private): (&QueuePair, u64)| layout.describe(pair.qid, private, pair.rings);
        let descs: Vec<QueueDesc> = pairs.iter().zip(private).map(describe).collect();
        let table = self.keep((descs.len() * size_of::<QueueDesc>()) as u64)?;
        table.write(0, &descs)?;
        Ok(Queues {
            table: table.address(),
            words: all_words,
            layout,
            ringing,
        })
    }

    /// Memory next to the kernels that the caller keeps or hands to `owned`.
    fn near(&self, len: u64) -> Result<Buffer, Error> {
        self.runner.allocate(Place::Kernel, len as usize)
    }

    /// Memory next to the kernels that lives as long as the store.
    fn keep(&mut self, len: u64) -> Result<&Buffer, Error> {
        let buffer = self.near(len)?;
        self.owned.push(buffer);
        Ok(&self.owned[self.owned.len() - 1])
    }

    /// `len` zeroed device words.
    fn words(&mut self, len: u64) -> Result<NativeCells<u64, Device>, Error> {
        Ok(self.keep(len * 8)?.cells(0, len))
    }

    fn ssd_table(&mut self, start: u64) -> Result<u64, Error> {
        let ssds = self.ssds;
        let size = size_of::<SsdDesc>();
        let buffer = self.keep((size * ssds.len()) as u64)?;
        for (index, ssd) in ssds.iter().enumerate() {
            let desc = SsdDesc {
                first_lba: start >> ssd.lba_shift,
                nsid: ssd.nsid,
                lba_shift: ssd.lba_shift,
            };
            buffer.write_plain(index * size, &desc)?;
        }
        Ok(buffer.address())
    }

    fn table(&mut self, config: &Configuration, lines: u64) -> Result<LineTable<Native>, Error> {
        let meta = self.words(lines)?;
        let owner = self.words(config.cache_lines)?;
        let hand = self.keep(128)?.cell(0);
        let order = if config.strict || config.ssd.emulated().is_none() {
            ReadOrder::Strict
        } else {
            ReadOrder::Dependency
        };
        Ok(LineTable::new(meta, owner, hand, order, 0))
    }

    /// Memory for kernels and SSDs.
    fn reachable(&self, len: u64) -> Result<Buffer, Error> {
        match self.config.ssd.emulated() {
            Some(_) => self.near(len),
            None => self.runner.allocate(Place::Dma, len as usize),
        }
    }

    /// The cache's slots next to the kernels, and their staging pieces, where SSDs do not reach
    /// there.
    fn slots(&mut self) -> Result<(Pool, NativeBytes<System>), Error> {
        let (count, bytes) = (self.config.cache_lines, self.config.line_bytes);
        let reached = self.pool(count, bytes)?;
        let total = reached.memory.len();
        if self.config.ssd.emulated().is_some() {
            return Ok((reached, self.keep(8)?.bytes(0)));
        }
        let staging = self.owned[self.owned.len() - 1].bytes(total);
        let slots = Pool {
            memory: self.keep(total)?.bytes(total),
            ..reached
        };
        Ok((slots, staging))
    }

    /// `count` pieces of `bytes` bytes, with PRP lists, reachable for every SSD.
    fn pool(&mut self, count: u64, bytes: u32) -> Result<Pool, Error> {
        let total = (count * u64::from(bytes)).max(PAGE_BYTES);
        let buffer = self.reachable(total)?;
        let mut pool = Pool {
            memory: buffer.bytes(total),
            iova: map_for_all(self.ssds, &buffer)?.0,
            lists: 0,
            shift: bytes.ilog2(),
            count: count as u32,
        };
        let entries = pool.list_entries();
        if entries > 0 && count > 0 {
            let lists = self.reachable(count * LIST_BYTES)?;
            let stride = LIST_BYTES / 8;
            let mut words = vec![0u64; (count * stride) as usize];
            for piece in 0..count {
                for entry in 0..entries {
                    words[(piece * stride + entry) as usize] = pool.list_entry(piece, entry);
                }
            }
            lists.write(0, &words)?;
            pool.lists = map_for_all(self.ssds, &lists)?.0;
            self.owned.push(lists);
        }
        self.owned.push(buffer);
        Ok(pool)
    }
}

/// Maps memory for every SSD, at the same IOVA.
fn map_for_all(ssds: &[Ssd], buffer: &Buffer) -> Result<Iova, Error> {
    let region = DmaRegion::from(buffer.dma_cells());
    let mut first = None;
    for ssd in ssds {
        let iova = ssd.map(region)?;
        if *first.get_or_insert(iova) != iova {
            return Err(Error::Configuration(format!(
                "{} reaches the store's memory at another address than the first SSD",
                ssd.backing.name()
            )));
        }
    }
    first.ok_or_else(no_ssd)
}

/// The queue pairs of all SSDs.
struct Queues {
    table: u64,
    words: Vec<Arc<Buffer>>,
    layout: nvme_queue::Layout,
    ringing: Ringing,
}
