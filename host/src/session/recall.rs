//! SSDs that are wanted back: an operator unplugs or unbinds one, and the kernel waits for whoever
//! has it open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use driver_vfio::Backing;
use warpstore_device::parts::simt::{Cell, NativeCell, Order, System};

use crate::Error;

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(20);

/// A thread that ends all waits of a session once one of its SSDs is wanted back.
pub(super) struct Recall {
    stop: Arc<AtomicBool>,
    /// Returns whether it has done so.
    thread: JoinHandle<bool>,
}

impl Recall {
    /// Watches `backings`; `abort` is the session's word, which outlives this.
    pub(super) fn watch(
        backings: Vec<Arc<dyn Backing>>,
        abort: NativeCell<u32, System>,
    ) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            while !stopped.load(Ordering::Relaxed) {
                if backings.iter().any(|backing| backing.is_wanted_back()) {
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
