//! The host side: opens SSDs and a store, gives kernels memory and runs them.
//!
//! ```text
//! Configuration ─► Session::open ─┬─ runner: CUDA context and modules, or host threads
//!                                 ├─ ssd: emulated, in another process or behind VFIO; bring-up by driver-vfio
//!                                 ├─ ringing: doorbells of those outside, by a proxy or as they are
//!                                 ├─ store: rings, queue words, line table, slots ─► StoreDesc
//!                                 └─ resident: the emulated SSDs as a kernel (GPU only)
//! create_array, memory, launch(kernel, config, args), counts, flush, finish
//! ```
//!
//! This is the only room that knows CUDA. The driver is loaded at run time, so the crate builds
//! and runs where there is none.

mod brakes;
mod buffer;
mod config;
pub mod cuda;
mod error;
mod kernels;
mod memory;
mod resident;
mod ringing;
mod runner;
mod session;
mod ssd;
mod store;
mod volume;

pub use buffer::{Buffer, Place};
pub use config::{
    BlocksConfig, Configuration, Doorbells, Medium, SsdConfig, SsdSource, Target, VfioConfig,
    VfioSsd,
};
pub use error::Error;
pub use kernels::kernels_ptx;
pub use memory::Memory;
pub use nvme_model::{Commands, Fault, Faults, Profile, Rule, Sharing, When};
pub use runner::{CudaRunner, LaunchConfig, Runner, ThreadsRunner};
pub use session::{Counts, Session};
pub use ssd::SsdServer;
pub use volume::{SsdMember, VolumeAccess, open_member, open_volume};
pub use warpstore_device as device;
pub use warpstore_device::parts::nvme_queue::Protocol;
pub use warpstore_volume::MemberNames;
