//! The emulated controller as a backing: register accesses are calls, IOVAs are addresses.
#![allow(
    unsafe_code,
    reason = "the emulated controller takes addresses, as a real one does"
)]
// UNSAFETY: memory that a `DmaRegion` vouches for is passed on to the model, and doorbells of the
// model become cells.

use std::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme_model::Controller;
use nvme_wire::regs::{Cc, offset};
use warpstore_simt::{NativeCell, System};

use crate::backing::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};

/// An emulated controller in this process.
///
/// Somebody must serve it (`nvme_model::Serving`, a GPU): else it does not complete any command.
///
/// Dropping it takes back what was mapped through it: by then nobody uses the controller.
pub struct Model {
    name: String,
    controller: Arc<Controller>,
    /// First IOVA and length of each mapping.
    mapped: Mutex<Vec<(u64, u64)>>,
}

impl Model {
    /// A way to `controller`, which messages call by its serial number.
    pub fn new(controller: Arc<Controller>) -> Self {
        let name = format!("model {}", controller.configuration().serial);
        Self {
            name,
            controller,
            mapped: Mutex::default(),
        }
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        for (iova, len) in self.mapped().drain(..) {
            // Only what is mapped stands in the list.
            let _ = self.controller.unmap_dma(iova, len);
        }
    }
}

impl Registers for Model {
    fn read32(&self, at: BarOffset) -> u32 {
        self.controller.read32(at.0)
    }
    fn read64(&self, at: BarOffset) -> u64 {
        self.controller.read64(at.0)
    }
    fn write32(&self, at: BarOffset, value: u32) {
        self.controller.write32(at.0, value);
    }
    fn write64(&self, at: BarOffset, value: u64) {
        self.controller.write64(at.0, value);
    }
}

impl Backing for Model {
    fn name(&self) -> &str {
        &self.name
    }

    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError> {
        let address = self.controller.doorbell_address(at.0).ok_or_else(|| {
            let queues = self.controller.configuration().queues;
            format!(
                "there is none at {:#x}: the controller has {queues} I/O queue pairs",
                at.0
            )
        })?;
        // SAFETY: the model keeps the doorbell as an aligned, atomically accessed word for as long
        // as it lives, and this backing, which cells must not outlive, keeps the model. Of lent
        // doorbells in GPU memory the CPU takes only the address.
        Ok(unsafe { NativeCell::new(with_exposed_provenance_mut(address as usize)) })
    }

    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        // SAFETY: the region was made from cells, whose maker vouched that the memory is valid
        // for atomic access while they are used, and being mapped is a use.
        unsafe {
            self.controller
                .map_dma(region.address(), region.address(), region.bytes())
        }?;
        self.mapped().push((region.address(), region.bytes()));
        Ok(Iova(region.address()))
    }

    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        self.controller.unmap_dma(iova.0, len)?;
        self.mapped().retain(|range| *range != (iova.0, len));
        Ok(())
    }

    /// It takes back all mappings when it is dropped.
    fn cuts_off(&self) -> bool {
        true
    }

    fn reset(&self) -> Result<(), BackingError> {
        self.controller.write32(offset::CC, Cc::new().into_bits());
        Ok(())
    }
}
