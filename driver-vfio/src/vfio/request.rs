//! The kernel asks for a device back: somebody unplugs or unbinds it, and the kernel waits until
//! nobody has it open.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use vfio_bindings::bindings::vfio::VFIO_PCI_REQ_IRQ_INDEX;
use vfio_ioctls::VfioDevice;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// The event of one device.
pub(super) struct Request {
    event: EventFd,
    seen: AtomicBool,
}

impl Request {
    /// Has the kernel signal an event when it wants `device` back; a kernel that cannot never does.
    pub(super) fn arm(device: &VfioDevice) -> io::Result<Self> {
        let event = EventFd::new(EFD_NONBLOCK)?;
        let index = VFIO_PCI_REQ_IRQ_INDEX;
        if device.get_irq_info(index).is_some_and(|irq| irq.count > 0) {
            device
                .enable_irq(index, vec![&event])
                .map_err(io::Error::other)?;
        }
        Ok(Self {
            event,
            seen: AtomicBool::new(false),
        })
    }

    /// Whether the kernel has asked.
    pub(super) fn was_made(&self) -> bool {
        // An error means that the event was not signalled since it was read.
        if self.event.read().is_ok() {
            self.seen.store(true, Ordering::Relaxed);
        }
        self.seen.load(Ordering::Relaxed)
    }
}
