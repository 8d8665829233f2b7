//! What an experiment reports: the model, which is also the JSON file's, and its forms.

mod chart;
mod figure;
mod save;
mod table;
pub(crate) mod units;

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::machine::Machine;
use crate::options::{CacheMode, Doorbells, Layout, Queue, Runner};

pub use figure::draw;
pub use save::{SaveError, save, save_json};
pub use table::render;

/// Version of the JSON file's form.
pub const SCHEMA: u32 = 1;

/// One run, of one experiment or of the main job's several.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was run, as it is called on the command line; `main` for no argument.
    pub experiment: String,
    /// What executed the kernels.
    pub runner: Runner,
    /// The SSDs, as the command line would say them.
    pub ssd: String,
    /// Where it ran.
    pub machine: Machine,
    /// Whether every result agrees with a plain CPU implementation.
    pub verified: bool,
    /// What was modelled and not measured on hardware, each in a few words.
    pub modelled: Vec<String>,
    /// How the store was built.
    pub configuration: Configuration,
    /// What came out.
    pub results: Vec<Outcome>,
}

/// How the bytes of lines get from the SSDs to the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The SSDs read and write the memory of the kernels.
    Direct,
    /// Rings and data are in host memory; whoever finishes a command copies its line.
    Staged,
}

/// How the store was built, every default resolved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Configuration {
    /// Number of SSDs.
    pub ssds: u32,
    /// How arrays lie on them.
    pub layout: Layout,
    /// Bytes on one SSD before the next one's.
    pub stripe_bytes: u64,
    /// Bytes of a logical block of emulated SSDs.
    pub lba_bytes: Option<u32>,
    /// How commands enter a queue.
    pub queue: Queue,
    /// I/O queue pairs of each SSD.
    pub queues: u32,
    /// Entries of each queue.
    pub depth: u64,
    /// Most lanes at a time; absent where a GPU was filled.
    pub threads: Option<u32>,
    /// Multiprocessors that serve the emulated SSDs; absent without a GPU.
    pub controller_sms: Option<u32>,
    /// How the bytes of lines get from the SSDs to the kernels.
    pub placement: Placement,
    /// How kernels rang; absent where the SSDs are emulated in this process.
    pub doorbells: Option<Doorbells>,
    /// Threads of the process that is the SSDs; absent where there is none.
    pub serving_threads: Option<u32>,
    /// Bytes of a cache line.
    pub line_bytes: u64,
    /// Lines of the cache; absent where the experiment chose one for each graph.
    pub cache_lines: Option<u64>,
    /// How arrays are cached; absent where each result has its own.
    pub cache_mode: Option<CacheMode>,
    /// Longest wait for an SSD.
    pub timeout_seconds: f64,
    /// Where random choices began.
    pub seed: u64,
}

/// Commands that failed on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// As the SSDs counted them.
    pub injected: u64,
    /// As the submitter counted them.
    pub seen: u64,
}

/// One result, tagged with its experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "experiment", rename_all = "lowercase")]
pub enum Outcome {
    /// Of `iops`.
    Iops(Iops),
    /// Of `cache`.
    Cache(Cache),
    /// Of `rw`.
    Rw(Rw),
    /// Of `crowd`.
    Crowd(Rw),
    /// Of `bfs`.
    Bfs(Bfs),
    /// Of `cc`.
    Cc(Cc),
}

/// Random reads of one block size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Iops {
    /// Commands completed per second.
    pub iops: f64,
    /// Bytes transferred per second.
    pub bandwidth_bytes_per_s: f64,
    /// Bytes of a command.
    pub block_bytes: u64,
    /// Lanes that issued commands.
    pub threads: u32,
    /// Registers of each, on a GPU.
    pub registers: Option<u32>,
    /// I/O queue pairs of each SSD.
    pub queues: u32,
    /// Entries of each queue.
    pub depth: u64,
    /// Commands in flight at a time, at most.
    pub in_flight: u32,
    /// Time from submission to completion.
    pub latency_ns: Latency,
    /// NVMe commands completed.
    pub commands: u64,
    /// Kernel time.
    pub seconds: f64,
    /// Commands per second of every run, ascending; the figures are the middle one's.
    pub runs: Vec<f64>,
    /// The most that could have come out, and why.
    pub limit: Option<Limit>,
}

/// An upper bound on a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Commands per second.
    pub iops: f64,
    /// What sets the bound, in a few words.
    pub by: String,
}

/// Latency percentiles, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "percentiles are named by their number")]
pub struct Latency {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Latency {
    /// The percentiles of recorded nanoseconds.
    pub fn of(recorded: &Histogram<u64>) -> Self {
        let at = |quantile| recorded.value_at_quantile(quantile);
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: recorded.max(),
        }
    }
}

/// Whether what is read is in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// It is.
    Hit,
    /// Most of it is not: the array is twice as large as the cache.
    Miss,
}

/// Which elements the lanes of a warp read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Neighbours.
    Sequential,
    /// Each one of another line.
    Scattered,
}

/// Reads of elements of 4 bytes, in one cache mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cache {
    /// The mode; absent for plain loads from memory.
    pub mode: Option<CacheMode>,
    /// Whether they hit.
    pub access: Access,
    /// Where they go.
    pub pattern: Pattern,
    /// Bytes of the array.
    pub array_bytes: u64,
    /// Lines of the cache.
    pub cache_lines: u64,
    /// Elements read in a run.
    pub operations: u64,
    /// Elements read per second of kernel time.
    pub per_second: f64,
    /// Kernel time of a run.
    pub seconds: f64,
    /// That of every run, ascending; the figures are the middle one's.
    pub runs: Vec<f64>,
    /// Lanes.
    pub threads: u64,
    /// Registers of each, on a GPU.
    pub registers: Option<u32>,
    /// NVMe read commands completed, of a run on average.
    pub reads: Option<u64>,
    /// Bytes that those brought.
    pub bytes_read: Option<u64>,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hit => "hits",
            Self::Miss => "misses",
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequential => "sequential",
            Self::Scattered => "scattered",
        })
    }
}

impl Cache {
    /// The mode in words.
    pub fn mode(&self) -> String {
        self.mode
            .map_or_else(|| "plain loads".into(), |mode| mode.to_string())
    }

    /// Mode, access and pattern in words.
    pub fn name(&self) -> String {
        match self.mode {
            Some(mode) => format!("{mode} {}, {}", self.access, self.pattern),
            None => format!("{}, {}", self.mode(), self.pattern),
        }
    }
}

/// Kernels that write: random ones, or a crowd with held lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rw {
    /// Operations of all lanes. Of `rw` half add, three eighths write and one eighth reads; of `crowd` a
    /// seventh each adds and writes, and the rest reads.
    pub operations: u64,
    /// Operations per second of kernel time, the flush apart.
    pub per_second: f64,
    /// Words of 8 bytes in both arrays, each compared.
    pub words: u64,
    /// Lanes.
    pub threads: u64,
    /// Registers of each, on a GPU.
    pub registers: Option<u32>,
    /// Kernel time.
    pub seconds: f64,
    /// Time of the flush after it.
    pub flush_seconds: f64,
    /// NVMe read commands completed; absent with real SSDs, which do not count them for us.
    pub reads: Option<u64>,
    /// NVMe write commands completed; absent likewise.
    pub writes: Option<u64>,
    /// Bytes that both moved; absent likewise.
    pub bytes_moved: Option<u64>,
    /// Commands that failed on purpose and were repeated, where that was asked for.
    pub failed: Option<Failed>,
}

/// A breadth-first search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bfs {
    /// The graph's file name.
    pub graph: String,
    /// Where the search began.
    pub source: u32,
    /// Vertices reached, the source counted.
    pub reached: u64,
    /// Greatest distance, in edges.
    pub depth: u32,
    /// Sum of all distances, in edges.
    pub distance_sum: u64,
    /// Kernel time, set-up apart.
    pub seconds: f64,
    /// NVMe read commands completed; absent with real SSDs, which do not count them for us.
    pub reads: Option<u64>,
    /// Bytes that those brought; absent likewise.
    pub bytes_read: Option<u64>,
    /// Commands that failed on purpose and were repeated, where that was asked for.
    pub failed: Option<Failed>,
}

/// Weakly connected components.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cc {
    /// The graph's file name.
    pub graph: String,
    /// Number of components.
    pub components: u64,
    /// Vertices of the largest.
    pub largest: u64,
    /// Kernel time, set-up apart.
    pub seconds: f64,
    /// NVMe read commands completed; absent with real SSDs, which do not count them for us.
    pub reads: Option<u64>,
    /// Bytes that those brought; absent likewise.
    pub bytes_read: Option<u64>,
    /// Commands that failed on purpose and were repeated, where that was asked for.
    pub failed: Option<Failed>,
}

#[cfg(test)]
mod tests;
