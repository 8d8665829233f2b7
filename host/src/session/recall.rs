//! SSDs that are wanted back: an operator unplugs or unbinds one, and the kernel waits for whoever
//! has it open. And those whose process stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::processes::clients;
use crate::Error;
use crate::ssd::{Ssd, ask};

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
    /// Watches `ssds`; `abort` ends all waits.
    pub(super) fn watch(ssds: &[Ssd], abort: impl Fn() + Send + 'static) -> Result<Self, Error> {
        let backings = ssds.iter().map(|ssd| Arc::clone(&ssd.backing));
        let (backings, processes) = (backings.collect::<Vec<_>>(), clients(ssds));
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
                    abort();
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
