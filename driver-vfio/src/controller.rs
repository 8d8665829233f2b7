//! Bring-up of a controller, step by step (Base 3.5).
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

use nvme_wire::admin::{Cns, NumberOfQueues};
use nvme_wire::identify::{EntrySizes, IdentifyController};
use nvme_wire::regs::{Cap, Cc, Vs, offset};
use nvme_wire::{Cqe, Sqe};

use crate::admin::AdminQueue;
use crate::backing::{Backing, BarOffset};
use crate::cpu_queue::QUEUE_PRIVATE_WORDS;
use crate::error::{Error, Step};
use crate::live::{Live, ready_limit, stop};
use crate::memory::{Mapped, QueueMemory};
use crate::namespace::{ControllerInfo, page_bytes};
use crate::shadow::{self, Shadows};
use crate::watch::{Deadlines, Watch};

/// Largest CAP.MPSMIN that is supported: pages of 64 KiB.
const MAX_MPSMIN: u8 = 4;
/// Most entries that nvme-queue gives a ring.
const MAX_RING: u32 = 4096;
/// State of a controller: CC.EN = 0 and CSTS.RDY = 0. It uses no memory.
pub struct Disabled(pub(crate) ());

/// State of a controller: ready, with an admin queue.
pub struct Enabled {
    pub(crate) live: Live,
    pub(crate) info: ControllerInfo,
    pub(crate) awupf_z: u16,
    pub(crate) n_io_queues: u16,
    /// Identifiers of the queue pairs that exist.
    pub(crate) pairs: Vec<u16>,
    /// Doorbells in memory, if the controller takes them from there.
    pub(crate) shadows: Option<Shadows>,
}

/// One NVMe controller, owned by one thread.
pub struct Controller<State> {
    pub(crate) watch: Watch,
    pub(crate) cap: Cap,
    pub(crate) vs: Vs,
    pub(crate) state: State,
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

    /// Bytes of [`QueueCells::shared`](crate::QueueCells::shared) that [`Controller::enable`]
    /// needs.
    pub fn admin_bytes(&self) -> u64 {
        AdminQueue::shared_bytes(self.page_bytes())
    }

    /// Bytes of [`QueueCells::shared`](crate::QueueCells::shared) that
    /// [`Controller::use_shadow_doorbells`] needs.
    pub fn shadow_bytes(&self) -> u64 {
        shadow::shared_bytes(self.page_bytes())
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
        let cap = watch.cap(Step::Open)?;
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
        memory: Arc<dyn QueueMemory>,
        io_queues: u16,
    ) -> Result<Controller<Enabled>, Error> {
        let cc = self.configure()?;
        let page = self.page_bytes();
        let memory = Mapped::zeroed(
            &self.watch.backing,
            memory,
            self.admin_bytes(),
            QUEUE_PRIVATE_WORDS,
            page,
        )?;
        let admin = AdminQueue::configure(self.watch.clone(), memory, page, self.cap.dstrd())?;
        let limit = ready_limit(&self.watch, self.cap);
        let mut live = Live::new(self.watch.clone(), self.cap, admin);
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
            shadows: None,
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
        let reason = if cap.into_bits() == 0 {
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
        // The NVM Command Set alone, also where CC.CSS could select all sets: namespaces of another
        // set are refused (`check_command_set`).
        let cc = Cc::new()
            .with_css(Cc::CSS_NVM)
            .with_mps(self.cap.mpsmin())
            .with_iosqes(Sqe::SIZE_LOG2)
            .with_iocqes(Cqe::SIZE_LOG2);
        self.watch
            .backing
            .write32(BarOffset(offset::CC), cc.into_bits());
        self.cap = self.watch.cap(Step::Configure)?;
        self.check_capabilities()?;
        Ok(cc.with_mps(self.cap.mpsmin()))
    }

    fn check_entry_sizes(&self, page: &IdentifyController) -> Result<(), Error> {
        let fits = |sizes: EntrySizes, log2| (sizes.min()..=sizes.max()).contains(&log2);
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
