//! The memory of the driver's own queues, which it shares with the controller.
//!
//! The caller allocates it (pinned by CUDA, a heap, …) and the driver keeps it mapped for as long
//! as the controller may write to it. Access is by words through cells: never by reference.

use std::sync::Arc;

use nvme_wire::identify::PAGE_WORDS;
use warpstore_simt::{Cell, Cells, Device, NativeCell, NativeCells, Order, System};

use crate::backing::{Backing, DmaRegion, Iova};
use crate::error::Error;

/// Memory for one queue pair that the driver submits to: the admin queue, or that of block I/O.
///
/// The implementor owns the memory and frees it when it is dropped, no earlier; the driver keeps
/// it as long as it needs it, which is for good if a controller could not be stopped.
pub trait QueueMemory: Send + Sync {
    /// The memory, always the same. No two of the parts overlap.
    fn cells(&self) -> QueueCells;
}

/// The parts of an [`QueueMemory`].
#[derive(Clone, Copy)]
pub struct QueueCells {
    /// Memory that the controller will reach:
    /// [`Controller::admin_bytes`](crate::Controller::admin_bytes),
    /// [`Controller::block_io_bytes`](crate::Controller::block_io_bytes) or
    /// [`Controller::shadow_bytes`](crate::Controller::shadow_bytes) long (shadow doorbells use nothing
    /// else of this), and aligned to
    /// [`Controller::page_bytes`](crate::Controller::page_bytes).
    pub shared: NativeCells<u64, System>,
    /// Memory of the CPU alone: [`QUEUE_PRIVATE_WORDS`](crate::QUEUE_PRIVATE_WORDS) long.
    pub private: NativeCells<u64, Device>,
    /// A word of the CPU alone: not 0 once the queue has been given up.
    pub dead: NativeCell<u32, Device>,
    /// A word that anybody may set to end the driver's waits for commands.
    pub abort: NativeCell<u32, System>,
}

/// Memory that is mapped for a controller; dropping it unmaps it.
pub(crate) struct Mapped {
    backing: Arc<dyn Backing>,
    memory: Arc<dyn QueueMemory>,
    iova: Iova,
}

impl Mapped {
    /// Zeroes the shared part of `memory`, which has at least `bytes` (and the private part at
    /// least `private_words`), and maps it, at a multiple of `alignment`.
    ///
    /// Zeroing comes first: a phase tag left over in a ring is a completion that never was.
    pub(crate) fn zeroed(
        backing: &Arc<dyn Backing>,
        memory: Arc<dyn QueueMemory>,
        bytes: u64,
        private_words: u64,
        alignment: u64,
    ) -> Result<Self, Error> {
        let QueueCells {
            shared, private, ..
        } = memory.cells();
        let region = DmaRegion::from(shared);
        let fits = |needed, alignment, address: u64, found| {
            if found >= needed && address.is_multiple_of(alignment) {
                return Ok(());
            }
            Err(Error::Memory {
                controller: backing.name().into(),
                needed,
                alignment,
                found,
                address,
            })
        };
        fits(bytes, alignment, region.address(), region.bytes())?;
        fits(
            private_words * 8,
            8,
            private.address() as u64,
            private.len() * 8,
        )?;
        for index in 0..shared.len() {
            shared.at(index).store(0, Order::Relaxed);
        }
        let iova = backing.map_dma(region).map_err(|source| Error::Backing {
            controller: backing.name().into(),
            action: "map the memory of a queue for DMA",
            source,
        })?;
        let mapped = Self {
            backing: Arc::clone(backing),
            memory,
            iova,
        };
        fits(bytes, alignment, iova.0, region.bytes())?;
        Ok(mapped)
    }

    /// Where the controller finds the shared part.
    pub(crate) fn iova(&self) -> Iova {
        self.iova
    }

    /// The parts.
    pub(crate) fn cells(&self) -> QueueCells {
        self.memory.cells()
    }

    /// Copies an Identify page out, `offset` bytes into the shared part. The command that wrote
    /// it has completed, and its completion was read with acquire.
    pub(crate) fn page(&self, offset: u64) -> [u64; PAGE_WORDS] {
        let words = self.cells().shared.part(offset / 8, PAGE_WORDS as u64);
        std::array::from_fn(|index| words.at(index as u64).load(Order::Relaxed))
    }

    /// Leaves the memory allocated for good, because the controller could not be stopped and may
    /// still write to it; and mapped too, unless the backing cuts it off.
    pub(crate) fn quarantine(self) {
        if self.backing.cuts_off() {
            // Whoever plays the controller may be in the middle of a step. What the backing keeps
            // open, a media file or a connection, must not stay open for that.
            std::mem::forget(Arc::clone(&self.memory));
        } else {
            std::mem::forget(self);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let len = self.cells().shared.len() * 8;
        // An error means that the range was not mapped: then there is nothing to take back.
        let _ = self.backing.unmap_dma(self.iova, len);
    }
}
