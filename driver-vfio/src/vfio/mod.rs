//! A real controller, bound to vfio-pci, as a backing.
//!
//! ```text
//!  Vfio::open ─► sysfs: NVMe? vfio-pci? alone in its group? ─► container, group, device (type1)
//!     │          reset, memory space and bus master on, BAR 0 mapped, IOVA ranges from the kernel
//!     ├─ read32, write32, doorbell ─► BAR 0
//!     ├─ map_dma ─► an IOVA of the kernel's ranges ─► IOMMU
//!     └─ end: guardian stops the controller if nobody did ─► bus master off ─► unmap ─► close
//! ```
//!
//! The end holds on every path, a SIGKILL included: the guardian is a process of its own, which
//! clears CC.EN when this one is gone and only then lets go of the device. Until then the kernel
//! keeps memory pinned, and the IOMMU keeps the controller off everything else.
//!
//! A BAR that vanishes under its mapping reads all-ones (`sys/bus_error.rs`). When the kernel asks
//! for the device back, `is_wanted_back` says so.
//!
//! Not here: interrupts (queues are polled), iommufd, and VFIO without an IOMMU, which is refused.
//! Controllers that are opened together share a container, and so may share an IOMMU group; a group
//! belongs to one container, so others may not.

mod bar;
mod config;
mod domain;
mod error;
mod guardian;
mod info;
mod iova;
mod memory;
mod pci;
mod request;
mod sys;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioOps};
use warpstore_simt::{Native, NativeCell, Order, Platform, System};

use crate::backing::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};
use bar::Bar;
use config::Config;
use domain::Domain;
pub use error::VfioError;
use guardian::Guardian;
pub use memory::{DmaMemory, PageSize};
pub use pci::{address_of, bound_controllers};
use request::Request;

/// An NVMe controller behind VFIO.
///
/// Dropping it stops the controller, if the driver has not, takes all mappings back and closes
/// the device.
pub struct Vfio {
    address: String,
    guardian: Option<Guardian>,
    // The order of these matters when they are dropped: the first two have descriptors of the
    // device, which must be closed before it leaves its group.
    config: Config,
    bar: Bar,
    device: Device,
    domain: Arc<Domain>,
    /// First IOVA and length of each mapping of this controller.
    mapped: Mutex<Vec<(Iova, u64)>>,
}

/// The device as vfio-ioctls has it; None only while it is dropped.
struct Device {
    device: Option<VfioDevice>,
    /// Where sysfs has the function.
    sysfs: PathBuf,
    request: Request,
}

impl Vfio {
    /// Opens the controller at a PCI address such as `0000:01:00.0`.
    ///
    /// # Errors
    /// As [`Vfio::open_all`].
    pub fn open(address: &str) -> Result<Self, VfioError> {
        let mut opened = Self::open_all(&[address.to_owned()])?;
        Ok(opened.pop().expect("one for each address"))
    }

    /// Opens the controllers at these PCI addresses, in this order. They share their mappings:
    /// memory that is mapped for several of them has one IOVA, and counts once as locked memory.
    ///
    /// They are reset, and may use memory from then on; whatever ran on them before has ended.
    ///
    /// # Errors
    /// There is no such NVMe controller, it is there twice, it is not bound to vfio-pci, something
    /// else in its IOMMU group is in use, or the kernel refuses; the message says what to do.
    pub fn open_all(addresses: &[String]) -> Result<Vec<Self>, VfioError> {
        // In one container the kernel would open it twice.
        if let Some(address) = twice(addresses) {
            return Err(VfioError::Twice(address.to_owned()));
        }
        let name = addresses.first().map_or("", String::as_str);
        let container = VfioContainer::new(None)
            .map_err(|error| VfioError::kernel(name, "open /dev/vfio/vfio", &error))?;
        let container = Arc::new(container);
        let devices = addresses
            .iter()
            .map(|address| Device::attach(address, &container))
            .collect::<Result<Vec<_>, _>>()?;
        // What the IOMMUs in front of all of them translate.
        let info =
            sys::iommu_info(&container).map_err(failed(name, "ask for the IOMMU's ranges"))?;
        let limits = info::parse(&info).ok_or_else(|| VfioError::NoRanges(name.into()))?;
        let domain = Arc::new(Domain::new(container, &limits));
        let devices = addresses.iter().zip(devices);
        devices
            .map(|(address, device)| Self::make_ready(address, device, &domain))
            .collect()
    }

    /// Resets the controller and lets it use memory, with a guardian from before that on.
    fn make_ready(address: &str, device: Device, domain: &Arc<Domain>) -> Result<Self, VfioError> {
        let failed = |action| failed(address, action);
        let start = device.get_region_offset(VFIO_PCI_CONFIG_REGION_INDEX);
        let file = sys::duplicate(&device).map_err(failed("duplicate the device's descriptor"))?;
        let config = Config::new(file, start);
        config.check_class(address)?;
        let bar = Bar::map(&device).map_err(failed("map BAR 0"))?;
        let guardian = Guardian::watch(bar.file(), bar.start());
        let guardian = guardian.map_err(failed("start the process that guards the controller"))?;
        sys::reset(bar.file()).map_err(failed("reset the controller"))?;
        config
            .enable()
            .map_err(failed("make the controller a bus master"))?;
        Ok(Self {
            address: address.to_owned(),
            guardian: Some(guardian),
            config,
            bar,
            device,
            domain: Arc::clone(domain),
            mapped: Mutex::default(),
        })
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<(Iova, u64)>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first address that was there before.
fn twice(addresses: &[String]) -> Option<&str> {
    let mut each = addresses.iter().enumerate();
    let again = each.find(|(index, address)| addresses[..*index].contains(address));
    again.map(|(_, address)| address.as_str())
}

/// The error of a system call.
fn failed(address: &str, action: &'static str) -> impl FnOnce(std::io::Error) -> VfioError {
    move |source| VfioError::System {
        address: address.to_owned(),
        action,
        source,
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        // [VF-1] Stops the controller; after that it uses no memory.
        self.guardian = None;
        // An error means that the function is gone, and nothing of it can use memory.
        let _ = self.config.disable();
        for (iova, bytes) in std::mem::take(&mut *self.mapped()) {
            // What cannot be unmapped is unmapped when the container is closed.
            let _ = self.domain.unmap(iova, bytes);
        }
    }
}

impl Device {
    /// Opens the function at `address`, as a member of `container`.
    fn attach(address: &str, container: &Arc<VfioContainer>) -> Result<Self, VfioError> {
        let sysfs = pci::usable(Path::new("/"), address)?;
        let ops: Arc<dyn VfioOps> = container.clone();
        let device = VfioDevice::new(&sysfs, ops, true)
            .map_err(|error| VfioError::kernel(address, "open the device", &error))?;
        let request = Request::arm(&device);
        Ok(Self {
            request: request.map_err(failed(address, "arm the device's request"))?,
            device: Some(device),
            sysfs,
        })
    }
}

impl Deref for Device {
    type Target = VfioDevice;

    fn deref(&self) -> &VfioDevice {
        self.device.as_ref().expect("only `drop` takes it")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let Some(device) = self.device.take() else {
            return;
        };
        if self.request.was_made() || !self.sysfs.join("iommu_group").exists() {
            // Its place in sysfs is gone, or goes when the device is closed. vfio-ioctls would look
            // the group up there, and panic.
            sys::close(device);
        } else {
            drop(device);
        }
    }
}

impl Registers for Vfio {
    fn read32(&self, at: BarOffset) -> u32 {
        self.bar.read32(at.0)
    }

    fn read64(&self, at: BarOffset) -> u64 {
        let low = self.read32(at);
        u64::from(self.read32(BarOffset(at.0 + 4))) << 32 | u64::from(low)
    }

    fn write32(&self, at: BarOffset, value: u32) {
        // Ordering: writes to memory come before the register's, as for a doorbell ([SQ-3]).
        Native::fence::<System>(Order::AcqRel);
        self.bar.write32(at.0, value);
    }

    fn write64(&self, at: BarOffset, value: u64) {
        self.write32(at, value as u32);
        self.write32(BarOffset(at.0 + 4), (value >> 32) as u32);
    }
}

impl Backing for Vfio {
    fn name(&self) -> &str {
        &self.address
    }

    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError> {
        Ok(self.bar.doorbell(at.0)?)
    }

    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        let iova = self.domain.map(region)?;
        self.mapped().push((iova, region.bytes()));
        Ok(iova)
    }

    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        let mut mapped = self.mapped();
        let found = mapped.iter().position(|range| *range == (iova, len));
        let index = found.ok_or_else(|| format!("{len} bytes at {:#x} are not mapped", iova.0))?;
        self.domain.unmap(iova, len)?;
        mapped.swap_remove(index);
        Ok(())
    }

    fn is_wanted_back(&self) -> bool {
        self.device.request.was_made()
    }

    fn reset(&self) -> Result<(), BackingError> {
        sys::reset(self.bar.file())?;
        // The kernel restores the function's registers; what it leaves off is set again.
        Ok(self.config.enable()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By serial number and by address, for one.
    #[test]
    fn a_controller_that_is_named_twice_is_not_opened_twice() {
        let addresses = ["0000:01:00.0", "0000:02:00.0", "0000:01:00.0"].map(str::to_owned);
        let error = Vfio::open_all(&addresses)
            .err()
            .expect("one is there twice");
        let text = error.to_string();
        assert!(text.starts_with("0000:01:00.0: named twice"), "{text}");
    }
}
