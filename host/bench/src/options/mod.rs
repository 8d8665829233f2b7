//! The command line of `cargo xtask bench`.
//!
//! A wrong value is one sentence on stderr and exit status 2: values are checked here one by
//! one, then together. What only the machine can tell (is the file there, is there a GPU) is
//! asked later, by whoever opens it, and exits with status 1.

mod check;
mod ssd;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;
use warpstore::{Configuration, MemberNames, Protocol, device};

pub use ssd::{Media, Model, Process, Profile, Ssd};
pub use warpstore_terminal::UsageError;
use warpstore_terminal::{number, power_of_two, seconds, size, within};

/// Largest number of lanes, of all warps together.
const MAX_THREADS: u32 = 1 << 22;

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// Random reads of one block size: commands per second, bandwidth, latency.
    Iops,
    /// Hits and misses in every cache mode, and plain loads: reads per second.
    Cache,
    /// Random writes and additions, flushed and compared word by word.
    Rw,
    /// Many more lanes than lines, every warp with a line held for writing.
    Crowd,
    /// Breadth-first search along the edges' direction.
    Bfs,
    /// Weakly connected components.
    Cc,
}

/// What executes the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    /// Host threads.
    Threads,
    /// A GPU.
    Cuda,
}

/// How an array lies on several SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Each SSD holds every n-th stripe unit.
    Stripe,
    /// Each SSD holds everything.
    Replicate,
}

/// How arrays are cached in GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// Every access is a command of its own.
    None,
    /// Every lane counts itself in and out of the line that it reads.
    Naive,
    /// As BaM does: lanes of a warp that read one line are counted together.
    Bam,
    /// The same, and a lane's last line stays counted until it reads another one.
    #[value(name = "bam+reuse")]
    #[serde(rename = "bam+reuse")]
    BamReuse,
    /// A hit is three loads (table, data, table), without an atomic.
    Optimistic,
}

/// How commands enter a submission queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Queue {
    /// One ticket a warp; the warp at the tail publishes its successors with it.
    Hop,
    /// BaM's: one ticket a thread, marks under a try-lock, every thread finds its own completion.
    Bam,
    /// A lock around each ring, one doorbell a command.
    Lock,
}

/// How kernels ring the doorbells of SSDs that are not emulated in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Doorbells {
    /// In host memory, from where a thread passes on what is right.
    Proxy,
    /// In the doorbells themselves.
    Direct,
}

/// Every option, each checked by itself and against the others.
///
/// Where an option is absent here, its default depends on the runner, the graph or another
/// option, and is chosen by whoever knows that.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "bench",
    bin_name = "cargo xtask bench",
    version,
    long_about = None,
    about = "Run an experiment, verify its result, print it. Sizes take K, M or G (Ki, Mi, Gi): powers of 1024.",
    allow_negative_numbers = true
)]
pub struct Options {
    /// What to run; nothing runs iops, then bfs and cc on the shipped graph
    #[arg(value_enum)]
    pub experiment: Option<Experiment>,

    /// What executes the kernels [default: cuda if there is a GPU and no vfio SSD, else threads]
    #[arg(long, value_enum)]
    pub runner: Option<Runner>,
    /// Lanes that run at a time
    #[arg(long, value_name = "N", value_parser = within(1, MAX_THREADS))]
    pub threads: Option<u32>,
    /// Which GPU, as CUDA numbers them
    #[arg(long, value_name = "N", value_parser = within(0, 255u32))]
    pub gpu: Option<u32>,
    /// Multiprocessors that serve the emulated SSDs
    #[arg(long, value_name = "N", value_parser = within(1, 64u32))]
    pub controller_sms: Option<u32>,

    /// The SSD.
    #[arg(
        long,
        default_value = "model:p5800x",
        help = format!("The SSD: {}; PROFILE is one of {}", ssd::SYNTAX, ssd::profiles())
    )]
    pub ssd: Ssd,
    /// How many emulated SSDs [default: 1]
    #[arg(long, value_name = "N", value_parser = within(1, Configuration::MAX_SSDS))]
    pub ssds: Option<u32>,
    /// Real SSDs that may be written: all that is on them may be lost
    #[arg(long, value_name = "SERIAL", value_delimiter = ',')]
    pub yes_destroy: Vec<String>,
    /// How an array lies on several SSDs
    #[arg(long, value_enum, default_value = "stripe")]
    pub layout: Layout,
    /// Bytes on one SSD before the next one's [default: the line]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub stripe: Option<u64>,
    /// Write over a media file that holds something else
    #[arg(long)]
    pub overwrite: bool,

    /// How commands enter a queue
    #[arg(long, value_enum, default_value = "hop")]
    pub queue: Queue,
    /// I/O queue pairs of each SSD
    #[arg(long, value_name = "N", value_parser = within(1, Configuration::MAX_QUEUES))]
    pub queues: Option<u32>,
    /// How kernels ring the doorbells of SSDs outside this process [default: proxy on a GPU, else direct]
    #[arg(long, value_enum)]
    pub doorbells: Option<Doorbells>,
    /// Entries of each queue
    #[arg(long, value_name = "N", default_value = "1024", value_parser = power_of_two(2, 4096))]
    pub depth: u64,
    /// Longest wait for an SSD, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub timeout: Duration,

    /// Bytes of a cache line
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = power_of_two(512, 65536))]
    pub line: u64,
    /// Bytes of the cache [default: a quarter of the arrays]
    #[arg(long, value_name = "BYTES", value_parser = size, conflicts_with = "cache_lines")]
    pub cache: Option<u64>,
    /// Lines of the cache
    #[arg(long, value_name = "N", value_parser = within(1, Configuration::MAX_CACHE_LINES))]
    pub cache_lines: Option<u64>,
    /// How arrays are cached
    #[arg(long, value_enum, default_value = "optimistic")]
    pub cache_mode: CacheMode,

    /// bfs, cc: a graph, .el, .el.gz, .mtx or a .col with its .dst [default: the shipped e-mail graph]
    #[arg(long, value_name = "FILE")]
    pub graph: Option<PathBuf>,
    /// bfs, cc: the volume that has the graph: file:PATH or vfio:SERIAL, several with commas between
    #[arg(
        long,
        value_name = "MEMBERS",
        requires = "array",
        conflicts_with_all = ["graph", "ssds", "layout", "stripe", "overwrite", "yes_destroy"]
    )]
    pub volume: Option<MemberNames>,
    /// bfs, cc: what the graph is called on the volume
    #[arg(long, value_name = "NAME", requires = "volume")]
    pub array: Option<String>,
    /// bfs: where to start [default: 0]
    #[arg(long, value_name = "VERTEX", value_parser = number)]
    pub source: Option<u64>,

    /// iops: bytes of a command [default: the LBA size; 4096 for vfio and socket]
    #[arg(long, value_name = "BYTES", value_parser = power_of_two(512, 65536))]
    pub block: Option<u64>,
    /// iops: commands of each run; cache: hits of each; rw, crowd: operations in all
    #[arg(long, value_name = "N", value_parser = within(1, 1u64 << 40))]
    pub ops: Option<u64>,
    /// iops: commands in flight at a time
    #[arg(long, value_name = "N", value_parser = within(1, MAX_THREADS))]
    pub in_flight: Option<u32>,
    /// iops: bytes of each SSD that are read; cache: of the array that fits; rw, crowd: of both arrays
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub span: Option<u64>,

    /// bfs, cc, rw, crowd: fail one command in so many, with a status that passes, and compare the counts
    #[arg(long, value_name = "N", value_parser = within(2, 1u64 << 40))]
    pub fail_one_in: Option<u64>,

    /// Where random choices begin
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    pub seed: u64,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the results
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// What a command line asks for.
#[derive(Clone, Debug)]
pub enum Request {
    /// To run something.
    Run(Box<Options>),
    /// To show the help or the version.
    Show(String),
}

/// Reads a command line, the program's name first.
///
/// # Errors
/// One sentence if a word is not understood, a value is wrong, or two do not go together.
pub fn parse(
    arguments: impl IntoIterator<Item: Into<OsString> + Clone>,
) -> Result<Request, UsageError> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    match Options::try_parse_from(arguments) {
        Ok(options) => {
            options.check()?;
            Ok(Request::Run(Box::new(options)))
        }
        Err(error) if matches!(error.kind(), DisplayHelp | DisplayVersion) => {
            Ok(Request::Show(error.to_string()))
        }
        Err(error) => Err(UsageError::from(error)),
    }
}

impl Queue {
    /// The queues' protocol of that name.
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Hop => Protocol::Hop,
            Self::Bam => Protocol::Bam,
            Self::Lock => Protocol::Lock,
        }
    }
}

impl CacheMode {
    /// The store's mode of that name.
    pub fn of_store(self) -> device::CacheMode {
        match self {
            Self::None => device::CacheMode::None,
            Self::Naive => device::CacheMode::Naive,
            Self::Bam => device::CacheMode::Bam,
            Self::BamReuse => device::CacheMode::BamReuse,
            Self::Optimistic => device::CacheMode::Optimistic,
        }
    }
}

impl Options {
    /// Bytes on one SSD before the next one's.
    pub fn stripe(&self) -> u64 {
        self.stripe.unwrap_or(self.line)
    }

    /// Bytes of a command of `iops`.
    pub fn block(&self) -> u64 {
        self.block
            .unwrap_or(u64::from(self.ssd.lba().unwrap_or(4096)))
    }

    /// Number of SSDs.
    pub fn ssds(&self) -> u32 {
        match &self.ssd {
            Ssd::Model(_) | Ssd::Process(_) => self.ssds.unwrap_or(1),
            Ssd::Vfio(ssds) => ssds.len() as u32,
            Ssd::Socket(paths) => paths.len() as u32,
        }
    }

    /// Lines of the cache, if the command line says so in lines or bytes.
    pub fn cache_lines(&self) -> Option<u64> {
        self.cache_lines
            .or(self.cache.map(|bytes| bytes / self.line))
    }
}

/// The name of an option's value, as it is typed.
pub(crate) fn name_of(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |name| name.get_name().to_owned())
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(*self))
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(*self))
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(*self))
    }
}

#[cfg(test)]
mod tests;
