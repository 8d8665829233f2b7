//! The emulated controller with a thread that serves it, and memory for queues.

use std::sync::Arc;
use std::time::Duration;

use driver_vfio::{
    Backing, Controller, Deadlines, DmaRegion, Enabled, Error, Model, QueuePairRequest, Ring,
};
use nvme_model::{Configuration, Media, Profile, Serving};
use nvme_wire::regs::{Cc, offset};

use crate::memory::{Admin, Words};

/// An SSD's, but removal is believed sooner.
const DEADLINES: Deadlines = Deadlines {
    removed: Duration::from_millis(20),
    ..Deadlines::SSD
};

pub fn configuration() -> Configuration {
    let namespace = |lbas, lba_bytes| nvme_model::Namespace { lbas, lba_bytes };
    Configuration {
        serial: "WS-0001".into(),
        model: "bring-up".into(),
        namespaces: vec![
            namespace(64, 512),
            namespace(32, 4096),
            namespace(1000, 512),
        ],
        mdts: 5,
        queue_entries: 64,
        dstrd: 1,
        to: 4,
        queues: 3,
        profile: Profile::IDEAL,
        volatile_write_cache: true,
        shadow_doorbells: false,
        faults: nvme_model::Faults::none(),
    }
}

/// An emulated controller and the thread that serves it.
pub struct Rig {
    _serving: Serving,
    pub model: Arc<nvme_model::Controller>,
    pub backing: Arc<Model>,
}

impl Rig {
    pub fn new(configuration: Configuration) -> Self {
        let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
        let model = nvme_model::Controller::new(configuration, media, None, None).unwrap();
        let model = Arc::new(model);
        let serving = Serving::start(vec![model.clone()], 1).unwrap();
        Self {
            _serving: serving,
            backing: Arc::new(Model::new(model.clone())),
            model,
        }
    }

    pub fn enable(&self, io_queues: u16) -> Controller<Enabled> {
        bring_up(self.backing.clone(), io_queues).unwrap()
    }

    pub fn cc(&self) -> Cc {
        Cc::from_bits(self.model.read32(offset::CC))
    }
}

pub fn bring_up(backing: Arc<dyn Backing>, io_queues: u16) -> Result<Controller<Enabled>, Error> {
    bring_up_within(backing, io_queues, DEADLINES)
}

pub fn bring_up_within(
    backing: Arc<dyn Backing>,
    io_queues: u16,
    deadlines: Deadlines,
) -> Result<Controller<Enabled>, Error> {
    let controller = Controller::open(backing, deadlines)?;
    let memory = Admin::new(controller.admin_bytes());
    controller.enable(memory, io_queues)
}

/// A request for a queue pair whose rings lie in `memory`, which is mapped.
pub fn request(memory: &Words, qid: u16, entries: u32) -> QueuePairRequest {
    let [sq, cq] = [0, 4096].map(|offset| {
        let address = DmaRegion::from(memory.cells()).address() + offset;
        Ring {
            address,
            iova: driver_vfio::Iova(address),
        }
    });
    QueuePairRequest {
        qid,
        entries,
        sq,
        cq,
    }
}

/// Two zeroed pages, for rings of up to 64 entries.
pub fn rings() -> Words {
    let memory = Words::new(2 * 4096 / 8);
    memory.zero();
    memory
}
