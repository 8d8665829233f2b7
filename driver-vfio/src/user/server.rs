//! The server: emulated controllers, each for one client after the other.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvme_model::{
    Configuration, ConfigurationError, Controller, LentDoorbells, Link, Media, Serving,
};
use nvme_wire::regs::{Cc, Csts, doorbell_offset, offset};
use rustix::fs::MemfdFlags;
use vfio_bindings::bindings::vfio::{
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend, ServerRegion, SparseArea};
use vm_memory::MmapRegion;

use super::statistics::{self, Statistics};
use super::{BAR, CONFIG, REGIONS, STATISTICS};
use crate::pages::{self, PAGE};

/// Bytes of the PCI configuration space.
const CONFIG_BYTES: u64 = 256;
/// Longest wait for the threads that serve the queues to let go of them: a step moves at most some
/// MiB, and the machine may be busy.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two looks at CSTS.
const POLL: Duration = Duration::from_micros(100);

/// Emulated SSDs, each behind a socket of its own, and the threads that serve their queues.
pub struct Server {
    /// Dropped first: afterwards nobody uses the controllers.
    _serving: Serving,
    ports: Vec<Port>,
}

/// What one emulated SSD is made of.
pub struct Ssd {
    /// Where its clients come to.
    pub listener: UnixListener,
    /// The controller.
    pub configuration: Configuration,
    /// Its blocks.
    pub media: Media,
}

/// One SSD and its socket.
struct Port {
    protocol: vfio_user::Server,
    device: Device,
}

impl Server {
    /// Makes `ssds`, which share one PCIe link, and serves their queues on `threads` threads, at
    /// least one. Clients are not taken yet.
    ///
    /// # Errors
    /// There is no memory for the doorbells, no thread, or [`ConfigurationError`].
    pub fn start(ssds: Vec<Ssd>, threads: u32) -> Result<Self, ServerError> {
        let threads = threads.max(1);
        let link = Link::new();
        let ports = ssds
            .into_iter()
            .map(|ssd| Port::new(ssd, &link, threads))
            .collect::<Result<Vec<Port>, _>>()?;
        let controllers = ports.iter().map(|port| Arc::clone(&port.device.controller));
        let serving = Serving::start(controllers.collect(), threads as usize);
        Ok(Self {
            _serving: serving.map_err(ServerError::Threads)?,
            ports,
        })
    }

    /// Takes `clients` clients of each SSD, one after the other, and returns when they have left,
    /// however they did. After each the controller is stopped and the client's memory let go. What
    /// went wrong is told to `report`; the next client is served all the same, unless a controller
    /// did not stop.
    pub fn serve(&mut self, clients: usize, report: &(dyn Fn(ServerError) + Sync)) {
        std::thread::scope(|scope| {
            for port in &mut self.ports {
                scope.spawn(move || port.serve(clients, report));
            }
        });
    }
}

impl Port {
    fn new(ssd: Ssd, link: &Link, threads: u32) -> Result<Self, ServerError> {
        let configuration = ssd.configuration;
        let last = doorbell_offset(configuration.queues, true, configuration.dstrd);
        let bar = (last + 4).next_multiple_of(PAGE);
        let file = pages::file(bar, MemfdFlags::empty()).map_err(ServerError::Doorbells)?;
        let own = file.try_clone().map_err(ServerError::Doorbells)?;
        let doorbells = pages::map(own, offset::DOORBELLS, bar - offset::DOORBELLS);
        let doorbells = doorbells.map_err(ServerError::Doorbells)?;
        // SAFETY: zeroed pages up to the last doorbell, which `Device` keeps longer than the
        // controller, and nobody else has that after `Server::_serving`.
        let lent = unsafe { LentDoorbells::shared(address(&doorbells)) };
        let link = Some(link.clone());
        let controller = Controller::new(configuration, ssd.media, link, Some(lent))?;
        let regions = regions(&file, bar);
        let listener = ssd.listener.into();
        Ok(Self {
            protocol: vfio_user::Server::from_owned_fd(listener, true, vec![], regions),
            device: Device {
                controller: Arc::new(controller),
                threads,
                mapped: HashMap::new(),
                retired: Vec::new(),
                _doorbells: doorbells,
                _file: file,
            },
        })
    }

    fn serve(&mut self, clients: usize, report: &(dyn Fn(ServerError) + Sync)) {
        for _ in 0..clients {
            let served = self.protocol.run(&mut self.device);
            // [VF-4] First it stops, then its memory goes.
            if let Err(error) = self.device.stop() {
                // A thread may be in the client's memory still, so that stays.
                return report(ServerError::Stuck(error));
            }
            self.device.forget_all();
            if let Err(error) = served {
                report(ServerError::Protocol(error.to_string()));
            }
        }
    }
}

/// An error of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The doorbells' pages.
    #[error("cannot make pages for the doorbells: {0}")]
    Doorbells(io::Error),
    /// The threads that serve the queues.
    #[error("cannot start a thread for the SSDs: {0}")]
    Threads(io::Error),
    /// The controller.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// A client.
    #[error("a client left without a word: {0}")]
    Protocol(String),
    /// The controller.
    #[error("the controller cannot be stopped: {0}; its client's memory stays mapped")]
    Stuck(io::Error),
}

/// What the client sees of each region.
fn regions(doorbells: &File, bar: u64) -> Vec<ServerRegion> {
    let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    let region = |index| {
        let (size, flags) = match index {
            BAR => (bar, access | VFIO_REGION_INFO_FLAG_MMAP),
            CONFIG => (CONFIG_BYTES, access),
            STATISTICS => (statistics::BYTES as u64, VFIO_REGION_INFO_FLAG_READ),
            _ => (0, 0),
        };
        let area = vfio_region_sparse_mmap_area {
            offset: offset::DOORBELLS,
            size: bar - offset::DOORBELLS,
        };
        let is_bar = index == BAR;
        ServerRegion {
            region_info: vfio_region_info {
                argsz: size_of::<vfio_region_info>() as u32,
                index,
                flags,
                size,
                ..vfio_region_info::default()
            },
            sparse_areas: is_bar.then_some(SparseArea { area }).into_iter().collect(),
            mmap_fd: is_bar.then(|| doorbells.as_raw_fd()),
        }
    };
    (0..REGIONS).map(region).collect()
}

/// Address of a mapping in this process.
fn address(region: &MmapRegion) -> u64 {
    region.as_ptr().expose_provenance() as u64
}

/// The controller and the client's memory.
struct Device {
    controller: Arc<Controller>,
    threads: u32,
    /// The client's memory, by its first IOVA.
    mapped: HashMap<u64, MmapRegion>,
    /// Memory that the client has taken back from a controller that runs. A command in flight may
    /// name it still, if the client is careless, so it stays until the controller has stopped.
    retired: Vec<MmapRegion>,
    // After the controller.
    _doorbells: MmapRegion,
    _file: File,
}

impl Device {
    /// Clears CC.EN and waits until the controller has let go of all queues.
    fn stop(&self) -> io::Result<()> {
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
    fn forget_all(&mut self) {
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
