//! What a session is made of, as plain data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nvme_model::{Fault, Faults, MediaFile, Profile, Rule};
use warpstore_device::parts::nvme_queue::Protocol;
use warpstore_device::{CacheMode, Layout};

use crate::Error;

/// Where kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// On host threads; `lanes` of them are in flight at the same time.
    Threads {
        /// Lanes in flight, at least 1; rounded up to whole warps.
        lanes: u32,
    },
    /// On this GPU.
    Cuda {
        /// Number of the GPU, as the driver counts.
        gpu: u32,
        /// Multiprocessors that serve the emulated SSDs.
        controller_sms: u32,
    },
}

/// What the blocks of an emulated SSD are kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Nothing: commands complete and move no data.
    None,
    /// Memory next to the kernels: the heap, or GPU memory.
    Near,
    /// Pinned host memory, so that a GPU reads over PCIe; the heap for host threads.
    Host,
    /// A file; with several SSDs the name gets `.0`, `.1`, … appended.
    File {
        /// Name of the file.
        path: PathBuf,
        /// Whether a file that is not ours is overwritten.
        overwrite: bool,
    },
    /// Media files that are open, and locked, one for each SSD.
    Files(Vec<Arc<MediaFile>>),
}

/// An emulated SSD.
#[derive(Clone, Debug)]
pub struct SsdConfig {
    /// Timing.
    pub profile: Profile,
    /// Where the blocks are.
    pub medium: Medium,
    /// Bytes of an LBA: 512 or 4096.
    pub lba_bytes: u32,
    /// Capacity. Bytes; arrays leave a rest unused that fills no line, or no stripe unit.
    pub bytes: u64,
    /// What is written is lost in a power cut ([`crate::Session::power_cut`]) unless it was
    /// flushed. Only on host threads.
    pub volatile_write_cache: bool,
    /// What goes wrong.
    pub faults: Faults,
}

/// A real SSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfioSsd {
    /// Its serial number, if `cargo xtask bind` took it from the kernel, or its PCI address.
    pub name: String,
    /// The namespace; none for the only one that it has.
    pub nsid: Option<u32>,
}

/// Real SSDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfioConfig {
    /// As many as the session has, in their order.
    pub ssds: Vec<VfioSsd>,
    /// Serial numbers of those that may be written, by arrays that are put on them and by kernels:
    /// all that is on them may be lost. The others are only read.
    pub destroy: Vec<String>,
}

/// Where the SSDs of a session come from.
#[derive(Clone, Debug)]
pub enum SsdSource {
    /// Emulated in this process, all alike.
    Emulated(SsdConfig),
    /// Real ones that are bound to vfio-pci.
    Vfio(VfioConfig),
    /// Emulated in processes of their own (`driver_vfio::user::Server`), as many as the session has: the
    /// socket of each. Whatever is on them may be lost.
    Sockets(Vec<PathBuf>),
}

/// How kernels ring the doorbells of SSDs that are not emulated in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbells {
    /// In the doorbells themselves.
    Direct,
    /// In host memory, from where a thread passes on what is right ([DB-1]).
    Proxy,
}

impl SsdSource {
    /// What SSDs are like that are emulated in this process; none for others.
    pub fn emulated(&self) -> Option<&SsdConfig> {
        match self {
            Self::Emulated(each) => Some(each),
            Self::Vfio(_) | Self::Sockets(_) => None,
        }
    }
}

/// Block buffers of a session, for kernels that read round the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlocksConfig {
    /// Number of buffers.
    pub count: u32,
    /// Bytes of each: a power of two from an LBA to 65536.
    pub bytes: u32,
}

/// A session's whole configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Where kernels run.
    pub target: Target,
    /// The SSDs.
    pub ssd: SsdSource,
    /// How many there are, 1 to [`Configuration::MAX_SSDS`].
    pub ssds: u32,
    /// How lines lie on them.
    pub layout: Layout,
    /// Stripe unit. Bytes: a multiple of the line.
    pub stripe_bytes: u64,
    /// I/O queue pairs of each SSD, 1 to [`Configuration::MAX_QUEUES`].
    pub queues: u32,
    /// How kernels ring, where the SSDs are not emulated in this process.
    pub doorbells: Doorbells,
    /// Entries of each ring: a power of two, 2 to 4096.
    pub depth: u32,
    /// How commands enter and leave the queues.
    pub protocol: Protocol,
    /// Most commands in flight in one queue, whatever its depth allows. With [`Protocol::Bam`] it is
    /// the number of lanes that limits them.
    pub in_flight: u32,
    /// Cache line. Bytes: a power of two from 512 to 65536, a multiple of the LBA.
    pub line_bytes: u32,
    /// Lines that the cache holds.
    pub cache_lines: u64,
    /// What an access does on its way.
    pub mode: CacheMode,
    /// Order of the optimistic read by a fence, not by the hardware's data dependency. Over real
    /// SSDs it is always so ([HW-1]).
    pub strict: bool,
    /// Block buffers, if the kernels use any.
    pub blocks: Option<BlocksConfig>,
    /// Longest wait of one access.
    pub timeout: Duration,
}

impl Configuration {
    /// Most SSDs.
    pub const MAX_SSDS: u32 = 64;
    /// Most I/O queue pairs of one SSD.
    pub const MAX_QUEUES: u32 = 128;
    /// Most I/O queue pairs of all SSDs together.
    pub const MAX_QUEUES_IN_ALL: u32 = 4096;
    /// Most lines of a cache.
    pub const MAX_CACHE_LINES: u64 = warpstore_device::parts::line_cache::MAX_SLOTS as u64;
    /// Most lanes in flight with a mode that [counts](CacheMode::counts) them.
    pub const MAX_COUNTED_LANES: u32 = warpstore_device::parts::line_cache::MAX_PINS;

    /// Most lanes of a launch. A queue of [`Protocol::Bam`] admits one lane less than it has entries
    /// (`nvme_queue::Bam` says why), and whole warps go to a queue; the others admit any number.
    pub fn admitted_lanes(&self) -> u64 {
        Self::lanes_admitted_by(self.protocol, self.depth, self.queues)
    }

    /// The same, for so many queue pairs an SSD of so many entries.
    pub fn lanes_admitted_by(protocol: Protocol, depth: u32, queues: u32) -> u64 {
        match protocol {
            Protocol::Hop | Protocol::Lock => u64::MAX,
            Protocol::Bam => u64::from(depth.saturating_sub(1) / 32 * 32) * u64::from(queues),
        }
    }

    /// Lanes in flight on host threads. A GPU holds fewer than any bound here.
    fn lanes(&self) -> u32 {
        match self.target {
            Target::Threads { lanes } => lanes,
            Target::Cuda { .. } => 0,
        }
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// [`Error::Configuration`], saying which value is wrong and what it may be.
    pub fn check(&self) -> Result<(), Error> {
        let line = u64::from(self.line_bytes);
        let power = |value: u32, low: u32, high: u32| {
            value.is_power_of_two() && (low..=high).contains(&value)
        };
        let rules = [
            (
                power(self.line_bytes, 512, 65536),
                "line_bytes must be a power of two, 512 to 65536",
            ),
            (
                self.stripe_bytes >= line && self.stripe_bytes.is_multiple_of(line),
                "stripe_bytes must be a multiple of the line",
            ),
            (
                (1..=Self::MAX_SSDS).contains(&self.ssds),
                "there must be an SSD, and at most Configuration::MAX_SSDS",
            ),
            (
                (1..=Self::MAX_QUEUES).contains(&self.queues),
                "each SSD must have a queue pair, and at most Configuration::MAX_QUEUES",
            ),
            (
                self.ssds * self.queues <= Self::MAX_QUEUES_IN_ALL,
                "all SSDs must have at most Configuration::MAX_QUEUES_IN_ALL queue pairs",
            ),
            (
                power(self.depth, 2, 4096),
                "depth must be a power of two, 2 to 4096",
            ),
            (
                self.admitted_lanes() > 0,
                "depth must be at least 64 with Protocol::Bam, whose queues admit depth - 1 lanes each \
                 while a warp has 32",
            ),
            (
                self.in_flight >= 1,
                "at least one command must be in flight",
            ),
            (
                self.cache_lines <= Self::MAX_CACHE_LINES,
                "the cache must have at most Configuration::MAX_CACHE_LINES lines",
            ),
            (
                !self.mode.counts() || self.lanes() <= Self::MAX_COUNTED_LANES,
                "a mode that counts lanes takes at most Configuration::MAX_COUNTED_LANES of them",
            ),
            (
                self.blocks
                    .is_none_or(|blocks| blocks.count >= 1 && power(blocks.bytes, 512, 65536)),
                "block buffers must be a power of two of bytes, from an LBA to 65536",
            ),
        ];
        first_broken(&rules)?;
        match &self.ssd {
            SsdSource::Emulated(each) => {
                self.check_lba(each.lba_bytes)?;
                self.check_emulated(each)
            }
            SsdSource::Vfio(vfio) => self.check_vfio(vfio),
            SsdSource::Sockets(sockets) => first_broken(&[(
                sockets.len() == self.ssds as usize,
                "as many sockets must be named as the session has SSDs",
            )]),
        }
    }

    fn check_emulated(&self, each: &SsdConfig) -> Result<(), Error> {
        let late = |rule: &Rule| matches!(rule.fault, Fault::Late(_));
        let is_late = each.faults.rules.iter().any(late);
        let files = match &each.medium {
            Medium::Files(files) => files.len(),
            _ => self.ssds as usize,
        };
        first_broken(&[
            (
                files == self.ssds as usize,
                "as many media files must be named as the session has SSDs",
            ),
            (
                matches!(each.lba_bytes, 512 | 4096),
                "lba_bytes must be 512 or 4096",
            ),
            (
                !each.volatile_write_cache || matches!(self.target, Target::Threads { .. }),
                "only SSDs that host threads serve have a volatile write cache",
            ),
            (
                !is_late || matches!(self.target, Target::Threads { .. }),
                "only SSDs that host threads serve carry commands out late (Fault::Late)",
            ),
        ])
    }

    fn check_vfio(&self, vfio: &VfioConfig) -> Result<(), Error> {
        first_broken(&[
            (
                matches!(self.target, Target::Threads { .. }) || self.doorbells == Doorbells::Proxy,
                "a GPU cannot reach the doorbells of real SSDs yet: use Doorbells::Proxy",
            ),
            (
                vfio.ssds.len() == self.ssds as usize,
                "as many real SSDs must be named as the session has",
            ),
        ])
    }

    /// Checks what depends on the LBA size, which real SSDs tell once they are open.
    pub(crate) fn check_lba(&self, lba_bytes: u32) -> Result<(), Error> {
        let too_small = |what: &str, bytes: u32| {
            Err(Error::Configuration(format!(
                "{what} of {bytes} bytes must hold at least one LBA, {lba_bytes} bytes"
            )))
        };
        match self.blocks {
            _ if self.line_bytes < lba_bytes => too_small("a line", self.line_bytes),
            Some(blocks) if blocks.bytes < lba_bytes => too_small("a block buffer", blocks.bytes),
            _ => Ok(()),
        }
    }
}

/// The first rule that does not hold, as an error.
fn first_broken(rules: &[(bool, &str)]) -> Result<(), Error> {
    match rules.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, rule)) => Err(Error::Configuration((*rule).to_owned())),
    }
}
