//! The driver against a controller that nobody here wrote: QEMU's.
//!
//! ```text
//!  suite ─► driver-vfio ─► Qtest (a Backing) ── registers, by message ──► QEMU's NVMe controller
//!    │                        └ doorbells: words that a thread forwards       │ DMA
//!    └─ rings, data ────────────── RAM of the machine, mapped here too ◄──────┘
//! ```
//!
//! There is no guest: the machine's one processor is parked, and this process plays its part over
//! QEMU's qtest socket. That needs no root, no kernel and no VFIO, and takes a tenth of a second
//! a machine. `suite` is what every backing must pass; it runs over the emulated controller of
//! this repository too, so that both controllers check one another.
//!
//! What this does not show: VFIO, an IOMMU, interrupts, PCIe.

pub mod breach;
pub mod guest;
pub mod memory;
pub mod ours;
pub mod qemu;
pub mod qtest;
pub mod setup;
pub mod site;
pub mod suite;

mod doorbells;
mod ram;
mod wire;
