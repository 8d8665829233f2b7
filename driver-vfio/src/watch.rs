//! Bounded waits: every look at CSTS that the driver takes.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nvme_wire::regs::{Cap, Crto, Csts, offset};

use warpstore_simt::{NativeCell, System};

use crate::backing::{Backing, BarOffset};
use crate::error::{Error, Step};

/// Pause between two looks at a register.
const POLL: Duration = Duration::from_micros(100);

/// How long the driver waits for a controller.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// What CAP.TO and CRTO count: 500 ms by the specification. Emulated controllers that never
    /// get ready are given less.
    pub ready_unit: Duration,
    /// For an admin command, and for one of block I/O until it is aborted.
    pub command: Duration,
    /// For a normal shutdown, if the controller (RTD3E) does not ask for more.
    pub shutdown: Duration,
    /// All-ones for this long mean that the controller is gone. Controllers are known to read as
    /// all-ones for some 10 ms while they reset.
    pub removed: Duration,
}

impl Deadlines {
    /// For SSDs: the specification's unit, and what SSDs are known to need.
    pub const SSD: Self = Self {
        ready_unit: Duration::from_millis(500),
        command: Duration::from_secs(10),
        shutdown: Duration::from_secs(10),
        removed: Duration::from_millis(200),
    };

    /// How long CSTS.RDY may take to follow CC.EN (Base 3.1.3.1 and 3.1.3.21).
    ///
    /// At least one unit: CAP.TO is 0 in some controllers, and CRTO in others.
    pub(crate) fn ready(&self, cap: Cap, crto: Crto) -> Duration {
        let with_media = cap.crms() & Cap::CRMS_WITH_MEDIA != 0;
        let crwmt = if with_media { crto.crwmt() } else { 0 };
        self.ready_unit * u32::from(crwmt.max(cap.to().into()).max(1))
    }
}

/// Watches one controller: removal on every look, fatal status on all but those of a reset.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) deadlines: Deadlines,
}

impl Watch {
    /// What messages call the controller.
    pub(crate) fn name(&self) -> String {
        self.backing.name().into()
    }

    /// The word that rings the doorbell at `at`.
    pub(crate) fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, Error> {
        self.backing.doorbell(at).map_err(|source| Error::Backing {
            controller: self.name(),
            action: "reach a doorbell",
            source,
        })
    }

    /// Reads a 32-bit register that is never all-ones while the controller is there.
    pub(crate) fn read32(&self, step: Step, at: u64) -> Result<u32, Error> {
        let begin = Instant::now();
        loop {
            let waited = begin.elapsed();
            let value = self.backing.read32(BarOffset(at));
            if value != u32::MAX {
                return Ok(value);
            }
            if waited >= self.deadlines.removed {
                return Err(Error::Removed {
                    controller: self.name(),
                    step,
                });
            }
            sleep(POLL);
        }
    }

    /// Reads CAP, which is never all-ones either.
    pub(crate) fn cap(&self, step: Step) -> Result<Cap, Error> {
        let read = || self.backing.read64(BarOffset(offset::CAP));
        let mut bits = read();
        if bits == u64::MAX {
            // VS tells whether the controller was away for a moment only.
            self.read32(step, offset::VS)?;
            bits = read();
        }
        if bits == u64::MAX {
            return Err(Error::Removed {
                controller: self.name(),
                step,
            });
        }
        Ok(Cap::from_bits(bits))
    }

    /// Reads CSTS, whatever it says about fatal errors: for resets, which end those.
    pub(crate) fn raw_csts(&self, step: Step) -> Result<Csts, Error> {
        self.read32(step, offset::CSTS).map(Csts::from_bits)
    }

    /// Reads CSTS; an error if it reports a fatal one.
    pub(crate) fn csts(&self, step: Step) -> Result<Csts, Error> {
        let csts = self.raw_csts(step)?;
        if csts.cfs() {
            return Err(Error::Fatal {
                controller: self.name(),
                step,
                csts,
            });
        }
        Ok(csts)
    }

    /// Reads CSTS by `look` until it is as `wanted`, for at most `limit`.
    pub(crate) fn wait(
        &self,
        step: Step,
        limit: Duration,
        look: impl Fn(&Self, Step) -> Result<Csts, Error>,
        wanted: impl Fn(Csts) -> bool,
    ) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            // The clock is read before the register, so that a controller which gets there while
            // this thread sleeps is not blamed.
            let waited = begin.elapsed();
            let csts = look(self, step)?;
            if wanted(csts) {
                return Ok(());
            }
            if waited >= limit {
                let controller = self.name();
                return Err(if csts.cfs() {
                    Error::Fatal {
                        controller,
                        step,
                        csts,
                    }
                } else {
                    Error::NotInTime {
                        controller,
                        step,
                        csts,
                        waited,
                    }
                });
            }
            sleep(POLL);
        }
    }
}

/// Looks at a controller that others submit to: at once, unless its registers read all-ones, then for
/// as long as `deadlines` says that a removal takes.
///
/// # Errors
/// `Fatal`, or `Removed`.
pub fn check_alive(backing: &Arc<dyn Backing>, deadlines: Deadlines) -> Result<(), Error> {
    let watch = Watch {
        backing: Arc::clone(backing),
        deadlines,
    };
    watch.csts(Step::Run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_limit_is_the_largest_and_never_zero() {
        let ready = |cap, crto| Deadlines::SSD.ready(cap, crto).as_millis();
        assert_eq!(ready(Cap::new(), Crto::new()), 500);
        assert_eq!(ready(Cap::new().with_to(255), Crto::new()), 127_500);
        let slow = Crto::new().with_crwmt(0xffff);
        assert_eq!(
            ready(Cap::new().with_to(2), slow),
            1000,
            "CRTO counts only with CRMS"
        );
        let cap = Cap::new().with_to(2).with_crms(Cap::CRMS_WITH_MEDIA);
        assert_eq!(ready(cap, slow), 32_767_500);
        assert_eq!(ready(cap, Crto::new()), 1000);
    }
}
