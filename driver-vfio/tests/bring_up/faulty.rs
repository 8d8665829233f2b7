//! A backing in front of another that shows a symptom from some register access on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use driver_vfio::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};
use nvme_wire::regs::{Cap, Csts, offset};
use warpstore_simt::{NativeCell, System};

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Symptom {
    /// Everything reads all-ones, writes are lost.
    Gone,
    /// CSTS.CFS is set.
    Fatal,
    /// CAP no longer names the NVM Command Set.
    LosesNvm,
}

pub struct Faulty {
    inner: Arc<dyn Backing>,
    symptom: Symptom,
    from: u64,
    accesses: AtomicU64,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Backing>, symptom: Symptom, from: u64) -> Self {
        Self {
            inner,
            symptom,
            from,
            accesses: AtomicU64::new(0),
        }
    }

    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }

    /// True if the access that was counted last shows the symptom.
    fn shows(&self, symptom: Symptom) -> bool {
        self.symptom == symptom && self.accesses() > self.from
    }

    fn count(&self) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
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
        self.inner.doorbell(at)
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
