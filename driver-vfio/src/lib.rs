//! Controller bring-up, admin queue and block I/O over a [`Backing`].
//!
//! ```text
//! Backing ─► Controller::open ─► enable ─► namespaces, create_queue_pair ─► QueuePair (plain data)
//!  registers, doorbells,             │
//!  DMA mappings, reset               ├─ admin queue, on the same nvme-queue as GPU submitters
//!                                    └─ BlockIo: reads, writes and flushes by the CPU
//! ```
//!
//! This room knows NVMe, and nothing of GPUs: memory comes from the caller, and what a GPU needs
//! to submit commands goes back as addresses.
//!
//! Every wait has a deadline, every look at CSTS checks for removal and, but for a reset, for
//! fatal errors, and nothing that the controller sends is used unchecked. Only backings hold unsafe code: the rest sees
//! memory as cells.
//!
//! Backings: [`Model`], the emulated controller in this process, [`user::Client`], one in another
//! process, and [`vfio::Vfio`], a real one.

mod abort;
mod admin;
mod backing;
mod block_io;
mod controller;
mod cpu_queue;
mod enabled;
mod error;
mod live;
mod memory;
mod model;
mod namespace;
mod pages;
mod proxy;
mod queue_pair;
mod shadow;
pub mod user;
pub mod vfio;
mod watch;

pub use abort::Abort;
pub use backing::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};
pub use block_io::{Access, BlockIo};
pub use controller::{Controller, Disabled, Enabled};
pub use cpu_queue::QUEUE_PRIVATE_WORDS;
pub use error::{BlockRange, Error, NamespaceFault, Step};
pub use memory::{QueueCells, QueueMemory};
pub use model::Model;
pub use namespace::{ControllerInfo, Namespace};
pub use proxy::{Proxy, Refusal};
pub use queue_pair::{QueuePair, QueuePairRequest, Ring};
pub use shadow::{Doorbell, Shadow};
pub use watch::{Deadlines, check_alive};
