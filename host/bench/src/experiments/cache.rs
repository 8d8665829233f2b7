//! What hits and misses cost in each cache mode, beside plain loads from memory.
//!
//! Each mode has a session with two arrays: one of half the cache, read again and again once it is
//! there, and one of twice the cache, of which most lines have left when they are wanted again.

use warpstore::device::launch::{Kernel, KernelParam};
use warpstore::device::{Array, Atomics};
use warpstore::{Counts, LaunchConfig, Session};
use warpstore_kernels::cache::{Reads, cache_plain, cache_reads};
use warpstore_kernels::counted::{cache_reads_bam, cache_reads_naive, cache_reads_reuse};
use warpstore_kernels::iops::mix;

use super::Finding;
use super::plan::{Bytes, CacheOf, Needs, Plan};
use crate::exit::Failure;
use crate::options::{CacheMode, Runner};
use crate::report::{Access, Cache, Outcome, Pattern};
use warpstore_terminal::Progress;

/// Bytes of the array that fits, by default. That of a GPU is beyond its L2.
const HOST_SPAN: u64 = 256 << 10;
const GPU_SPAN: u64 = 512 << 20;
/// So many times larger are the cache and the other array.
const CACHE: u64 = 2;
const LARGE: u64 = 4;
/// Elements of a run of hits by default.
const HOST_OPS: u64 = 1 << 17;
const GPU_OPS: u64 = 1 << 30;
/// A run in which each lane misses for itself reads so many times fewer.
const FEWER: u64 = 256;
/// Runs of which the median is reported.
const RUNS: usize = 3;
/// Passes over the array that fits, at most, until all of it is in the cache.
const WARM_UPS: usize = 8;

/// Sizes of the experiment, and its data.
struct Job {
    /// The large array; the one that fits is its beginning.
    elements: Vec<u32>,
    fitting: usize,
    cache_lines: u64,
    ops: u64,
}

impl Job {
    fn of(plan: &Plan) -> Self {
        let options = plan.options;
        let (span, ops) = match plan.runner {
            Runner::Threads => (HOST_SPAN, HOST_OPS),
            Runner::Cuda => (GPU_SPAN, GPU_OPS),
        };
        let span = options.span.unwrap_or(span);
        let elements = (0..LARGE * span / 4).map(|index| mix(index) as u32);
        Self {
            elements: elements.collect(),
            fitting: (span / 4) as usize,
            cache_lines: CACHE * span.div_ceil(options.line),
            ops: options.ops.unwrap_or(ops),
        }
    }

    fn fitting(&self) -> &[u32] {
        &self.elements[..self.fitting]
    }

    fn open<K: Kernel>(
        &self,
        _kernel: &K,
        plan: &Plan,
        mode: CacheMode,
    ) -> Result<Session, Failure> {
        let whole_lines = |elements: usize| (elements as u64 * 4).div_ceil(plan.options.line);
        let lines = whole_lines(self.fitting) + whole_lines(self.elements.len());
        plan.open(&Needs {
            kernels: &[K::NAME],
            bytes: Bytes::Array(lines * plan.options.line),
            lanes: None,
            blocks: None,
            cache: Some(CacheOf {
                mode,
                lines: self.cache_lines,
            }),
        })
    }
}

/// Measures plain loads, and every mode that keeps lines.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Finding>, Failure> {
    let job = Job::of(plan);
    let mut findings = plain(plan, &job)?;
    findings.extend(mode(&cache_reads_naive, CacheMode::Naive, plan, &job)?);
    findings.extend(mode(&cache_reads_bam, CacheMode::Bam, plan, &job)?);
    findings.extend(mode(&cache_reads_reuse, CacheMode::BamReuse, plan, &job)?);
    findings.extend(mode(&cache_reads, CacheMode::Optimistic, plan, &job)?);
    Ok(findings)
}

/// The array that fits, in memory.
fn plain(plan: &Plan, job: &Job) -> Result<Vec<Finding>, Failure> {
    let session = job.open(&cache_plain, plan, CacheMode::Optimistic)?;
    let memory = session.upload(job.fitting()).map_err(anyhow::Error::from)?;
    let progress = Progress::begin("cache: plain loads", 0);
    let subject = Subject {
        plan,
        session: &session,
        kernel: &cache_plain,
        array: memory.global(),
        elements: job.fitting(),
        mode: None,
        cache_lines: job.cache_lines,
    };
    let findings = [Pattern::Sequential, Pattern::Scattered]
        .map(|pattern| subject.measure(Access::Hit, pattern, job.ops));
    progress.end("measured");
    session.finish().map_err(anyhow::Error::from)?;
    Ok(findings.into_iter().collect::<anyhow::Result<_>>()?)
}

/// Hits and misses of a mode.
fn mode<K>(kernel: &K, mode: CacheMode, plan: &Plan, job: &Job) -> Result<Vec<Finding>, Failure>
where
    K: Kernel<Args = (Array<u32>, u64, u32, Atomics<u64>)>,
{
    let session = job.open(kernel, plan, mode)?;
    let progress = Progress::begin(format!("cache: {mode}"), 0);
    let subject = |name, elements| -> anyhow::Result<_> {
        Ok(Subject {
            plan,
            session: &session,
            kernel,
            array: session.create_array(name, elements)?,
            elements,
            mode: Some(mode),
            cache_lines: job.cache_lines,
        })
    };
    let fitting = subject("fitting", job.fitting())?;
    let large = subject("large", &job.elements)?;
    fitting.warm_up()?;
    let whole = job.elements.len() as u64;
    let findings = vec![
        fitting.measure(Access::Hit, Pattern::Sequential, job.ops)?,
        fitting.measure(Access::Hit, Pattern::Scattered, job.ops)?,
        large.measure(Access::Miss, Pattern::Sequential, whole)?,
        large.measure(Access::Miss, Pattern::Scattered, job.ops.div_ceil(FEWER))?,
    ];
    progress.end("measured");
    session.finish().map_err(anyhow::Error::from)?;
    Ok(findings)
}

/// A kernel and the array that it reads.
struct Subject<'a, K, A> {
    plan: &'a Plan<'a>,
    session: &'a Session,
    kernel: &'a K,
    array: A,
    /// What is in the array.
    elements: &'a [u32],
    mode: Option<CacheMode>,
    cache_lines: u64,
}

impl<K, A> Subject<'_, K, A>
where
    A: KernelParam,
    K: Kernel<Args = (A, u64, u32, Atomics<u64>)>,
{
    /// Reads everything until it is there.
    fn warm_up(&self) -> anyhow::Result<()> {
        let reads = self.reads(Pattern::Sequential);
        for _ in 0..WARM_UPS {
            let before = self.session.counts()?;
            self.launch(reads, self.steps(self.elements.len() as u64)?)?;
            if before.is_some() && self.session.counts()? == before {
                break;
            }
        }
        Ok(())
    }

    /// The median of some runs, of at least `ops` reads each.
    fn measure(&self, access: Access, pattern: Pattern, ops: u64) -> anyhow::Result<Finding> {
        let (reads, steps) = (self.reads(pattern), self.steps(ops)?);
        let threads = self.config()?.lanes();
        let operations = threads * u64::from(steps);
        let expected = expected(self.elements, reads, operations);
        let before = self.session.counts()?;
        let (mut seconds, mut wrong) = (Vec::new(), None);
        for _ in 0..RUNS {
            let (run, sum) = self.launch(reads, steps)?;
            seconds.push(run);
            if sum != expected {
                wrong = Some(format!("the sum is {sum}, which should be {expected}"));
            }
        }
        let after = self.session.counts()?;
        let since = |count: fn(Counts) -> u64| Some(count(after?) - count(before?));
        let commands = since(|counts| counts.reads);
        if let Some(commands @ 1..) = commands.filter(|_| access == Access::Hit) {
            wrong = wrong.or_else(|| Some(format!("{commands} reads of the SSDs are no hits")));
        }
        seconds.sort_by(f64::total_cmp);
        let median = seconds[RUNS / 2];
        let row = Cache {
            mode: self.mode,
            access,
            pattern,
            array_bytes: size_of_val(self.elements) as u64,
            cache_lines: self.cache_lines,
            operations,
            per_second: operations as f64 / median,
            seconds: median,
            runs: seconds,
            threads,
            registers: self.session.registers(self.kernel)?,
            reads: commands.map(|commands| commands / RUNS as u64),
            bytes_read: since(|counts| counts.bytes).map(|bytes| bytes / RUNS as u64),
        };
        Ok(Finding {
            wrong: wrong.map(|wrong| format!("cache, {}: {wrong}", row.name())),
            outcome: Outcome::Cache(row),
            remarks: self.remarks(),
        })
    }

    fn config(&self) -> anyhow::Result<LaunchConfig> {
        Ok(self.plan.fill(self.session, self.kernel)?)
    }

    fn remarks(&self) -> Vec<String> {
        match self.plan.runner {
            Runner::Threads => {
                vec!["cache on host threads is host-bound: it measures the CPU cores".to_owned()]
            }
            Runner::Cuda => Vec::new(),
        }
    }

    /// Steps of each lane for at least `ops` reads.
    fn steps(&self, ops: u64) -> anyhow::Result<u32> {
        let lanes = self.config()?.lanes();
        Ok(ops.div_ceil(lanes).clamp(1, u64::from(u32::MAX)) as u32)
    }

    /// Neighbours one after the other; or far apart by the golden ratio, which spreads the lines of the
    /// lanes evenly.
    fn reads(&self, pattern: Pattern) -> Reads {
        let elements = self.elements.len() as u64;
        let stride = match pattern {
            Pattern::Sequential => 1,
            Pattern::Scattered => (elements as f64 * 0.618_034) as u64 | 1,
        };
        Reads { elements, stride }
    }

    /// One launch: its seconds and its sum.
    fn launch(&self, reads: Reads, steps: u32) -> anyhow::Result<(f64, u64)> {
        let sums = self.session.memory::<u64>(1)?;
        let config = self.config()?;
        let args = (self.array, reads.stride, steps, sums.atomics());
        let seconds = self.session.launch(self.kernel, config, args)?;
        Ok((seconds, sums.to_vec()?[0]))
    }
}

/// The sum of the first `count` reads.
fn expected(elements: &[u32], reads: Reads, count: u64) -> u64 {
    let all: u64 = elements.iter().map(|&element| u64::from(element)).sum();
    let rest = (0..count % reads.elements).map(|number| elements[reads.index(number) as usize]);
    let rest: u64 = rest.map(u64::from).sum();
    all.wrapping_mul(count / reads.elements).wrapping_add(rest)
}
