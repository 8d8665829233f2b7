//! What a client reaches: an emulated controller and the client's memory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvme_model::Controller;
use nvme_wire::regs::{Cc, Csts, offset};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};
use vm_memory::MmapRegion;

use super::statistics::Statistics;
use super::{BAR, CONFIG, STATISTICS};
use crate::pages;

/// Bytes of the PCI configuration space.
pub(super) const CONFIG_BYTES: u64 = 256;
/// Longest wait for the threads that serve the queues to let go of them: a step moves at most some
/// MiB, and the machine may be busy.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two looks at CSTS.
const POLL: Duration = Duration::from_micros(100);
/// Which part of the machine's memory a client may have mapped: one half.
const CLIENTS_PART: u64 = 2;

/// Address of a mapping in this process.
pub(super) fn address(region: &MmapRegion) -> u64 {
    region.as_ptr().expose_provenance() as u64
}

/// The controller and the client's memory.
pub(super) struct Device {
    pub(super) controller: Arc<Controller>,
    threads: u32,
    /// The client's memory, by its first IOVA.
    mapped: HashMap<u64, MmapRegion>,
    /// Memory that the client has taken back from a controller that runs. A command in flight may
    /// name it still, if the client is careless, so it stays until the controller has stopped.
    retired: Vec<MmapRegion>,
    /// Most bytes of both together: mapping makes pages that were not there yet.
    most: u64,
    // After the controller.
    _doorbells: MmapRegion,
    _file: File,
}

impl Device {
    /// Over the doorbells of `file`, which are lent to `controller`.
    pub(super) fn new(
        controller: Controller,
        threads: u32,
        doorbells: MmapRegion,
        file: File,
    ) -> Self {
        Self {
            controller: Arc::new(controller),
            threads,
            mapped: HashMap::new(),
            retired: Vec::new(),
            most: pages::of_machine() / CLIENTS_PART,
            _doorbells: doorbells,
            _file: file,
        }
    }

    /// Clears CC.EN and waits until the controller has let go of all queues.
    pub(super) fn stop(&self) -> io::Result<()> {
        let begin = Instant::now();
        self.controller.write32(offset::CC, Cc::new().into_bits());
        while !self.has_stopped() {
            if begin.elapsed() > STOP_LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Whether no thread uses the client's memory, nor will before CC.EN is set.
    fn has_stopped(&self) -> bool {
        let csts = Csts::from_bits(self.controller.read32(offset::CSTS));
        let cc = Cc::from_bits(self.controller.read32(offset::CC));
        !cc.en() && !csts.rdy()
    }

    /// Unmaps everything of the client's. The controller has stopped.
    pub(super) fn forget_all(&mut self) {
        for (iova, region) in self.mapped.drain() {
            // Only what `dma_map` mapped stands in the table.
            let _ = self.controller.unmap_dma(iova, region.size() as u64);
        }
        self.retired.clear();
    }

    fn forget_retired(&mut self) {
        if self.has_stopped() {
            self.retired.clear();
        }
    }

    /// The registers' bytes, as many as were asked for.
    fn read_bar(&self, at: u64, data: &mut [u8]) -> io::Result<()> {
        match (data.len(), at % 8) {
            (4, 0 | 4) => data.copy_from_slice(&self.controller.read32(at).to_le_bytes()),
            (8, 0) => data.copy_from_slice(&self.controller.read64(at).to_le_bytes()),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(())
    }
}

/// The configuration space: an NVMe controller of no vendor (class 01 08 02), BAR 0 of 64 bits.
fn configuration_space() -> [u8; CONFIG_BYTES as usize] {
    let mut bytes = [0; CONFIG_BYTES as usize];
    bytes[..4].fill(0xff);
    bytes[0x09..0x0c].copy_from_slice(&[0x02, 0x08, 0x01]);
    bytes[0x10] = 0x04;
    bytes
}

impl ServerBackend for Device {
    fn region_read(&mut self, region: u32, at: u64, data: &mut [u8]) -> io::Result<()> {
        let copy = |all: &[u8], data: &mut [u8]| {
            let end = at.checked_add(data.len() as u64);
            let range = at as usize..end.unwrap_or(u64::MAX) as usize;
            let part = all.get(range).ok_or(io::ErrorKind::InvalidInput)?;
            data.copy_from_slice(part);
            Ok(())
        };
        match region {
            BAR => self.read_bar(at, data),
            CONFIG => copy(&configuration_space(), data),
            STATISTICS => {
                let statistics = Statistics::of(&self.controller, self.threads);
                copy(&statistics.to_bytes(), data)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn region_write(&mut self, region: u32, at: u64, data: &[u8]) -> io::Result<()> {
        match (region, data, at % 8) {
            (BAR, &[a, b, c, d], 0 | 4) => {
                self.controller
                    .write32(at, u32::from_le_bytes([a, b, c, d]));
            }
            (BAR, &[a, b, c, d, e, f, g, h], 0) => {
                let value = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                self.controller.write64(at, value);
            }
            // Nothing there can be changed.
            (CONFIG, ..) => {}
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        start: u64,
        iova: u64,
        bytes: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        self.forget_retired();
        let Some(file) = file else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mapped = self.mapped.values().chain(&self.retired);
        let mapped: u64 = mapped.map(|region| region.size() as u64).sum();
        if bytes > self.most.saturating_sub(mapped) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let region = pages::map(file, start, bytes)?;
        // SAFETY: the mapping is readable and writable, cannot lose its pages, and is dropped only
        // after the range was unmapped here and the controller has stopped.
        let mapped = unsafe { self.controller.map_dma(iova, address(&region), bytes) };
        mapped.map_err(io::Error::other)?;
        self.mapped.insert(iova, region);
        Ok(())
    }

    fn dma_unmap(&mut self, _flags: DmaUnmapFlags, iova: u64, bytes: u64) -> io::Result<()> {
        let unmapped = self.controller.unmap_dma(iova, bytes);
        unmapped.map_err(io::Error::other)?;
        self.retired.extend(self.mapped.remove(&iova));
        self.forget_retired();
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.stop()
    }

    fn set_irqs(
        &mut self,
        _index: u32,
        _flags: u32,
        _start: u32,
        _count: u32,
        _files: Vec<File>,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use nvme_model::{Configuration, Faults, Media, Namespace, Profile};
    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::pages::PAGE;

    fn device() -> Device {
        let namespace = Namespace {
            lbas: 8,
            lba_bytes: 512,
        };
        let configuration = Configuration {
            serial: "S1".into(),
            model: "device".into(),
            namespaces: vec![namespace],
            mdts: 2,
            queue_entries: 16,
            dstrd: 0,
            to: 4,
            queues: 1,
            profile: Profile::IDEAL,
            volatile_write_cache: false,
            shadow_doorbells: false,
            faults: Faults::none(),
        };
        let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
        let file = pages::file(PAGE, MemfdFlags::empty()).unwrap();
        let doorbells = pages::map(file.try_clone().unwrap(), 0, PAGE).unwrap();
        let controller = Controller::new(configuration, media, None, None).unwrap();
        Device::new(controller, 1, doorbells, file)
    }

    #[test]
    fn a_client_maps_no_more_than_its_part_of_the_machines_memory() {
        let mut device = device();
        assert!(device.most >= PAGE && device.most < u64::MAX / CLIENTS_PART);
        device.most = 3 * PAGE;
        let file = pages::file(8 * PAGE, MemfdFlags::empty()).unwrap();
        let map = |device: &mut Device, iova, pages| {
            let file = Some(file.try_clone().unwrap());
            let flags = DmaMapFlags::empty();
            device.dma_map(flags, 0, iova, pages * PAGE, file)
        };
        let kind = |mapped: io::Result<()>| mapped.unwrap_err().kind();
        assert_eq!(kind(map(&mut device, 0, 4)), io::ErrorKind::OutOfMemory);
        assert_eq!(
            kind(map(&mut device, 0, u64::MAX / PAGE)),
            io::ErrorKind::OutOfMemory
        );
        map(&mut device, 0, 2).unwrap();
        assert_eq!(
            kind(map(&mut device, 1 << 30, 2)),
            io::ErrorKind::OutOfMemory
        );
        map(&mut device, 1 << 30, 1).unwrap();
        let flags = DmaUnmapFlags::empty();
        device.dma_unmap(flags, 0, 2 * PAGE).unwrap();
        map(&mut device, 2 << 30, 2).unwrap();
        device.forget_all();
        map(&mut device, 0, 3).unwrap();
        device.forget_all();
    }
}
