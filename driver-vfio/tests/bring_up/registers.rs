//! A controller made of registers alone: it gets ready and stops, or does not, and never completes
//! a command.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use driver_vfio::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};
use nvme_wire::regs::{Cap, Cc, Crto, Csts, offset};
use warpstore_simt::{NativeCell, System};

use crate::memory::doorbell;

/// What the controller does.
#[derive(Clone, Copy)]
pub struct Script {
    pub cap: Cap,
    pub crto: Crto,
    /// CC before anybody touches it.
    pub cc: Cc,
    /// CSTS.RDY before anybody touches CC, if it does not follow CC.EN.
    pub ready: Option<bool>,
    /// RDY rises after EN does.
    pub rises: bool,
    /// RDY falls after EN does.
    pub falls: bool,
    /// From this access on, counted from 0, CSTS.CFS is set.
    pub fatal_from: Option<u64>,
    /// From this access on, counted from 0, everything reads all-ones.
    pub gone_from: Option<u64>,
    /// How many accesses read all-ones.
    pub gone_for: u64,
}

impl Script {
    /// A controller that does what it should.
    pub fn good() -> Self {
        Self {
            cap: Cap::new()
                .with_mqes_z(1023)
                .with_css(Cap::CSS_NVM)
                .with_to(2),
            crto: Crto::new(),
            cc: Cc::new(),
            ready: None,
            rises: true,
            falls: true,
            fatal_from: None,
            gone_from: None,
            gone_for: u64::MAX,
        }
    }
}

struct State {
    cc: Cc,
    ready: bool,
    accesses: u64,
    /// Writes, in order.
    written: Vec<(u64, u64)>,
    mapped: Vec<DmaRegion>,
}

pub struct Fake {
    script: Script,
    state: Mutex<State>,
    /// SQ tail and CQ head of the admin queue and of I/O queue pair 1.
    doorbells: [AtomicU32; 4],
}

impl Fake {
    pub fn new(script: Script) -> Arc<Self> {
        let state = State {
            cc: script.cc,
            ready: script.ready.unwrap_or(script.cc.en()),
            accesses: 0,
            written: Vec::new(),
            mapped: Vec::new(),
        };
        Arc::new(Self {
            script,
            state: Mutex::new(state),
            doorbells: Default::default(),
        })
    }

    /// Values written to the register at `at`, in order.
    pub fn written(&self, at: u64) -> Vec<u64> {
        let state = self.state.lock().unwrap();
        state
            .written
            .iter()
            .filter(|write| write.0 == at)
            .map(|write| write.1)
            .collect()
    }

    /// Value of the admin queue's SQ tail doorbell.
    pub fn admin_tail(&self) -> u32 {
        self.doorbells[0].load(Ordering::Acquire)
    }

    /// Value of the SQ tail doorbell of I/O queue pair 1.
    pub fn io_tail(&self) -> u32 {
        self.doorbells[2].load(Ordering::Acquire)
    }

    /// As before that queue is created.
    pub fn clear_io_tail(&self) {
        self.doorbells[2].store(0, Ordering::Release);
    }

    pub fn accesses(&self) -> u64 {
        self.state.lock().unwrap().accesses
    }

    pub fn is_enabled(&self) -> bool {
        self.state.lock().unwrap().cc.en()
    }

    pub fn n_mapped(&self) -> usize {
        self.state.lock().unwrap().mapped.len()
    }

    fn read(&self, at: u64) -> u64 {
        let mut state = self.state.lock().unwrap();
        let now = state.accesses;
        state.accesses += 1;
        let absence = self.script.gone_from.and_then(|from| now.checked_sub(from));
        if absence.is_some_and(|absence| absence < self.script.gone_for) {
            return u64::MAX;
        }
        match at {
            offset::CAP => self.script.cap.into_bits(),
            offset::VS => 0x0002_0000,
            offset::CC => state.cc.into_bits().into(),
            offset::CSTS => {
                let fatal = self.script.fatal_from.is_some_and(|from| now >= from);
                Csts::new()
                    .with_rdy(state.ready)
                    .with_cfs(fatal)
                    .into_bits()
                    .into()
            }
            offset::CRTO => self.script.crto.into_bits().into(),
            _ => 0,
        }
    }

    fn write(&self, at: u64, value: u64) {
        let mut state = self.state.lock().unwrap();
        state.accesses += 1;
        state.written.push((at, value));
        if at == offset::CC {
            state.cc = Cc::from_bits(value as u32);
            let moves = if state.cc.en() {
                self.script.rises
            } else {
                self.script.falls
            };
            state.ready = if moves { state.cc.en() } else { state.ready };
        }
    }
}

impl Registers for Fake {
    fn read32(&self, at: BarOffset) -> u32 {
        self.read(at.0) as u32
    }
    fn read64(&self, at: BarOffset) -> u64 {
        self.read(at.0)
    }
    fn write32(&self, at: BarOffset, value: u32) {
        self.write(at.0, value.into());
    }
    fn write64(&self, at: BarOffset, value: u64) {
        self.write(at.0, value);
    }
}

impl Backing for Fake {
    fn name(&self) -> &str {
        "fake-0"
    }
    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError> {
        let index = at.0.checked_sub(offset::DOORBELLS).map(|bytes| bytes / 4);
        let word = index.and_then(|index| self.doorbells.get(index as usize));
        word.map(doorbell).ok_or("no doorbell there".into())
    }
    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        self.state.lock().unwrap().mapped.push(region);
        Ok(Iova(region.address()))
    }
    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        let mut state = self.state.lock().unwrap();
        let before = state.mapped.len();
        state
            .mapped
            .retain(|region| (region.address(), region.bytes()) != (iova.0, len));
        if state.mapped.len() == before {
            Err("not mapped".into())
        } else {
            Ok(())
        }
    }
    fn reset(&self) -> Result<(), BackingError> {
        Err("registers alone have no bus".into())
    }
}
