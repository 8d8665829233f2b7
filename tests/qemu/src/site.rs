//! A controller with memory that it reaches: what the suite runs over.

use std::sync::Arc;

use driver_vfio::{
    Access, Backing, BlockIo, Controller, Deadlines, Enabled, Iova, Namespace, QueuePair,
    QueuePairRequest, Ring,
};
use warpstore_simt::{Cell, Cells, Order};

use crate::memory::{Admin, Submitter, Words};
use crate::setup::Setup;

/// A controller, memory for it, and what is known of it from elsewhere than itself.
pub struct Site {
    /// The way to the controller.
    pub backing: Arc<dyn Backing>,
    /// Gives out memory of this many bytes that the backing can map.
    pub allocate: Box<dyn Fn(u64) -> Words>,
    /// What the controller should say.
    pub expected: Expected,
    /// Doorbells are rung in memory, which the controller offers; pairs are behind a proxy then.
    pub shadow_doorbells: bool,
}

/// What a controller was made as.
pub struct Expected {
    /// Serial number.
    pub serial: String,
    /// Largest transfer in bytes, by MDTS and one PRP list.
    pub max_transfer: u64,
    /// True if the controller, and not only the driver, limits transfers to that.
    pub limits_transfers: bool,
    /// I/O queue pairs.
    pub queues: u16,
    /// NSID, blocks and log2 of the block size of each namespace.
    pub namespaces: Vec<(u32, u64, u8)>,
}

impl Expected {
    /// What a controller of QEMU's should say.
    pub fn of(setup: &Setup) -> Self {
        /// What one page of PRP entries describes.
        const BY_LIST: u64 = 2 << 20;
        let max_transfer = match setup.mdts {
            0 => BY_LIST,
            mdts => BY_LIST.min(4096 << mdts),
        };
        let namespaces = setup.namespaces.iter();
        Self {
            serial: setup.serial.clone(),
            max_transfer,
            limits_transfers: max_transfer < BY_LIST,
            queues: setup.queues,
            namespaces: namespaces
                .map(|ns| (ns.nsid, ns.bytes >> ns.block_shift, ns.block_shift))
                .collect(),
        }
    }
}

/// Memory that is mapped for the controller; dropping it takes the mapping back.
pub struct Buffer {
    /// The memory.
    pub words: Words,
    /// Where the controller finds it.
    pub iova: Iova,
    backing: Arc<dyn Backing>,
}

impl Site {
    /// Brings the controller up and asks for `io_queues` pairs.
    ///
    /// # Errors
    /// As the driver's.
    ///
    /// # Panics
    /// If it has no shadow doorbells and ought to.
    pub fn try_enable(&self, io_queues: u16) -> Result<Controller<Enabled>, driver_vfio::Error> {
        let controller = Controller::open(Arc::clone(&self.backing), Deadlines::SSD)?;
        let shared = (self.allocate)(controller.admin_bytes());
        let mut controller = controller.enable(Admin::sharing(shared), io_queues)?;
        if self.shadow_doorbells {
            let memory = Admin::sharing((self.allocate)(controller.shadow_bytes()));
            let used = controller.use_shadow_doorbells(memory)?;
            assert!(used, "it offers shadow doorbells");
        }
        Ok(controller)
    }

    /// Brings the controller up and asks for `io_queues` pairs.
    ///
    /// # Panics
    /// If that fails.
    pub fn enable(&self, io_queues: u16) -> Controller<Enabled> {
        self.try_enable(io_queues)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Maps memory for the controller.
    ///
    /// # Panics
    /// If there is none.
    pub fn buffer(&self, bytes: u64) -> Buffer {
        let words = (self.allocate)(bytes);
        let iova = self.backing.map_dma(words.cells().into());
        Buffer {
            words,
            iova: iova.unwrap_or_else(|error| panic!("{error}")),
            backing: Arc::clone(&self.backing),
        }
    }

    /// Block I/O of the driver's own.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn block_io<'c>(
        &self,
        controller: &'c mut Controller<Enabled>,
        nsid: u32,
        access: Access,
    ) -> BlockIo<&'c mut Controller<Enabled>> {
        let memory = Admin::sharing((self.allocate)(controller.block_io_bytes()));
        BlockIo::open(controller, nsid, access, memory).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A request for a pair, and the memory of its rings, which must stay until it is deleted.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn request(&self, qid: u16, entries: u32) -> (QueuePairRequest, Buffer) {
        // The CQ begins on a page of its own, whichever size the controller's pages have.
        let sq_bytes = QueuePairRequest::sq_bytes(entries).next_multiple_of(64 << 10);
        let memory = self.buffer(sq_bytes + QueuePairRequest::cq_bytes(entries));
        memory.words.zero();
        let ring = |offset| Ring {
            address: memory.words.cells().address() as u64 + offset,
            iova: memory.iova.plus(offset),
        };
        let request = QueuePairRequest {
            qid,
            entries,
            sq: ring(0),
            cq: ring(sq_bytes),
        };
        (request, memory)
    }

    /// A new pair, somebody who submits to it, and the memory of its rings.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn pair(
        &self,
        controller: &mut Controller<Enabled>,
        qid: u16,
        entries: u32,
    ) -> (QueuePair, Submitter, Buffer) {
        let (request, memory) = self.request(qid, entries);
        let pair = controller.create_queue_pair(request);
        let pair = pair.unwrap_or_else(|error| panic!("{error}"));
        (pair, Submitter::new(&pair), memory)
    }

    /// The namespaces, as the driver sees them.
    ///
    /// # Panics
    /// If one cannot be used.
    pub fn namespaces(&self, controller: &mut Controller<Enabled>) -> Vec<Namespace> {
        let expected = self.expected.namespaces.iter();
        expected
            .map(|(nsid, ..)| controller.namespace(*nsid))
            .map(|namespace| namespace.unwrap_or_else(|error| panic!("{error}")))
            .collect()
    }
}

impl Buffer {
    /// Number of words.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> u64 {
        self.words.cells().len()
    }

    /// Word `index`.
    pub fn get(&self, index: u64) -> u64 {
        self.words.cells().at(index).load(Order::Relaxed)
    }

    /// Changes word `index`.
    pub fn set(&self, index: u64, value: u64) {
        self.words.cells().at(index).store(value, Order::Relaxed);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = self.len() * 8;
        // An error means that a reset of the machine took the mapping before.
        let _ = self.backing.unmap_dma(self.iova, bytes);
    }
}
