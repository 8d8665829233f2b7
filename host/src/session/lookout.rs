//! A look at the SSDs while kernels run: one may be wanted back, since an operator unplugs or unbinds
//! it, report a fatal status, or be gone. Lanes that wait for it would find out at their deadline.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use driver_vfio::{Backing, Deadlines, check_alive};
use warpstore_device::{ErrorKind, IoError};

use super::Session;
use crate::Error;
use crate::brakes::Brakes;
use crate::ssd::Ssd;

/// Pause between two looks, each one read of CSTS: little for a link, and for the process of an SSD,
/// which answers on another thread than those that serve its queues.
const POLL: Duration = Duration::from_millis(20);

/// A thread that ends all waits of a session once one of its SSDs is of no more use.
pub(super) struct Lookout {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What the thread and the session tell each other.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The session ends: what is left is written, so waits are ended for an SSD that is lost only.
    ending: bool,
    /// All waits were ended, because of this.
    ended: Option<Finding>,
    /// Why, until somebody is told.
    found: Option<driver_vfio::Error>,
}

/// What may be with an SSD.
#[derive(Clone, Copy)]
enum Finding {
    /// It is there until it is let go.
    WantedBack,
    /// The one with this number answers nothing any more.
    Lost(usize),
}

impl Lookout {
    /// Watches `backings`, those of the session's SSDs.
    pub(super) fn watch(backings: Vec<Arc<dyn Backing>>, brakes: Brakes) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let builder = thread::Builder::new().name("lookout".to_owned());
        let thread = builder
            .spawn(move || run(&backings, &brakes, &of_thread))
            .map_err(|error| Error::Configuration(format!("no thread for the SSDs: {error}")))?;
        Ok(Self { shared, thread })
    }

    /// Why it has ended all waits, to the first who asks.
    fn found(&self) -> Option<driver_vfio::Error> {
        self.shared.state().found.take()
    }

    /// Ends no more waits but those for slots of an SSD that is lost, and lets those be that it has
    /// ended.
    pub(super) fn let_finish(&self, brakes: &Brakes) -> Result<(), Error> {
        let mut state = self.shared.state();
        state.ending = true;
        match state.ended {
            None => return Ok(()),
            Some(Finding::WantedBack) => {}
            Some(Finding::Lost(ssd)) => brakes.give_up(ssd)?,
        }
        brakes.release()
    }

    /// Ends the thread, and with it its hold on the backings.
    pub(super) fn end(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // Its panic has been printed.
        let _ = self.thread.join();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The life of the thread.
fn run(backings: &[Arc<dyn Backing>], brakes: &Brakes, shared: &Shared) {
    let mut lost = BTreeSet::new();
    while !shared.stop.load(Ordering::Relaxed) {
        for (index, backing) in backings.iter().enumerate() {
            if lost.contains(&index) {
                continue;
            }
            let Some((finding, error)) = look(index, backing) else {
                continue;
            };
            let mut state = shared.state();
            // If a word cannot be stored, the waits have their deadlines still.
            match finding {
                Finding::Lost(ssd) if state.ending => {
                    let _ = brakes.give_up(ssd);
                    lost.insert(ssd);
                }
                Finding::WantedBack if state.ending => {}
                _ if state.ended.is_none() => {
                    state.ended = Some(finding);
                    state.found = error;
                    let _ = brakes.abort();
                }
                _ => {}
            }
        }
        thread::park_timeout(POLL);
    }
}

/// Looks at an SSD once.
fn look(index: usize, backing: &Arc<dyn Backing>) -> Option<(Finding, Option<driver_vfio::Error>)> {
    if backing.is_wanted_back() {
        return Some((Finding::WantedBack, None));
    }
    let error = check_alive(backing, Deadlines::SSD).err()?;
    Some((Finding::Lost(index), Some(error)))
}

impl Session {
    /// Whether all waits were ended because of an SSD.
    #[cfg(test)]
    pub(crate) fn is_halted(&self) -> bool {
        let lookout = self.lookout.as_ref();
        lookout.is_some_and(|lookout| lookout.shared.state().ended.is_some())
    }

    /// An error if an SSD explains why lanes of a kernel got `first`.
    pub(super) fn check_ssds(&self, first: IoError) -> Result<(), Error> {
        // A process that is gone says more than its registers.
        for process in self.ssds.iter().filter_map(Ssd::process) {
            process.statistics()?;
        }
        let in_vain = [ErrorKind::Aborted, ErrorKind::QueueDead, ErrorKind::Timeout];
        if !in_vain.contains(&first.kind()) {
            return Ok(());
        }
        let is_wanted = |ssd: &&Ssd| ssd.backing.is_wanted_back();
        if let Some(ssd) = self.ssds.iter().find(is_wanted) {
            return Err(Error::Recalled {
                ssd: ssd.backing.name().to_owned(),
            });
        }
        if let Some(found) = self.lookout.as_ref().and_then(Lookout::found) {
            return Err(found.into());
        }
        // The deadline may have come first; and of what a GPU serves, the GPU knows.
        if let Some(resident) = &self.resident {
            resident.report(&self.ssds)?;
        }
        for ssd in &self.ssds {
            check_alive(&ssd.backing, Deadlines::SSD)?;
        }
        Ok(())
    }
}
