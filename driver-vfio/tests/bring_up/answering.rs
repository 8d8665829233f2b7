//! A thread that completes admin commands as a test says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nvme_wire::identify::PAGE_WORDS;
use nvme_wire::regs::offset;
use nvme_wire::{Cqe, Sqe, Status};
use warpstore_simt::{Cell, Cells, Order};

use crate::memory::at_iova;
use crate::registers::{Fake, Script};

/// Entries of the driver's admin rings.
const ENTRIES: u32 = 32;

/// What becomes of a command.
pub struct Answer {
    pub status: Status,
    pub dw0: u32,
    /// What is written to PRP1.
    pub page: Option<[u64; PAGE_WORDS]>,
    /// What is posted instead of the one completion that is due. The phase is right in each.
    pub posted: fn(Cqe) -> Vec<Cqe>,
    /// Time between the first half of a completion and the second, which has the phase.
    pub torn: Duration,
}

impl Answer {
    pub fn status(status: Status) -> Self {
        Self {
            status,
            dw0: 0,
            page: None,
            posted: |cqe| vec![cqe],
            torn: Duration::ZERO,
        }
    }

    pub fn page(words: [u64; PAGE_WORDS]) -> Self {
        Self {
            page: Some(words),
            ..Self::status(Status::SUCCESS)
        }
    }

    pub fn result(dw0: u32) -> Self {
        Self {
            dw0,
            ..Self::status(Status::SUCCESS)
        }
    }
}

/// A controller of registers whose admin queue is answered until this is dropped.
pub struct Answering {
    pub fake: Arc<Fake>,
    /// Commands that came, in order.
    pub commands: Arc<Mutex<Vec<Sqe>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    pub fn new(answer: impl Fn(Sqe) -> Answer + Send + 'static) -> Self {
        Self::serving(Script::good(), answer, |_| {})
    }

    /// With these registers. `turn` is called all the time, and after the doorbell of a command was
    /// seen before that command is answered: for I/O queues.
    pub fn serving(
        script: Script,
        answer: impl Fn(Sqe) -> Answer + Send + 'static,
        turn: impl Fn(&Fake) + Send + 'static,
    ) -> Self {
        let fake = Fake::new(script);
        let commands = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (fake, commands, stop) = (fake.clone(), commands.clone(), stop.clone());
            move || {
                let (mut served, mut posted) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let tail = fake.admin_tail();
                    turn(&fake);
                    if served % ENTRIES == tail {
                        // Asleep, so that many of these leave the CPUs to their drivers.
                        thread::sleep(Duration::from_micros(20));
                        continue;
                    }
                    let sqe = fetch(&fake, served);
                    commands.lock().unwrap().push(sqe);
                    served += 1;
                    assert_eq!(served % ENTRIES, tail, "one command at a time");
                    posted += complete(&fake, served, posted, sqe, &answer(sqe));
                }
            }
        });
        Self {
            fake,
            commands,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn fetch(fake: &Fake, served: u32) -> Sqe {
    sqe_at(fake.written(offset::ASQ)[0] + u64::from(served % ENTRIES) * 64)
}

/// The SQE at an IOVA, whose doorbell was seen.
pub fn sqe_at(iova: u64) -> Sqe {
    let words = at_iova(iova, 8);
    Sqe::from_words(std::array::from_fn(|word| {
        words.at(word as u64).load(Order::Relaxed)
    }))
}

/// Completes `sqe`, the last of `served` commands, behind `before` completions; returns how many
/// were posted.
fn complete(fake: &Fake, served: u32, before: u32, sqe: Sqe, answer: &Answer) -> u32 {
    for (index, word) in (0..).zip(answer.page.into_iter().flatten()) {
        at_iova(sqe.prp1(), PAGE_WORDS as u64)
            .at(index)
            .store(word, Order::Relaxed);
    }
    let due = Cqe::new(sqe.cid(), answer.status, false)
        .with_result(answer.dw0)
        .with_sq(0, (served % ENTRIES) as u16);
    let cqes = (answer.posted)(due);
    for (index, cqe) in (before..).zip(&cqes) {
        let phase = (index / ENTRIES).is_multiple_of(2);
        let [low, high] = Cqe::new(cqe.cid, cqe.status(), phase)
            .with_result(cqe.dw0)
            .with_sq(cqe.sqid, cqe.sqhd)
            .to_words();
        let acq = fake.written(offset::ACQ)[0] + u64::from(index % ENTRIES) * 16;
        at_iova(acq, 2).at(0).store(low, Order::Relaxed);
        thread::sleep(answer.torn);
        at_iova(acq, 2).at(1).store(high, Order::Release);
    }
    cqes.len() as u32
}
