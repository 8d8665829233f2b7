//! The seam to a controller: its registers, its doorbells, its reach into memory, its reset.
//!
//! Bring-up and the admin queue use nothing else, so the same driver runs on an SSD behind VFIO
//! and on an emulated controller.

use warpstore_simt::{Cells, NativeCell, NativeCells, System};

/// A byte offset into BAR 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BarOffset(pub u64);

/// An address as the controller sends it: what PRPs and queue bases hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Iova(pub u64);

impl Iova {
    /// The address `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// Memory that a controller shall reach, by its address in this process.
///
/// Made from cells only: whoever made those vouched that the memory is there for as long as they
/// are used, and a mapping is a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRegion {
    address: u64,
    len: u64,
}

impl DmaRegion {
    /// Address of the first byte.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Length in bytes.
    pub const fn bytes(self) -> u64 {
        self.len
    }
}

impl From<NativeCells<u64, System>> for DmaRegion {
    fn from(words: NativeCells<u64, System>) -> Self {
        Self {
            address: words.address().expose_provenance() as u64,
            len: words.len() * 8,
        }
    }
}

/// What a backing reports when the machine refuses: an `ioctl`, a socket, a table that is full.
pub type BackingError = Box<dyn std::error::Error + Send + Sync>;

/// The registers in BAR 0.
///
/// Caller: the driver's thread, one access at a time, and besides any thread that only reads.
/// Ordering: an access reaches the controller in program order with the thread's other accesses, and
/// after its earlier writes to memory. A
/// 64-bit access may be made as two 32-bit ones, the low half first (Base 3.1.3): not every
/// controller takes more. An access to a controller that is gone returns all-ones or does
/// nothing, as PCI does. It waits for nobody, or for the process that plays the controller, and not
/// for ever.
pub trait Registers: Send + Sync {
    /// Reads a 32-bit register.
    fn read32(&self, at: BarOffset) -> u32;
    /// Reads a 64-bit register.
    fn read64(&self, at: BarOffset) -> u64;
    /// Writes a 32-bit register.
    fn write32(&self, at: BarOffset, value: u32);
    /// Writes a 64-bit register.
    fn write64(&self, at: BarOffset, value: u64);
}

/// One controller, reached in one way.
///
/// Caller: any thread for `doorbell`, `map_dma` and `unmap_dma`; `reset` only while no submitter
/// uses the controller. Retention: a mapping lasts until `unmap_dma`, a doorbell as long as the
/// backing, whatever happens to the controller.
pub trait Backing: Registers {
    /// What messages call the controller: a PCI address, or the name of a model.
    fn name(&self) -> &str;

    /// The word that a submitter stores to in order to ring the doorbell at `at`. The store is
    /// enough: whoever sits between (a write-combining bridge, a proxy) takes it from there.
    ///
    /// # Errors
    /// If the doorbell lies outside of what the BAR holds.
    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError>;

    /// Lets the controller reach `region`, whole, at consecutive IOVAs.
    ///
    /// # Errors
    /// If the region cannot be pinned or there is no IOVA for it.
    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError>;

    /// Takes back what `map_dma` gave, whole. The controller must have stopped using it.
    ///
    /// # Errors
    /// If this range was not mapped by `map_dma`.
    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError>;

    /// Whether whoever lent the controller wants it back: an operator unplugs or unbinds it. Whoever
    /// uses it is to stop, and to drop the backing.
    fn is_wanted_back(&self) -> bool {
        false
    }

    /// Resets the controller as the bus can (PCI function level reset), which also ends its DMA.
    ///
    /// # Errors
    /// If the controller cannot be reset in this way.
    fn reset(&self) -> Result<(), BackingError>;
}
