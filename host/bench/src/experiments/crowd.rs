//! Many more lanes than lines, every warp with a line held for writing: nobody may hang.

use std::num::NonZeroU64;

use warpstore::device::launch::Kernel;
use warpstore::{LaunchConfig, Session};
use warpstore_kernels::crowd::{Crowd, crowd};

use super::plan::{Bytes, Needs, Plan};
use super::{Finding, uncounted};
use crate::exit::Failure;
use crate::options::Runner;
use crate::report::{Outcome, Rw};
use warpstore_terminal::Progress;

/// Lanes by default: many times what the cache holds.
const HOST_LANES: u32 = 1024;
const GPU_LANES: u32 = 200_000;
/// Lines of either array by default.
const LINES: u64 = 256;
/// Rounds of each lane by default.
const ROUNDS: u64 = 3;
/// Operations of a lane in a round: a read, a write, an addition, and a range of four.
const STEPS: u64 = 7;
/// Threads of a block.
const BLOCK: u32 = 128;

/// Launches the crowd, flushes, and looks what it left on the media.
pub(crate) fn run(plan: &Plan) -> Result<Finding, Failure> {
    let default = match plan.runner {
        Runner::Threads => HOST_LANES,
        Runner::Cuda => GPU_LANES,
    };
    let lanes = plan.options.threads.unwrap_or(plan.admit(default));
    let config = LaunchConfig {
        blocks: lanes.div_ceil(BLOCK),
        threads: BLOCK.min(lanes.next_multiple_of(32)),
    };
    let line = plan.options.line / 8;
    let lines = match plan.options.span {
        Some(bytes) => (bytes / 16).div_ceil(line),
        None => LINES,
    };
    let elements = NonZeroU64::new(lines.max(1) * line).unwrap_or(NonZeroU64::MIN);
    let session = plan.open(&Needs {
        kernels: &[<crowd as Kernel>::NAME],
        bytes: Bytes::Array(elements.get() * 16),
        lanes: (plan.runner == Runner::Threads).then_some(lanes),
        blocks: None,
        cache: None,
    })?;
    let lanes = config.lanes();
    let rounds = match plan.options.ops {
        Some(ops) => ops.div_ceil(lanes * STEPS),
        None => ROUNDS,
    };
    let progress = Progress::begin("crowd", 0);
    let row = measure(&session, plan, config, elements, rounds)?;
    progress.end(&format!(
        "{} operations in {:.3} s",
        row.operations, row.seconds
    ));
    let stored = |name| session.stored::<u64>(name).map_err(anyhow::Error::from);
    let difference =
        Crowd { elements, line }.difference(lanes, rounds, &stored("numbers")?, &stored("sums")?);
    session.finish().map_err(anyhow::Error::from)?;
    let wrong = difference.map(|difference| format!("crowd: on the media {difference}"));
    Ok(Finding {
        wrong: wrong.or_else(|| uncounted("crowd", row.failed)),
        outcome: Outcome::Crowd(row),
        remarks: Vec::new(),
    })
}

fn measure(
    session: &Session,
    plan: &Plan,
    config: LaunchConfig,
    elements: NonZeroU64,
    rounds: u64,
) -> anyhow::Result<Rw> {
    let zeros = vec![0u64; elements.get() as usize];
    session.create_array("numbers", &zeros)?;
    session.create_array("sums", &zeros)?;
    let args = (
        session.array_mut("numbers")?,
        session.array_mut("sums")?,
        rounds,
    );
    let seconds = session.launch(&crowd, config, args)?;
    let flushed = std::time::Instant::now();
    session.flush()?;
    let flush_seconds = flushed.elapsed().as_secs_f64();
    let (counts, threads) = (session.counts()?, config.lanes());
    let operations = threads * rounds * STEPS;
    Ok(Rw {
        operations,
        per_second: operations as f64 / seconds,
        words: 2 * elements.get(),
        threads,
        registers: session.registers(&crowd)?,
        seconds,
        flush_seconds,
        reads: counts.map(|counts| counts.reads),
        writes: counts.map(|counts| counts.writes),
        bytes_moved: counts.map(|counts| counts.bytes),
        failed: plan.failed(session)?,
    })
}
