//! SSDs that are wanted back: an operator unplugs or unbinds one, and the kernel waits for whoever
//! has it open. And those whose process stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use driver_vfio::Backing;
use driver_vfio::user::Client;
use warpstore_device::parts::simt::{Cell, NativeCell, Order, System};

use crate::Error;
use crate::ssd::ask;

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(20);

/// How often a process is asked whether it is there. Beyond the session's time-out, a process that
/// stands still holds nobody longer than this.
const ASK: Duration = Duration::from_secs(1);

/// A thread that ends all waits of a session once one of its SSDs is wanted back, or does not answer.
pub(super) struct Recall {
    stop: Arc<AtomicBool>,
    /// Returns whether it has done so.
    thread: JoinHandle<bool>,
}

impl Recall {
    /// Watches `backings`, and `processes` that are SSDs; `abort` is the session's word, which
    /// outlives this.
    pub(super) fn watch(
        backings: Vec<Arc<dyn Backing>>,
        processes: Vec<Arc<Client>>,
        abort: NativeCell<u32, System>,
    ) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut asked = Instant::now();
        // Accesses end at their own deadlines, but who has hits in between goes on to the next one.
        let mut is_stuck = move || {
            let is_time = asked.elapsed() >= ASK;
            if is_time {
                asked = Instant::now();
            }
            is_time && ask(&processes).iter().any(Result::is_err)
        };
        let watch = move || {
            while !stopped.load(Ordering::Relaxed) {
                if backings.iter().any(|backing| backing.is_wanted_back()) || is_stuck() {
                    // Ordering: [SQ-8] the word carries no data.
                    abort.store(1, Order::Relaxed);
                    return true;
                }
                thread::park_timeout(POLL);
            }
            false
        };
        let builder = thread::Builder::new().name("recall".to_owned());
        let thread = builder
            .spawn(watch)
            .map_err(|error| Error::Configuration(format!("no thread for the SSDs: {error}")))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread, and with it its hold on the backings. True if it has ended all waits.
    pub(super) fn end(self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // Its panic has been printed.
        self.thread.join().unwrap_or(false)
    }
}
