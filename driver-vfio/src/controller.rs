//! Bring-up and shutdown of a controller, step by step (Base 3.5 and 3.6).
//!
//! ```text
//! open ─► Controller<Disabled> ── enable ─► Controller<Enabled> ── shutdown ─► Controller<Disabled>
//!           CAP, VS               AQA ASQ ACQ, CC, RDY = 1              delete SQs, CQs
//!           EN = 0, RDY = 0       Identify, Number of Queues            SHN, SHST, EN = 0
//! ```
//!
//! An enabled controller that is dropped is disabled, also by a panic: a controller that goes on
//! with memory which was given to others corrupts it, and some hang if they are reset enabled.
//! Memory goes back to its owner only once the controller is known to have stopped.
//!
//! Not here: interrupts (queues are polled), firmware, formats, asynchronous events, SGLs,
//! command sets besides NVM.

use std::sync::Arc;
use std::time::Duration;

use nvme_wire::admin::{Cns, NumberOfQueues};
use nvme_wire::identify::{IdentifyController, IdentifyNamespace, NamespaceList};
use nvme_wire::regs::{Cap, Cc, Crto, Csts, Vs, doorbell_offset, offset};
use nvme_wire::{Cqe, Sqe, Status};

use crate::admin::{ADMIN_PRIVATE_WORDS, AdminQueue};
use crate::backing::{Backing, BarOffset};
use crate::error::{Error, Step};
use crate::memory::{AdminMemory, Mapped};
use crate::namespace::{ControllerInfo, Namespace, page_bytes};
use crate::queue_pair::{QueuePair, QueuePairRequest};
use crate::watch::{Deadlines, Watch};

/// Largest CAP.MPSMIN that is supported: pages of 64 KiB.
const MAX_MPSMIN: u8 = 4;
/// Most entries that nvme-queue gives a ring.
const MAX_RING: u32 = 4096;
/// Namespaces that are listed, if a controller cannot list them itself and says that it has more.
const MAX_NAMESPACES: u32 = NamespaceList::LEN as u32;

/// State of a controller: CC.EN = 0 and CSTS.RDY = 0. It uses no memory.
pub struct Disabled(());

/// State of a controller: ready, with an admin queue.
pub struct Enabled {
    live: Live,
    info: ControllerInfo,
    awupf_z: u16,
    n_io_queues: u16,
    /// Identifiers of the queue pairs that exist.
    pairs: Vec<u16>,
}

/// One NVMe controller, owned by one thread.
pub struct Controller<State> {
    watch: Watch,
    cap: Cap,
    vs: Vs,
    state: State,
}

impl<State> Controller<State> {
    /// Controller Capabilities.
    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// Version.
    pub fn vs(&self) -> Vs {
        self.vs
    }

    /// The memory page size in use, to which queues are aligned. Bytes.
    pub fn page_bytes(&self) -> u64 {
        page_bytes(self.cap)
    }

    /// Bytes of [`AdminCells::shared`](crate::AdminCells::shared) that [`Controller::enable`]
    /// needs.
    pub fn admin_bytes(&self) -> u64 {
        AdminQueue::shared_bytes(self.page_bytes())
    }

    /// Most entries of an I/O queue: MQES + 1, or fewer if rings do not get so large.
    pub fn max_entries(&self) -> u32 {
        // In 32 bits: MQES is often 0xffff, and 0xffff + 1 is not 0.
        (u32::from(self.cap.mqes_z()) + 1).min(MAX_RING)
    }
}

impl Controller<Disabled> {
    /// Finds out what `backing` leads to, and disables it.
    ///
    /// # Errors
    /// `Removed`, `Unusable` if this is no controller for this driver, `NotInTime` or `Fatal` if
    /// it does not stop.
    pub fn open(backing: Arc<dyn Backing>, deadlines: Deadlines) -> Result<Self, Error> {
        let watch = Watch { backing, deadlines };
        let vs = Vs::from_bits(watch.read32(Step::Open, offset::VS)?);
        let cap = Cap::from_bits(watch.backing.read64(BarOffset(offset::CAP)));
        let controller = Self {
            watch,
            cap,
            vs,
            state: Disabled(()),
        };
        controller.check_capabilities()?;
        stop(&controller.watch, controller.cap)?;
        Ok(controller)
    }

    /// Enables the controller with an admin queue in `memory`, identifies it and asks for
    /// `io_queues` I/O queue pairs, of which it may grant fewer.
    ///
    /// # Errors
    /// `Memory` if `memory` is too small or not aligned; else by what the controller does. It is
    /// disabled then, and [`Controller::open`] tries again.
    pub fn enable(
        mut self,
        memory: Arc<dyn AdminMemory>,
        io_queues: u16,
    ) -> Result<Controller<Enabled>, Error> {
        let cc = self.configure()?;
        let page = self.page_bytes();
        let memory = Mapped::zeroed(
            &self.watch.backing,
            memory,
            self.admin_bytes(),
            ADMIN_PRIVATE_WORDS,
            page,
        )?;
        let admin = AdminQueue::configure(self.watch.clone(), memory, page, self.cap.dstrd())?;
        let limit = ready_limit(&self.watch, self.cap);
        let mut live = Live {
            watch: self.watch.clone(),
            cap: self.cap,
            admin: Some(admin),
        };
        self.watch
            .backing
            .write32(BarOffset(offset::CC), cc.with_en(true).into_bits());
        self.watch
            .wait(Step::Enable, limit, Watch::csts, |csts| csts.rdy())?;

        let page = IdentifyController::from_words(live.admin().identify(Cns::CONTROLLER, 0)?);
        self.check_entry_sizes(&page)?;
        let info = ControllerInfo::new(&page, self.cap);
        let n_io_queues = set_number_of_queues(live.admin(), io_queues)?;
        let awupf_z = page.awupf_z;
        let state = Enabled {
            live,
            info,
            awupf_z,
            n_io_queues,
            pairs: Vec::new(),
        };
        Ok(Controller {
            watch: self.watch,
            cap: self.cap,
            vs: self.vs,
            state,
        })
    }

    /// CAP must describe a controller that this driver can run.
    fn check_capabilities(&self) -> Result<(), Error> {
        let cap = self.cap;
        let reason = if cap.into_bits() == u64::MAX {
            return Err(Error::Removed {
                controller: self.watch.name(),
                step: Step::Open,
            });
        } else if cap.into_bits() == 0 {
            "its registers read zero, so there is no NVMe controller or its memory is not enabled"
        } else if cap.mqes_z() == 0 {
            "CAP.MQES says that queues have one entry, which the specification forbids"
        } else if cap.mpsmin() > MAX_MPSMIN {
            "CAP.MPSMIN asks for memory pages above 64 KiB"
        } else if cap.css() & Cap::CSS_NVM == 0 {
            "CAP.CSS lacks the NVM Command Set"
        } else {
            return Ok(());
        };
        Err(Error::Unusable {
            controller: self.watch.name(),
            reason,
            cap,
        })
    }

    /// Writes CC with everything but EN, and reads CAP again, which may depend on it.
    fn configure(&mut self) -> Result<Cc, Error> {
        self.watch.csts(Step::Configure)?;
        // The NVM Command Set alone, also where CC.CSS could select all sets: then a namespace of
        // another set refuses its commands instead of misunderstanding them.
        let cc = Cc::new()
            .with_css(Cc::CSS_NVM)
            .with_mps(self.cap.mpsmin())
            .with_iosqes(Sqe::SIZE_LOG2)
            .with_iocqes(Cqe::SIZE_LOG2);
        self.watch
            .backing
            .write32(BarOffset(offset::CC), cc.into_bits());
        self.cap = Cap::from_bits(self.watch.backing.read64(BarOffset(offset::CAP)));
        self.check_capabilities()?;
        Ok(cc.with_mps(self.cap.mpsmin()))
    }

    fn check_entry_sizes(&self, page: &IdentifyController) -> Result<(), Error> {
        let fits = |sizes: nvme_wire::identify::EntrySizes, log2| {
            (sizes.min()..=sizes.max()).contains(&log2)
        };
        if fits(page.sqes, Sqe::SIZE_LOG2) && fits(page.cqes, Cqe::SIZE_LOG2) {
            return Ok(());
        }
        Err(Error::Unusable {
            controller: self.watch.name(),
            reason: "it does not take SQEs of 64 and CQEs of 16 bytes",
            cap: self.cap,
        })
    }
}

impl Controller<Enabled> {
    /// What the controller says about itself.
    pub fn info(&self) -> &ControllerInfo {
        &self.state.info
    }

    /// I/O queue pairs that the controller granted, at most as many as were asked for.
    pub fn n_io_queues(&self) -> u16 {
        self.state.n_io_queues
    }

    /// Identifiers of the active namespaces, ascending; the first 1024 of them.
    ///
    /// A controller that cannot list them is asked for each.
    ///
    /// # Errors
    /// As for every admin command.
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, Error> {
        let admin = self.state.live.admin();
        match admin.identify(Cns::ACTIVE_NAMESPACES, 0) {
            Ok(words) => Ok(NamespaceList::from_words(words).active().collect()),
            Err(Error::Refused { status, .. }) if status.code() == Status::INVALID_FIELD => {
                let mut active = Vec::new();
                for nsid in 1..=self.state.info.n_namespaces.min(MAX_NAMESPACES) {
                    let words = admin.identify(Cns::NAMESPACE, nsid)?;
                    if IdentifyNamespace::from_words(words).nsze != 0 {
                        active.push(nsid);
                    }
                }
                Ok(active)
            }
            Err(error) => Err(error),
        }
    }

    /// Identifies namespace `nsid`.
    ///
    /// # Errors
    /// `Namespace` if it is inactive or has a format that cannot be used; else as for every admin
    /// command.
    pub fn namespace(&mut self, nsid: u32) -> Result<Namespace, Error> {
        let words = self.state.live.admin().identify(Cns::NAMESPACE, nsid)?;
        let page = IdentifyNamespace::from_words(words);
        Namespace::new(
            nsid,
            &page,
            self.state.info.max_transfer,
            self.state.awupf_z,
        )
        .map_err(|fault| Error::Namespace {
            controller: self.watch.name(),
            nsid,
            fault,
        })
    }

    /// Creates the completion queue, then the submission queue; neither is left if one fails.
    ///
    /// # Errors
    /// `QueueSize`; `Backing` if a doorbell lies outside the BAR; `Refused` if the controller does
    /// not take the identifier or the memory; else as for every admin command.
    pub fn create_queue_pair(&mut self, request: QueuePairRequest) -> Result<QueuePair, Error> {
        let QueuePairRequest {
            qid,
            entries,
            sq,
            cq,
        } = request;
        let most = self.max_entries();
        if !entries.is_power_of_two() || !(2..=most).contains(&entries) {
            let controller = self.watch.name();
            return Err(Error::QueueSize {
                controller,
                asked: entries,
                most,
            });
        }
        let doorbell = |is_cq| {
            let at = BarOffset(doorbell_offset(qid, is_cq, self.cap.dstrd()));
            self.watch
                .doorbell(at)
                .map(|doorbell| doorbell.address() as u64)
        };
        let rings = nvme_queue::RingAddresses {
            sq: sq.address,
            cq: cq.address,
            sq_doorbell: doorbell(false)?,
            cq_doorbell: doorbell(true)?,
        };
        let qsize_z = (entries - 1) as u16;
        let admin = self.state.live.admin();
        admin.run(Sqe::create_io_cq(qid, qsize_z, cq.iova.0))?;
        if let Err(error) = admin.run(Sqe::create_io_sq(qid, qsize_z, qid, sq.iova.0)) {
            // The first error is the one to report; a queue that stays dies with the controller.
            let _ = admin.run(Sqe::delete_io_cq(qid));
            return Err(error);
        }
        self.state.pairs.push(qid);
        Ok(QueuePair {
            qid,
            entries,
            rings,
        })
    }

    /// Deletes a queue pair: the submission queue, then the completion queue. Commands that have
    /// not completed may still do so meanwhile; afterwards its memory is the caller's again.
    ///
    /// # Errors
    /// `Refused` if there is no such pair; else as for every admin command. Its memory then stays
    /// in use until the controller is disabled.
    pub fn delete_queue_pair(&mut self, qid: u16) -> Result<(), Error> {
        let admin = self.state.live.admin();
        admin.run(Sqe::delete_io_sq(qid))?;
        admin.run(Sqe::delete_io_cq(qid))?;
        self.state.pairs.retain(|&pair| pair != qid);
        Ok(())
    }

    /// Shuts the controller down: queue pairs deleted, caches written, disabled (Base 3.6).
    /// Submitters have stopped.
    ///
    /// # Errors
    /// Whatever step fails; the controller is then disabled all the same if that is possible, but
    /// what its cache held may be lost.
    pub fn shutdown(mut self) -> Result<Controller<Disabled>, Error> {
        for qid in std::mem::take(&mut self.state.pairs) {
            self.delete_queue_pair(qid)?;
        }
        let cc = Cc::from_bits(self.watch.read32(Step::Shutdown, offset::CC)?);
        let request = cc.with_shn(Cc::SHN_NORMAL);
        self.watch
            .backing
            .write32(BarOffset(offset::CC), request.into_bits());
        let asked = Duration::from_micros(self.state.info.shutdown_us.into());
        let limit = self.watch.deadlines.shutdown.max(asked);
        let complete = |csts: Csts| csts.shst() == Csts::SHST_COMPLETE;
        self.watch
            .wait(Step::Shutdown, limit, Watch::csts, complete)?;
        self.state.live.end()?;
        Ok(Controller {
            watch: self.watch,
            cap: self.cap,
            vs: self.vs,
            state: Disabled(()),
        })
    }
}

/// An enabled controller's hold on memory: its end stops the controller first.
struct Live {
    watch: Watch,
    cap: Cap,
    admin: Option<AdminQueue>,
}

impl Live {
    fn admin(&mut self) -> &mut AdminQueue {
        self.admin
            .as_mut()
            .expect("only `end` takes the queue, and nothing follows it")
    }

    /// Stops the controller, then gives the memory back; quarantines it if that fails.
    fn end(&mut self) -> Result<(), Error> {
        let Some(admin) = self.admin.take() else {
            return Ok(());
        };
        let memory = admin.into_memory();
        let stopped = stop(&self.watch, self.cap);
        match stopped {
            Ok(()) => drop(memory),
            Err(_) => memory.quarantine(),
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
fn ready_limit(watch: &Watch, cap: Cap) -> Duration {
    // CRTO does not exist before version 2.0, which CRMS tells. All-ones may be its value.
    let crto = if cap.crms() == 0 {
        0
    } else {
        watch.backing.read32(BarOffset(offset::CRTO))
    };
    watch.deadlines.ready(cap, Crto::from_bits(crto))
}

/// Clears CC.EN if it is set, and waits until the controller has stopped. A reset also ends a
/// fatal status, so that is no error here as long as RDY falls.
fn stop(watch: &Watch, cap: Cap) -> Result<(), Error> {
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

/// Asks for `asked` I/O queue pairs (at least 1) and returns how many there may be.
///
/// Always sent: some controllers refuse to create queues before. The answer counts from zero, for
/// each kind of queue, and may be more than was asked for.
fn set_number_of_queues(admin: &mut AdminQueue, asked: u16) -> Result<u16, Error> {
    let asked = asked.max(1);
    let asked_z = asked - 1;
    let request = NumberOfQueues::new()
        .with_nsq_z(asked_z)
        .with_ncq_z(asked_z);
    let granted = NumberOfQueues::from_bits(admin.run(Sqe::set_number_of_queues(request))?);
    Ok(granted.nsq_z().min(granted.ncq_z()).min(asked_z) + 1)
}
