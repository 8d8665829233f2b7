//! The register file and the life of a controller between reset and shutdown (Base 3.1.3, 3.5).

use nvme_wire::regs::{Aqa, Cap, Cc, Crto, Csts, Vs, offset};

use super::{Controller, State};
use crate::layout::header;

/// Registers that can change.
#[derive(Default)]
pub(super) struct Registers {
    pub(super) cc: Cc,
    pub(super) csts: Csts,
    pub(super) aqa: Aqa,
    pub(super) asq: u64,
    pub(super) acq: u64,
    /// CC.EN was cleared and the service has not let go of all queues yet.
    resetting: bool,
}

impl Registers {
    /// Of a controller that waits for its service to let go of all queues, and is disabled then.
    pub(super) fn in_reset() -> Self {
        Self {
            resetting: true,
            ..Self::default()
        }
    }
}

/// Largest CC.MPS: pages of 64 KiB.
const MPSMAX: u8 = 4;
/// NVM Express 2.0.
pub(super) const VERSION: Vs = Vs::new().with_mjr(2);

impl Controller {
    /// Reads a 32-bit register. Offsets that hold none, and doorbells, read as 0; of a controller
    /// that is gone all read as all-ones.
    pub fn read32(&self, at: u64) -> u32 {
        let word = self.read64(at & !7);
        if at & 7 == 0 {
            word as u32
        } else {
            (word >> 32) as u32
        }
    }

    /// Reads the 64 bits at `at`, a multiple of 8: a 64-bit register, or two of 32 bits.
    pub fn read64(&self, at: u64) -> u64 {
        let mut state = self.lock();
        if self.is_gone() {
            return u64::MAX;
        }
        self.settle(&mut state);
        let registers = &state.registers;
        match at {
            offset::CAP => self.cap().into_bits(),
            offset::VS => VERSION.into_bits() as u64,
            // INTMC and CC.
            0x10 => (registers.cc.into_bits() as u64) << 32,
            // Reserved and CSTS.
            0x18 => {
                let csts = registers.csts;
                let csts = csts.with_cfs(csts.cfs() || self.has_failed());
                (csts.into_bits() as u64) << 32
            }
            // NSSR and AQA.
            0x20 => (registers.aqa.into_bits() as u64) << 32,
            offset::ASQ => registers.asq,
            offset::ACQ => registers.acq,
            offset::CRTO => self.crto().into_bits() as u64,
            _ => 0,
        }
    }

    /// Writes a 32-bit register or doorbell. Writes to read-only and unknown offsets do nothing,
    /// nor do those to the admin queue's registers while the controller is enabled.
    pub fn write32(&self, at: u64, value: u32) {
        if at >= offset::DOORBELLS {
            return self.doorbells.ring(at, value);
        }
        let mut state = self.lock();
        if self.is_gone() {
            return;
        }
        if at == offset::CC {
            return self.configure(&mut state, Cc::from_bits(value));
        }
        let registers = &mut state.registers;
        if registers.cc.en() {
            return;
        }
        let half = |old: u64, high: bool| {
            if high {
                old & 0xffff_ffff | (value as u64) << 32
            } else {
                old & !0xffff_ffff | value as u64
            }
        };
        match at {
            offset::AQA => registers.aqa = Aqa::from_bits(value),
            offset::ASQ => registers.asq = half(registers.asq, false),
            0x2c => registers.asq = half(registers.asq, true),
            offset::ACQ => registers.acq = half(registers.acq, false),
            0x34 => registers.acq = half(registers.acq, true),
            _ => {}
        }
    }

    /// Writes 64 bits at `at`, a multiple of 8.
    pub fn write64(&self, at: u64, value: u64) {
        self.write32(at, value as u32);
        if at < offset::DOORBELLS {
            self.write32(at + 4, (value >> 32) as u32);
        }
    }

    fn cap(&self) -> Cap {
        Cap::new()
            .with_mqes_z((self.configuration.queue_entries - 1) as u16)
            .with_cqr(true)
            .with_to(self.configuration.to)
            .with_dstrd(self.configuration.dstrd)
            .with_css(Cap::CSS_NVM)
            .with_mpsmax(MPSMAX)
            .with_crms(Cap::CRMS_WITH_MEDIA)
    }

    fn crto(&self) -> Crto {
        Crto::new().with_crwmt(self.configuration.to as u16)
    }

    /// A write to CC: shutdown, enable, reset.
    fn configure(&self, state: &mut State, new: Cc) {
        let old = std::mem::replace(&mut state.registers.cc, new);
        if new.shn() != 0 && new.shn() != old.shn() {
            // Both kinds of shutdown keep what was written, if the disk lets us.
            let kept = self.make_durable();
            let csts = state.registers.csts.with_shst(Csts::SHST_COMPLETE);
            state.registers.csts = csts.with_cfs(csts.cfs() || !kept);
        }
        match (old.en(), new.en()) {
            (false, true) if !state.registers.resetting => self.enable(state),
            (true, false) => {
                self.delete_all(state);
                state.registers.resetting = true;
            }
            _ => {}
        }
        self.settle(state);
    }

    /// CC.EN went from 0 to 1: ready if the configuration is one we support, else fatal.
    fn enable(&self, state: &mut State) {
        let cc = state.registers.cc;
        let supported = cc.css() == Cc::CSS_NVM && cc.ams() == 0 && cc.mps() <= MPSMAX;
        if supported {
            self.image_here().write(header::PAGE, 4096 << cc.mps());
        }
        let ready = supported && self.open_admin(state);
        state.registers.csts = Csts::new().with_rdy(ready).with_cfs(!ready);
    }

    /// Completes a reset once no service acts on a queue any more.
    pub(super) fn settle(&self, state: &mut State) {
        let quiet = || (0..self.configuration.queues as u32).all(|queue| self.is_quiet(queue));
        if state.registers.resetting && quiet() {
            state.registers.resetting = false;
            state.registers.csts = Csts::new();
            self.recover();
            if state.registers.cc.en() {
                self.enable(state);
            }
        }
    }
}
