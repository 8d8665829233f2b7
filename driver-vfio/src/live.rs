//! The life of an enabled controller, whose end is the same for every way there: it is stopped,
//! then its memory goes back.

use std::time::Duration;

use nvme_wire::regs::{Cap, Cc, Crto, Csts, offset};

use crate::admin::AdminQueue;
use crate::backing::BarOffset;
use crate::error::{Error, Step};
use crate::memory::Mapped;
use crate::watch::Watch;

/// An enabled controller's hold on memory: its end stops the controller first.
pub(crate) struct Live {
    watch: Watch,
    cap: Cap,
    admin: Option<AdminQueue>,
    /// Memory of queues that could not be deleted, and pages of shadow doorbells.
    retained: Vec<Mapped>,
}

impl Live {
    /// Takes hold of a controller that is about to be enabled with this admin queue.
    pub(crate) fn new(watch: Watch, cap: Cap, admin: AdminQueue) -> Self {
        Self {
            watch,
            cap,
            admin: Some(admin),
            retained: Vec::new(),
        }
    }

    /// The admin queue.
    ///
    /// # Panics
    /// After `end`.
    pub(crate) fn admin(&mut self) -> &mut AdminQueue {
        self.admin
            .as_mut()
            .expect("only `end` takes the queue, and nothing follows it")
    }

    /// Keeps memory that the controller may still use, until it has stopped.
    pub(crate) fn retain(&mut self, memory: Mapped) {
        self.retained.push(memory);
    }

    /// Stops the controller, then gives the memory back; quarantines it if that fails.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        let Some(admin) = self.admin.take() else {
            return Ok(());
        };
        let mut memory = std::mem::take(&mut self.retained);
        memory.push(admin.into_memory());
        let stopped = stop(&self.watch, self.cap);
        match stopped {
            Ok(()) => drop(memory),
            Err(_) => memory.into_iter().for_each(Mapped::quarantine),
        }
        stopped
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Nobody is left to tell; `end` has kept the memory out of use.
        let _ = self.end();
    }
}

/// Longest wait for CSTS.RDY to follow CC.EN.
pub(crate) fn ready_limit(watch: &Watch, cap: Cap) -> Duration {
    // CRTO does not exist before version 2.0, which CRMS tells. All-ones would be a wait of nine
    // hours, and are what a controller reads as that is away: then CAP.TO has to do.
    let crto = match cap.crms() {
        0 => 0,
        _ => watch.backing.read32(BarOffset(offset::CRTO)),
    };
    let crto = if crto == u32::MAX { 0 } else { crto };
    watch.deadlines.ready(cap, Crto::from_bits(crto))
}

/// Clears CC.EN if it is set, and waits until the controller has stopped. A reset also ends a
/// fatal status, so that is no error here as long as RDY falls.
pub(crate) fn stop(watch: &Watch, cap: Cap) -> Result<(), Error> {
    let limit = ready_limit(watch, cap);
    let cc = Cc::from_bits(watch.read32(Step::Disable, offset::CC)?);
    if cc.en() {
        // Clearing EN before RDY has followed the last change of EN is undefined (Base 3.1.3.5).
        // A controller that never gets ready is stopped nevertheless.
        let settled = |csts: Csts| csts.rdy() || csts.cfs();
        match watch.wait(Step::Disable, limit, Watch::raw_csts, settled) {
            Ok(()) | Err(Error::NotInTime { .. }) => {}
            Err(error) => return Err(error),
        }
        watch
            .backing
            .write32(BarOffset(offset::CC), cc.with_en(false).into_bits());
    }
    watch.wait(Step::Disable, limit, Watch::raw_csts, |csts| !csts.rdy())
}
