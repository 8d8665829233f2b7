//! Threads that serve controllers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use warpstore_simt::{Native, Platform};

use super::Controller;
use crate::layout::header;
use crate::service::step;

/// Turns without work after which a thread sleeps between turns instead of giving way.
const PATIENCE: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// Threads that serve the queues of controllers until this is dropped.
///
/// Dropping stops the threads after their current turn and waits for them.
pub struct Serving {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Serves the admin queues of `controllers` on one thread and, for `io_threads` above 0,
    /// their I/O queues on that many: thread `t` takes queue pairs `t`, `t + io_threads`, …,
    /// counted through all controllers, and the first thread the admin queues too. With 0 the I/O
    /// queues are left to somebody else, such as a GPU.
    ///
    /// # Errors
    /// What the operating system says if a thread cannot be started.
    pub fn start(controllers: Vec<Arc<Controller>>, io_threads: usize) -> io::Result<Self> {
        let mut serving = Self {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for worker in 0..io_threads.max(1) {
            let turns = Turns {
                controllers: controllers.clone(),
                worker,
                workers: io_threads,
            };
            let stop = serving.stop.clone();
            let name = format!("nvme-model-{worker}");
            let thread = thread::Builder::new()
                .name(name)
                .spawn(move || turns.run(&stop));
            // On an error the threads already started end with `serving`.
            serving.threads.push(thread?);
        }
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !thread::panicking() {
                panic!("a thread that served an emulated controller panicked");
            }
        }
    }
}

/// One thread's share.
struct Turns {
    controllers: Vec<Arc<Controller>>,
    worker: usize,
    workers: usize,
}

impl Turns {
    fn run(&self, stop: &AtomicBool) {
        let serves_io = self.workers != 0;
        if serves_io {
            self.announce(1);
        }
        let mut idle = 0u32;
        while !stop.load(Ordering::Relaxed) {
            if self.turn() {
                idle = 0;
            } else if idle < PATIENCE {
                idle += 1;
                thread::yield_now();
            } else {
                thread::sleep(NAP);
            }
        }
        if serves_io {
            self.announce(u64::MAX);
        }
    }

    /// One step of each of the thread's queues.
    fn turn(&self) -> bool {
        let mut worked = false;
        let mut queue = self.worker;
        for controller in &self.controllers {
            if self.worker == 0 {
                worked |= controller.step_admin();
            }
            let queues = controller.configuration().queues as usize;
            while self.workers != 0 && queue < queues {
                worked |= step::<1>(controller.image_here(), queue as u32, Native::now_ns());
                queue += self.workers;
            }
            queue = queue.saturating_sub(queues);
        }
        worked
    }

    /// Adds to the number of services that a controller waits for when it deletes a queue.
    fn announce(&self, count: u64) {
        for controller in &self.controllers {
            controller
                .words
                .word(header::SERVING)
                .fetch_add(count, Ordering::AcqRel);
        }
    }
}
