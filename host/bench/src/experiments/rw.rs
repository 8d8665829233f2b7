//! Random writes and additions on arrays larger than the cache, then every word compared.

use warpstore::device::launch::Kernel;
use warpstore::{Medium, Session, SsdSource};
use warpstore_kernels::counted::{rw_bam, rw_naive, rw_reuse};
use warpstore_kernels::rw::{Run, Step, rw, value};

use super::plan::{Bytes, Needs, Plan};
use super::{Finding, uncounted};
use crate::exit::Failure;
use crate::options::{CacheMode, Media, Runner};
use crate::report::{Outcome, Rw};
use warpstore_terminal::Progress;

/// Bytes of both arrays by default.
const HOST_BYTES: u64 = 1 << 20;
const GPU_BYTES: u64 = 1 << 30;
/// Operations by default.
const HOST_OPS: u64 = 1 << 14;
const GPU_OPS: u64 = 1 << 24;
/// Fewest values of a lane, so that it comes back to them.
const FEWEST_VALUES: u64 = 4;
/// More lanes than any GPU keeps resident.
const GPU_LANES: u64 = 1 << 19;

/// Sizes of the experiment.
struct Size {
    /// Words of both arrays together.
    words: u64,
    ops: u64,
}

impl Size {
    fn of(plan: &Plan) -> Self {
        let gpu = plan.runner == Runner::Cuda;
        let bytes = if gpu { GPU_BYTES } else { HOST_BYTES };
        let ops = if gpu { GPU_OPS } else { HOST_OPS };
        Self {
            words: plan.options.span.unwrap_or(bytes).div_ceil(8),
            ops: plan.options.ops.unwrap_or(ops),
        }
    }

    /// Bytes of the arrays at most, each from a line of its own on; how many lanes there will be
    /// is known only once the session is open.
    fn bytes(&self, plan: &Plan) -> u64 {
        let lanes = match plan.runner {
            Runner::Threads => u64::from(plan.lanes()).next_multiple_of(32),
            Runner::Cuda => GPU_LANES,
        };
        let words = self
            .words
            .max(self.words.div_ceil(2) + lanes * FEWEST_VALUES);
        (words * 8).next_multiple_of(plan.options.line) + plan.options.line
    }
}

/// What the arrays should hold.
struct Oracle {
    values: Vec<u64>,
    sums: Vec<u64>,
}

impl Oracle {
    fn at_first(run: &Run) -> Self {
        let values = (0..run.lanes * run.values_each).map(|index| value(index, 0));
        Self {
            values: values.collect(),
            sums: vec![0; run.sums as usize],
        }
    }

    /// The same steps, one lane after the other.
    fn run(&mut self, run: &Run, steps: u32) {
        for lane in 0..run.lanes {
            for step in 1..=steps {
                match run.step(lane, step) {
                    Step::Get { .. } => {}
                    Step::Set { index, value } => self.values[index as usize] = value,
                    Step::Add { index, addend } => self.sums[index as usize] += addend,
                }
            }
        }
    }

    /// Where the media differ, if they do.
    fn compare(&self, values: &[u64], sums: &[u64]) -> Option<String> {
        [("value", &self.values, values), ("sum", &self.sums, sums)]
            .into_iter()
            .find_map(|(name, expected, found)| {
                let differs = |(a, b): (&u64, &u64)| a != b;
                let first = expected.iter().zip(found).position(differs)?;
                let all = expected.iter().zip(found).filter(|&(a, b)| a != b).count();
                Some(format!(
                    "rw: {all} {name}s are wrong on the media, the first {name} {first}: {:#x}, \
                     which should be {:#x}",
                    found[first], expected[first]
                ))
            })
    }
}

/// Writes, flushes, and compares the media with a sequential run.
pub(crate) fn run(plan: &Plan) -> Result<Finding, Failure> {
    match plan.options.cache_mode {
        CacheMode::None | CacheMode::Optimistic => run_by(&rw, plan),
        CacheMode::Naive => run_by(&rw_naive, plan),
        CacheMode::Bam => run_by(&rw_bam, plan),
        CacheMode::BamReuse => run_by(&rw_reuse, plan),
    }
}

/// The same, by `kernel`.
fn run_by<K: Kernel<Args = <rw as Kernel>::Args>>(
    kernel: &K,
    plan: &Plan,
) -> Result<Finding, Failure> {
    let size = Size::of(plan);
    let needs = Needs {
        kernels: &[K::NAME],
        bytes: Bytes::Array(size.bytes(plan)),
        lanes: None,
        blocks: None,
        cache: None,
    };
    let session = plan.open(&needs)?;
    let config = plan.fill(&session, kernel).map_err(anyhow::Error::from)?;
    let lanes = config.lanes();
    let run = Run {
        lanes,
        values_each: (size.words / 2 / lanes).max(FEWEST_VALUES),
        sums: (size.words / 2).max(1),
        seed: plan.options.seed,
    };
    let steps = size.ops.div_ceil(lanes).clamp(1, u64::from(u32::MAX)) as u32;
    let mut oracle = Oracle::at_first(&run);
    let progress = Progress::begin("rw", 0);
    let measured = measure(kernel, &session, plan, &run, steps, &oracle)?;
    oracle.run(&run, steps);
    let failed = plan.failed(&session)?;
    let wrong = verify(session, plan, &run, &oracle)?;
    let operations = lanes * u64::from(steps);
    progress.end(&format!(
        "{operations} operations in {:.3} s",
        measured.seconds
    ));
    let lost = (measured.wrong > 0)
        .then(|| format!("rw: {} reads found what was not written", measured.wrong));
    Ok(Finding {
        outcome: Outcome::Rw(Rw {
            operations,
            per_second: operations as f64 / measured.seconds,
            words: run.lanes * run.values_each + run.sums,
            threads: lanes,
            registers: measured.registers,
            seconds: measured.seconds,
            flush_seconds: measured.flush_seconds,
            reads: measured.counts.map(|counts| counts.reads),
            writes: measured.counts.map(|counts| counts.writes),
            bytes_moved: measured.counts.map(|counts| counts.bytes),
            failed,
        }),
        wrong: lost.or(wrong).or_else(|| uncounted("rw", failed)),
        remarks: Vec::new(),
    })
}

/// What the run on the SSDs was like.
struct Measured {
    seconds: f64,
    flush_seconds: f64,
    counts: Option<warpstore::Counts>,
    registers: Option<u32>,
    wrong: u64,
}

fn measure<K: Kernel<Args = <rw as Kernel>::Args>>(
    kernel: &K,
    session: &Session,
    plan: &Plan,
    run: &Run,
    steps: u32,
    first: &Oracle,
) -> anyhow::Result<Measured> {
    session.create_array("values", &first.values)?;
    session.create_array("sums", &first.sums)?;
    let differing = session.memory::<u64>(1)?;
    let args = (
        session.array_mut("values")?,
        session.array_mut("sums")?,
        run.values_each,
        steps,
        plan.options.seed,
        differing.atomics(),
    );
    let config = plan.fill(session, kernel)?;
    let seconds = session.launch(kernel, config, args)?;
    let flushed = std::time::Instant::now();
    session.flush()?;
    Ok(Measured {
        seconds,
        flush_seconds: flushed.elapsed().as_secs_f64(),
        counts: session.counts()?,
        registers: session.registers(kernel)?,
        wrong: differing.to_vec()?[0],
    })
}

/// Compares the media: those of the session, or, if they outlive it, what another session finds
/// there.
fn verify(
    session: Session,
    plan: &Plan,
    run: &Run,
    oracle: &Oracle,
) -> anyhow::Result<Option<String>> {
    let ssd = &plan.options.ssd;
    let outlive = !ssd.is_inside() || matches!(ssd.media(), Some(Media::File(_)));
    let session = if outlive {
        let mut configuration = session.configuration().clone();
        session.finish()?;
        if let SsdSource::Emulated(each) = &mut configuration.ssd
            && let Medium::File { overwrite, .. } = &mut each.medium
        {
            *overwrite = false;
        }
        let again = Session::open(configuration, "")?;
        again.existing_array::<u64>("values", run.lanes * run.values_each)?;
        again.existing_array::<u64>("sums", run.sums)?;
        again
    } else {
        session
    };
    let difference = oracle.compare(&session.stored("values")?, &session.stored("sums")?);
    session.finish()?;
    Ok(difference)
}
