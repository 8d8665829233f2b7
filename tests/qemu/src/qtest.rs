//! QEMU's controller as a backing: registers by message, DMA into memory that both map.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use driver_vfio::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};
use nvme_wire::regs::offset;
use warpstore_simt::{NativeCell, System};

use crate::doorbells::Doorbells;
use crate::memory::{Words, doorbell};
use crate::qemu::{Process, RAM_BYTES};
use crate::ram::Ram;
use crate::setup::{FIRST_SLOT, Setup};
use crate::wire::{Function, Wire};

/// Where BAR 0 is put: below 4 GiB, above the machine's memory.
const BAR: u64 = 0xe000_0000;
/// Pause of the thread that forwards doorbells, when it found none.
const POLL: Duration = Duration::from_micros(20);

/// Registers of the configuration space (PCI Local Bus 3.0, chapter 6; PCIe Base, 7.5.3).
mod config {
    pub(super) const COMMAND: u8 = 0x04;
    pub(super) const MEMORY_AND_BUS_MASTER: u32 = 1 << 1 | 1 << 2;
    pub(super) const BAR: u8 = 0x10;
    pub(super) const BAR_HIGH: u8 = 0x14;
    pub(super) const CAPABILITIES: u8 = 0x34;
    pub(super) const PCIE: u8 = 0x10;
    /// Offset of Device Control from the PCIe capability, and its bit for a reset.
    pub(super) const DEVICE_CONTROL: u8 = 8;
    pub(super) const FUNCTION_RESET: u32 = 1 << 15;
    /// How long a function may take to be reset.
    pub(super) const RESET_TIME: std::time::Duration = std::time::Duration::from_millis(100);
}

/// A machine with a controller. Dropping it ends QEMU.
pub struct Qtest {
    bus: Arc<Bus>,
    forwarder: Option<JoinHandle<()>>,
    ram: Ram,
    process: Mutex<Process>,
    name: String,
    setup: Setup,
    /// Ranges that are mapped, as address in the machine and length.
    mapped: Mutex<Vec<(u64, u64)>>,
}

/// What the thread that forwards doorbells shares with the backing.
struct Bus {
    wire: Wire,
    doorbells: Doorbells,
    ended: AtomicBool,
}

impl Qtest {
    /// Starts a machine, and gives its controller an address and leave to use memory.
    ///
    /// # Errors
    /// QEMU does not start, or its answers make no sense.
    pub fn start(program: &Path, setup: &Setup) -> io::Result<Self> {
        let ram = Ram::new(RAM_BYTES)?;
        let (process, stream) = Process::start(program, setup, &ram.path())?;
        let wire = Wire::new(stream)?;
        let bytes = enable(&wire)?;
        let doorbells = Doorbells::new((bytes - offset::DOORBELLS) as usize / 4);
        let bus = Arc::new(Bus {
            wire,
            doorbells,
            ended: AtomicBool::new(false),
        });
        let forwarder = spawn({
            let bus = Arc::clone(&bus);
            move || bus.forward_until_ended()
        });
        Ok(Self {
            bus,
            forwarder: Some(forwarder),
            ram,
            process: Mutex::new(process),
            name: format!("QEMU {}", setup.serial),
            setup: setup.clone(),
            mapped: Mutex::default(),
        })
    }

    /// `bytes` of the machine's memory, all ones at first.
    ///
    /// # Panics
    /// If the machine has too little.
    pub fn allocate(&self, bytes: u64) -> Words {
        self.ram.allocate(bytes)
    }

    /// What QEMU logged so far.
    pub fn log(&self) -> String {
        lock(&self.process).log()
    }

    /// The file with the blocks of a namespace.
    pub fn image(&self, nsid: u32) -> PathBuf {
        self.setup.image(lock(&self.process).folder(), nsid)
    }

    /// Ends QEMU, as a drive ends that is pulled out.
    pub fn kill(&self) {
        lock(&self.process).kill();
    }

    /// Ranges that are still mapped.
    pub fn n_mapped(&self) -> usize {
        lock(&self.mapped).len()
    }
}

impl Bus {
    fn forward_until_ended(&self) {
        while !self.ended.load(Ordering::Relaxed) {
            if !self.forward() {
                sleep(POLL);
            }
        }
    }

    fn forward(&self) -> bool {
        self.doorbells.forward(|index, value| {
            let at = offset::DOORBELLS + 4 * index as u64;
            // A controller that is gone hears nothing.
            let _ = self.wire.write32(BAR + at, value);
        })
    }
}

impl Drop for Qtest {
    fn drop(&mut self) {
        self.bus.ended.store(true, Ordering::Relaxed);
        if let Some(forwarder) = self.forwarder.take() {
            // Its panic has been printed.
            let _ = forwarder.join();
        }
    }
}

impl Registers for Qtest {
    fn read32(&self, at: BarOffset) -> u32 {
        self.bus.wire.read32(BAR + at.0).unwrap_or(u32::MAX)
    }
    fn read64(&self, at: BarOffset) -> u64 {
        let low = self.read32(at);
        u64::from(self.read32(BarOffset(at.0 + 4))) << 32 | u64::from(low)
    }
    fn write32(&self, at: BarOffset, value: u32) {
        // What was rung before comes before.
        self.bus.forward();
        // A controller that is gone hears nothing.
        let _ = self.bus.wire.write32(BAR + at.0, value);
    }
    fn write64(&self, at: BarOffset, value: u64) {
        self.write32(at, value as u32);
        self.write32(BarOffset(at.0 + 4), (value >> 32) as u32);
    }
}

impl Backing for Qtest {
    fn name(&self) -> &str {
        &self.name
    }

    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError> {
        let index = at.0.checked_sub(offset::DOORBELLS).map(|bytes| bytes / 4);
        let word = index.and_then(|index| self.bus.doorbells.take(index as usize));
        let word = word.ok_or_else(|| format!("BAR 0 has no doorbell at {:#x}", at.0))?;
        Ok(doorbell(word))
    }

    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        let (address, len) = (region.address(), region.bytes());
        let in_machine = self.ram.in_machine(address, len);
        let iova = in_machine.ok_or_else(|| {
            format!("{len} bytes at {address:#x} are not in the machine's memory")
        })?;
        lock(&self.mapped).push((iova, len));
        Ok(Iova(iova))
    }

    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        let mut mapped = lock(&self.mapped);
        let found = mapped.iter().position(|range| *range == (iova.0, len));
        let index = found.ok_or_else(|| format!("{len} bytes at {:#x} are not mapped", iova.0))?;
        mapped.swap_remove(index);
        Ok(())
    }

    fn reset(&self) -> Result<(), BackingError> {
        let wire = &self.bus.wire;
        let at = pcie_capability(wire)? + config::DEVICE_CONTROL;
        let control = wire.config32(FUNCTION, at)?;
        wire.set_config32(FUNCTION, at, control | config::FUNCTION_RESET)?;
        sleep(config::RESET_TIME);
        // The reset took the address and the leave to use memory.
        enable(wire)?;
        Ok(())
    }
}

const FUNCTION: Function = Function { slot: FIRST_SLOT };

/// Puts BAR 0 in its place, lets the controller use memory, and returns the BAR's size in bytes.
fn enable(wire: &Wire) -> io::Result<u64> {
    wire.set_config32(FUNCTION, config::BAR, u32::MAX)?;
    let mask = wire.config32(FUNCTION, config::BAR)? & !0xf;
    let bytes = u64::from(mask.wrapping_neg());
    if bytes <= offset::DOORBELLS {
        let text = format!("slot {FIRST_SLOT} has a BAR 0 of {bytes} bytes: no NVMe controller");
        return Err(io::Error::other(text));
    }
    wire.set_config32(FUNCTION, config::BAR, BAR as u32)?;
    wire.set_config32(FUNCTION, config::BAR_HIGH, 0)?;
    let command = wire.config32(FUNCTION, config::COMMAND)?;
    wire.set_config32(
        FUNCTION,
        config::COMMAND,
        command | config::MEMORY_AND_BUS_MASTER,
    )?;
    Ok(bytes)
}

/// Where the function's PCI Express capability begins.
fn pcie_capability(wire: &Wire) -> io::Result<u8> {
    let mut at = wire.config32(FUNCTION, config::CAPABILITIES)? as u8;
    // A list that goes round has at most this many places.
    for _ in 0..48 {
        if at == 0 {
            break;
        }
        let [id, next, ..] = wire.config32(FUNCTION, at)?.to_le_bytes();
        if id == config::PCIE {
            return Ok(at);
        }
        at = next;
    }
    Err(io::Error::other(
        "the function has no PCI Express capability",
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
