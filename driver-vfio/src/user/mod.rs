//! An emulated SSD in a process of its own, as a backing: vfio-user over a Unix socket.
//!
//! ```text
//!  this process                                    the SSD's process
//!  Client ── registers, DMA_MAP, reset ─ socket ─► Server ─► nvme_model::Controller
//!  DmaMemory ══════ pages of a memfd ════════════► mapped at an address of its own
//!  doorbells ══════ pages of a memfd ════════════► polled by the threads that serve the queues
//! ```
//!
//! Messages are for bring-up alone: commands, data, completions and doorbells go through shared
//! pages, so whoever reaches the pages drives the SSD, a GPU too. An IOVA is the address that this
//! process has for the byte.
//!
//! The crate `vfio_user` reads and answers messages on the server's side. The client's is ours: that
//! of the crate takes a refusal for success and waits without bound.
//!
//! Either side may die. Of a server that is gone registers read all-ones, as those of an SSD that
//! was pulled out; its doorbells stay ordinary memory, so whoever rings runs into a deadline. Of a
//! client that is gone the server stops the controller, unmaps its memory, and takes the next one.
//!
//! Not here: interrupts, migration, memory without a descriptor, several clients of one SSD at a
//! time.
#![allow(
    unsafe_code,
    reason = "pages of other processes are reached by address, as DMA does"
)]
// UNSAFETY: mappings of shared pages become cells, or memory that the emulated controller reaches;
// each is sealed against shrinking, and lives as long as whoever uses it.

mod client;
mod device;
mod error;
mod message;
mod server;
mod socket;
mod statistics;

pub use client::Client;
pub use error::UserError;
pub use server::{Server, ServerError, Ssd};
pub use statistics::Statistics;

use vfio_bindings::bindings::vfio::{
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_NUM_REGIONS,
};

/// The region with the controller's registers and doorbells.
const BAR: u32 = VFIO_PCI_BAR0_REGION_INDEX;
/// The region with the PCI configuration space.
const CONFIG: u32 = VFIO_PCI_CONFIG_REGION_INDEX;
/// A region that PCI does not have: what the SSD has counted.
const STATISTICS: u32 = VFIO_PCI_NUM_REGIONS;
/// Number of regions.
const REGIONS: u32 = STATISTICS + 1;
