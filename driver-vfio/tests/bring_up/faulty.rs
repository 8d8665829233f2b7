//! A backing in front of another that shows a symptom from some register access on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use driver_vfio::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};
use nvme_wire::regs::{Cap, Csts, doorbell_offset, offset};
use warpstore_simt::{Cell, NativeCell, Order, System};

use crate::memory::doorbell;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Symptom {
    /// Everything reads all-ones, writes are lost.
    Gone,
    /// CSTS.CFS is set.
    Fatal,
    /// CAP no longer names the NVM Command Set.
    LosesNvm,
    /// Admin commands are not noticed: the doorbell of their queue reaches nobody.
    Deaf,
}

pub struct Faulty {
    inner: Arc<dyn Backing>,
    symptom: Symptom,
    from: AtomicU64,
    accesses: AtomicU64,
    /// Where the driver rings for admin commands, with `Deaf`. A register access, such as the driver
    /// makes while it waits, passes it on.
    rung: AtomicU32,
    admin: OnceLock<NativeCell<u32, System>>,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Backing>, symptom: Symptom, from: u64) -> Self {
        Self {
            inner,
            symptom,
            from: from.into(),
            accesses: AtomicU64::new(0),
            rung: AtomicU32::new(0),
            admin: OnceLock::new(),
        }
    }

    /// Shows the symptom at every access that is yet to come.
    pub fn begin(&self) {
        self.from.store(self.accesses(), Ordering::Relaxed);
    }

    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// True if the access that was counted last shows the symptom.
    fn shows(&self, symptom: Symptom) -> bool {
        self.symptom == symptom && self.accesses() > self.from.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        if let Some(admin) = self.admin.get().filter(|_| !self.shows(Symptom::Deaf)) {
            admin.store(self.rung.load(Ordering::Acquire), Order::Release);
        }
    }
}

impl Registers for Faulty {
    fn read32(&self, at: BarOffset) -> u32 {
        self.count();
        if self.shows(Symptom::Gone) {
            return u32::MAX;
        }
        let value = self.inner.read32(at);
        if at.0 == offset::CSTS && self.shows(Symptom::Fatal) {
            return Csts::from_bits(value).with_cfs(true).into_bits();
        }
        value
    }
    fn read64(&self, at: BarOffset) -> u64 {
        self.count();
        if self.shows(Symptom::Gone) {
            return u64::MAX;
        }
        let value = self.inner.read64(at);
        if at.0 == offset::CAP && self.shows(Symptom::LosesNvm) {
            return Cap::from_bits(value)
                .with_css(Cap::CSS_ADMIN_ONLY)
                .into_bits();
        }
        value
    }
    fn write32(&self, at: BarOffset, value: u32) {
        self.count();
        if !self.shows(Symptom::Gone) {
            self.inner.write32(at, value);
        }
    }
    fn write64(&self, at: BarOffset, value: u64) {
        self.count();
        if !self.shows(Symptom::Gone) {
            self.inner.write64(at, value);
        }
    }
}

impl Backing for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError> {
        let cell = self.inner.doorbell(at)?;
        if self.symptom != Symptom::Deaf || at.0 != doorbell_offset(0, false, 0) {
            return Ok(cell);
        }
        self.admin.get_or_init(|| cell);
        Ok(doorbell(&self.rung))
    }
    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        self.inner.map_dma(region)
    }
    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        self.inner.unmap_dma(iova, len)
    }
    fn reset(&self) -> Result<(), BackingError> {
        self.inner.reset()
    }
}
