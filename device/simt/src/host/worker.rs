//! One OS thread that carries blocks: resumes their lanes in turn and notices when none can go on.
#![allow(unsafe_code, reason = "coroutines that borrow the kernel body")]
// UNSAFETY: lanes borrow the body of the launch, which outlives every worker.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use super::block::Block;
use super::fault::LaunchFault;
use super::fiber::Fiber;
use super::lane::{Lane, Suspension, now_ns};
use super::launch::Launch;
use super::warp::{Warp, lanes};

/// Address space for each lane's stack, with a guard page below; memory is used as it is touched.
/// Kernels need a few KiB, a panic that prints its backtrace from a debug build much more.
const STACK_BYTES: usize = 256 * 1024;

/// The message of a panic that ended the lane, or `None`.
type Outcome = Option<String>;
type LaneCoroutine = Coroutine<(), Suspension, Outcome, DefaultStack>;

/// A lane that has not returned.
struct LaneRun {
    coroutine: LaneCoroutine,
    fiber: Fiber,
}

/// A block and the coroutines of its lanes that have not returned.
struct Resident {
    block: Rc<Block>,
    lanes: Vec<Option<LaneRun>>,
}

impl Drop for Resident {
    /// Unwinds the lanes of a launch that was given up.
    fn drop(&mut self) {
        for lane in self.lanes.iter_mut().flatten() {
            let LaneRun { coroutine, fiber } = lane;
            fiber.visit(|| coroutine.force_unwind());
        }
    }
}

pub(crate) struct Worker<'a> {
    launch: &'a Launch<'a>,
    idx: u32,
    /// How many blocks it carries at once.
    capacity: usize,
    residents: Vec<Resident>,
    /// Stacks of lanes that have returned.
    stacks: Vec<DefaultStack>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(launch: &'a Launch<'a>, idx: u32, capacity: usize) -> Self {
        Self {
            launch,
            idx,
            capacity,
            residents: Vec::new(),
            stacks: Vec::new(),
        }
    }

    /// Carries blocks until none is left, or the launch is stopped.
    pub(crate) fn run(mut self) -> Result<(), LaunchFault> {
        while !self.launch.is_stopped() {
            self.fill()?;
            if self.residents.is_empty() {
                break;
            }
            if self.pass()? {
                thread::yield_now();
            }
            self.residents.retain(|resident| resident.block.alive() > 0);
        }
        Ok(())
    }

    /// Begins blocks while there is room.
    fn fill(&mut self) -> Result<(), LaunchFault> {
        while self.residents.len() < self.capacity
            && let Some(idx) = self.launch.take_block()
        {
            let Launch {
                grid, interleaving, ..
            } = *self.launch;
            let block = Rc::new(Block::new(idx, grid, self.idx, interleaving));
            let mut resident = Resident {
                block,
                lanes: Vec::new(),
            };
            for thread_idx in 0..grid.block_dim {
                let lane = self.begin_lane(Rc::clone(&resident.block), thread_idx)?;
                resident.lanes.push(Some(lane));
            }
            self.residents.push(resident);
        }
        Ok(())
    }

    fn begin_lane(&mut self, block: Rc<Block>, thread_idx: u32) -> Result<LaneRun, LaunchFault> {
        let stack = match self.stacks.pop() {
            Some(stack) => stack,
            None => DefaultStack::new(STACK_BYTES).map_err(LaunchFault::Stack)?,
        };
        let body = self.launch.body;
        // SAFETY: the coroutine borrows `body`, which lives until every worker has ended; a worker
        // drives its coroutines to their end or unwinds them when it drops its residents.
        let coroutine = unsafe {
            LaneCoroutine::with_stack_unchecked(stack, move |yielder, ()| {
                let run = || Lane::enter(yielder, &block, thread_idx, body);
                catch_unwind(AssertUnwindSafe(run)).err().map(panic_message)
            })
        };
        Ok(LaneRun {
            coroutine,
            fiber: Fiber::new(),
        })
    }

    /// Visits every warp once. True if all of them only wait.
    fn pass(&mut self) -> Result<bool, LaunchFault> {
        let mut idle = true;
        for resident in &mut self.residents {
            for warp_idx in 0..resident.block.warps().len() as u32 {
                resident.visit(warp_idx, &mut self.stacks)?;
                resident.block.warp(warp_idx).answer();
                self.launch.check_warp(&resident.block, warp_idx)?;
                idle &= resident.block.warp(warp_idx).is_idle();
            }
            self.launch.check_block(&resident.block)?;
        }
        Ok(idle)
    }
}

impl Resident {
    /// Resumes each lane of the warp that can run, and those that this lets run, until all have
    /// given way, wait, or have returned.
    fn visit(&mut self, warp_idx: u32, stacks: &mut Vec<DefaultStack>) -> Result<(), LaunchFault> {
        let block = Rc::clone(&self.block);
        let warp = block.warp(warp_idx);
        let first = warp.first_lane();
        let mut gave_way = 0;
        loop {
            let left = warp.runnable() & !gave_way;
            if left == 0 {
                return Ok(());
            }
            let lane = (left.rotate_right(first).trailing_zeros() + first) % 32;
            let thread_idx = warp_idx * 32 + lane;
            match self.resume(thread_idx, stacks) {
                CoroutineResult::Yield(suspension) => {
                    warp.set_paused(lane, suspension == Suspension::Paused);
                    if suspension != Suspension::Waiting {
                        gave_way |= 1 << lane;
                    }
                }
                CoroutineResult::Return(None) => block.finish(thread_idx),
                CoroutineResult::Return(Some(message)) => {
                    return Err(LaunchFault::Panic {
                        block: block.idx(),
                        thread: thread_idx,
                        message,
                    });
                }
            }
        }
    }

    /// Resumes one lane; keeps its stack for others when it has returned.
    fn resume(
        &mut self,
        thread_idx: u32,
        stacks: &mut Vec<DefaultStack>,
    ) -> CoroutineResult<Suspension, Outcome> {
        let slot = &mut self.lanes[thread_idx as usize];
        let LaneRun { coroutine, fiber } = slot
            .as_mut()
            .expect("a lane that has returned is not runnable");
        let result = fiber.visit(|| coroutine.resume(()));
        if coroutine.done() {
            stacks.extend(slot.take().map(|lane| lane.coroutine.into_stack()));
        }
        result
    }
}

impl Launch<'_> {
    /// Looks for lanes of a warp that wait in a collective in vain.
    fn check_warp(&self, block: &Block, warp_idx: u32) -> Result<(), LaunchFault> {
        let warp = block.warp(warp_idx);
        if warp.collecting() == 0 {
            return Ok(());
        }
        let stuck = !warp.can_run() && warp.alive() == warp.collecting();
        let now = now_ns();
        for lane in lanes(warp.collecting()) {
            if stuck
                || warp.seat(lane).mask & warp.gone() != 0
                || u128::from(warp.waited_ns(lane, now)) > self.patience.as_nanos()
            {
                return Err(never_came(block, warp_idx, warp, lane));
            }
        }
        Ok(())
    }

    /// Looks for lanes of a block that wait in vain for one another: some at the barrier, some in
    /// collectives.
    fn check_block(&self, block: &Block) -> Result<(), LaunchFault> {
        if block.at_barrier() == 0 {
            return Ok(());
        }
        if !block.warps().iter().any(Warp::can_run) {
            // The barrier opens when all that have not returned are at it, so some are not.
            for (warp_idx, warp) in block.warps().iter().enumerate() {
                if let Some(lane) = lanes(warp.collecting()).next() {
                    return Err(never_came(block, warp_idx as u32, warp, lane));
                }
            }
        }
        if u128::from(block.barrier_waited_ns(now_ns())) > self.patience.as_nanos() {
            return Err(LaunchFault::BarrierNeverOpened {
                block: block.idx(),
                expected: block.alive(),
                arrived: block.at_barrier(),
            });
        }
        Ok(())
    }
}

fn never_came(block: &Block, warp_idx: u32, warp: &Warp, lane: u32) -> LaunchFault {
    let seat = warp.seat(lane);
    LaunchFault::LaneNeverCame {
        block: block.idx(),
        warp: warp_idx,
        operation: seat.operation,
        site: seat.site,
        expected: seat.mask,
        arrived: warp.seated_with(&seat, warp.collecting()),
        gone: warp.gone(),
    }
}

fn panic_message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => match payload.downcast_ref::<&str>() {
            Some(message) => (*message).to_owned(),
            None => "a payload that is not text".to_owned(),
        },
    }
}
