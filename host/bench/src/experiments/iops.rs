//! Random block reads: what queues and SSDs can do.

use hdrhistogram::Histogram;
use warpstore::device::launch::Kernel;
use warpstore::{BlocksConfig, LaunchConfig, Session};
use warpstore_kernels::iops::{iops, media_word};

use super::Finding;
use super::plan::{Bytes, Needs, Plan};
use crate::exit::Failure;
use crate::options::{Media, Runner};
use crate::report::{Iops, Latency, Limit, Outcome};
use warpstore_terminal::Progress;

/// Lanes, and so commands in flight, by default.
const HOST_IN_FLIGHT: u32 = 256;
const GPU_IN_FLIGHT: u32 = 4096;
/// Bytes of each SSD that are read by default. Beyond 1 GiB a GPU's translation of host memory
/// misses, and that would be measured instead.
const HOST_SPAN: u64 = 64 << 20;
const GPU_SPAN: u64 = 1 << 30;
/// Most commands of a run by default: about a second's. Fewer if the modelled SSDs are slower.
const HOST_OPS: u64 = 1 << 18;
const GPU_OPS: u64 = 1 << 26;
/// Runs of which the median is reported; one more comes first and warms up.
const RUNS: usize = 3;
/// Threads of a block: one warp, so that few lanes spread over many multiprocessors.
const BLOCK: u32 = 32;
/// Largest rate of 512-byte reads that an H200 was seen to make over PCIe 5.0 x16, and the bytes
/// a second behind it.
const PCIE_READS: f64 = 100e6;
const PCIE_BYTES: f64 = 51.4e9;
/// Words that are written to a medium at a time.
const CHUNK_WORDS: u64 = 1 << 17;
/// A run below this part of the limit was held up by the host.
const HOST_BOUND: f64 = 0.9;

/// One launch: commands per second, seconds, and the latency of each command in nanoseconds.
struct Run {
    rate: f64,
    seconds: f64,
    latencies: Vec<u32>,
}

/// Sizes of the experiment.
struct Size {
    block: u64,
    lanes: u32,
    span: u64,
    rounds: u32,
}

impl Size {
    fn of(plan: &Plan) -> Self {
        let options = plan.options;
        let gpu = plan.runner == Runner::Cuda;
        let block = options.block();
        let default_lanes = if gpu { GPU_IN_FLIGHT } else { HOST_IN_FLIGHT };
        let lanes = options
            .in_flight
            .or(options.threads)
            .unwrap_or(plan.admit(default_lanes));
        let lanes = lanes.next_multiple_of(BLOCK);
        let most = if gpu { GPU_OPS } else { HOST_OPS };
        let second = plan
            .profile()
            .and_then(|profile| profile.most_reads(block, options.ssds()))
            .unwrap_or(f64::INFINITY);
        let ops = options.ops.unwrap_or((second as u64).min(most));
        Self {
            block,
            lanes,
            span: options
                .span
                .unwrap_or(if gpu { GPU_SPAN } else { HOST_SPAN }),
            rounds: ops.div_ceil(u64::from(lanes)).clamp(1, u64::from(u32::MAX)) as u32,
        }
    }

    /// Refuses a span that the SSDs do not have: real ones have the size that they have.
    fn check(&self, session: &Session) -> anyhow::Result<()> {
        let there = session.bytes_per_ssd();
        anyhow::ensure!(
            self.span <= there,
            "{} bytes of each SSD cannot be read, the smallest has {there}; use a smaller --span",
            self.span
        );
        Ok(())
    }

    fn commands(&self) -> u64 {
        u64::from(self.rounds) * u64::from(self.lanes)
    }
}

/// Reads random blocks and reports the median of the runs.
pub(crate) fn run(plan: &Plan) -> Result<Finding, Failure> {
    let size = Size::of(plan);
    let session = plan.open(&Needs {
        kernels: &[<iops as Kernel>::NAME],
        bytes: Bytes::EachSsd(size.span),
        lanes: Some(size.lanes),
        blocks: Some(BlocksConfig {
            count: size.lanes,
            bytes: size.block as u32,
        }),
        cache: None,
    })?;
    size.check(&session)?;
    if plan.verifiable() {
        fill(&session, plan.options.ssds(), size.span).map_err(anyhow::Error::from)?;
    }
    let progress = Progress::begin("iops", RUNS as u64);
    let mut wrong = 0;
    let mut runs = Vec::new();
    measure(&session, plan, &size, 0, &mut wrong)?;
    for number in 1..=RUNS as u64 {
        runs.push(measure(&session, plan, &size, number, &mut wrong)?);
        progress.reach(number);
    }
    let registers = session.registers(&iops).map_err(anyhow::Error::from)?;
    session.finish().map_err(anyhow::Error::from)?;
    runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let rates = runs.iter().map(|run| run.rate).collect();
    let median = runs.swap_remove(RUNS / 2);
    progress.end(&format!(
        "{:.3} M reads/s (median of {RUNS} runs)",
        median.rate / 1e6
    ));
    report(plan, &size, &median, rates, registers, wrong)
}

fn report(
    plan: &Plan,
    size: &Size,
    median: &Run,
    runs: Vec<f64>,
    registers: Option<u32>,
    wrong: u64,
) -> Result<Finding, Failure> {
    let limit = limit(plan, size.block);
    let mut remarks = Vec::new();
    if let Some(limit) = &limit
        && plan.runner == Runner::Threads
        && median.rate < HOST_BOUND * limit.iops
    {
        remarks.push("iops is host-bound: the CPU cores, not the modelled SSD, set it".to_owned());
    }
    let outcome = Outcome::Iops(Iops {
        iops: median.rate,
        bandwidth_bytes_per_s: median.rate * size.block as f64,
        block_bytes: size.block,
        threads: size.lanes,
        registers,
        queues: plan.queues(),
        depth: plan.options.depth,
        in_flight: size.lanes,
        latency_ns: percentiles(&median.latencies)?,
        commands: size.commands(),
        seconds: median.seconds,
        runs,
        limit,
    });
    let wrong = (wrong > 0).then(|| format!("iops: {wrong} blocks held a wrong word"));
    Ok(Finding {
        outcome,
        wrong,
        remarks,
    })
}

/// Writes the words that the kernel expects.
fn fill(session: &Session, ssds: u32, span: u64) -> Result<(), warpstore::Error> {
    let words = span / 8;
    let progress = Progress::begin("write the media", words * u64::from(ssds));
    let mut first = 0;
    while first < words {
        let chunk: Vec<u8> = (first..(first + CHUNK_WORDS).min(words))
            .flat_map(|word| media_word(word).to_le_bytes())
            .collect();
        for ssd in 0..ssds {
            session.load_blocks(ssd, first * 8, &chunk)?;
        }
        first += CHUNK_WORDS;
        progress.reach(first.min(words) * u64::from(ssds));
    }
    progress.end(&format!("{} MiB each", span >> 20));
    Ok(())
}

/// One launch. Run 0 is the warm-up, an eighth as long.
fn measure(
    session: &Session,
    plan: &Plan,
    size: &Size,
    number: u64,
    wrong: &mut u64,
) -> anyhow::Result<Run> {
    let rounds = if number == 0 {
        size.rounds.div_ceil(8)
    } else {
        size.rounds
    };
    let commands = u64::from(rounds) * u64::from(size.lanes);
    let latencies = session.memory::<u32>(commands)?;
    let differing = session.memory::<u64>(1)?;
    let config = LaunchConfig {
        blocks: size.lanes / BLOCK,
        threads: BLOCK,
    };
    let args = (
        session.blocks(),
        size.span / size.block,
        rounds,
        plan.options.seed.wrapping_add(number),
        u32::from(plan.verifiable()),
        latencies.disjoint(),
        differing.atomics(),
    );
    let seconds = session.launch(&iops, config, args)?;
    *wrong += differing.to_vec()?[0];
    Ok(Run {
        rate: commands as f64 / seconds,
        seconds,
        latencies: latencies.to_vec()?,
    })
}

fn percentiles(latencies: &[u32]) -> anyhow::Result<Latency> {
    let mut histogram = Histogram::<u64>::new(3)?;
    for &latency in latencies {
        histogram.record(u64::from(latency))?;
    }
    Ok(Latency::of(&histogram))
}

/// The most that this run could have reached.
fn limit(plan: &Plan, block: u64) -> Option<Limit> {
    let profile = plan.profile();
    if let Some(rate) = profile.and_then(|one| one.most_reads(block, plan.options.ssds())) {
        return Some(Limit {
            iops: rate,
            by: "the SSDs' profile".to_owned(),
        });
    }
    let over_pcie = plan.runner == Runner::Cuda
        && plan.options.ssd.is_inside()
        && matches!(
            plan.options.ssd.media(),
            None | Some(Media::Host | Media::File(_))
        );
    over_pcie.then(|| Limit {
        iops: PCIE_READS.min(PCIE_BYTES / block as f64),
        by: "reads over PCIe 5.0 x16, as an H200 was seen to make them".to_owned(),
    })
}
