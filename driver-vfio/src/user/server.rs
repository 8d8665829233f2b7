//! The server: emulated controllers, each for one client after the other.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nvme_model::{
    Configuration, ConfigurationError, Controller, LentDoorbells, Link, Media, Serving,
};
use nvme_wire::regs::{doorbell_offset, offset};
use rustix::fs::MemfdFlags;
use vfio_bindings::bindings::vfio::{
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{ServerRegion, SparseArea};

use super::device::{CONFIG_BYTES, Device, address};
use super::statistics;
use super::{BAR, CONFIG, REGIONS, STATISTICS};
use crate::pages::{self, PAGE};

/// Pause before clients are taken again, after that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    /// did not stop. While none can be taken, as without file descriptors, that is told once.
    pub fn serve(&mut self, clients: usize, report: &(dyn Fn(ServerError) + Sync)) {
        thread::scope(|scope| {
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
            device: Device::new(controller, threads, doorbells, file),
        })
    }

    fn serve(&mut self, clients: usize, report: &(dyn Fn(ServerError) + Sync)) {
        let (mut served, mut said) = (0, false);
        while served < clients {
            let outcome = self.serve_one();
            if let Err(error @ ServerError::Accept(_)) = outcome {
                // Nobody came, and the next try may fail as fast: it must fill no log.
                if !std::mem::replace(&mut said, true) {
                    report(error);
                }
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
            (served, said) = (served + 1, false);
            // [VF-4] First it stops, then its memory goes.
            if let Err(error) = self.device.stop() {
                // A thread may be in the client's memory still, so that stays.
                return report(ServerError::Stuck(error));
            }
            self.device.forget_all();
            if let Err(error) = outcome {
                report(error);
            }
        }
    }

    /// Takes a client and answers it until it leaves. The controller may run on.
    fn serve_one(&mut self) -> Result<(), ServerError> {
        let (protocol, device) = (&self.protocol, &mut self.device);
        // `vfio_user` trusts the length and the text of VERSION. The device it leaves is whole: it is
        // not called meanwhile, and stopped next.
        let served = catch_unwind(AssertUnwindSafe(|| protocol.run(device)));
        match served {
            Ok(Ok(())) => Ok(()),
            Ok(Err(vfio_user::Error::SocketAccept(error))) => Err(ServerError::Accept(error)),
            Ok(Err(error)) => Err(ServerError::Protocol(error.to_string())),
            Err(panic) => Err(ServerError::Malformed(words(&*panic))),
        }
    }
}

/// What a panic said, in short.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    // It may quote all that the client sent.
    text.unwrap_or("no words").chars().take(100).collect()
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
    /// No client can be taken, for now.
    #[error("no client can be taken: {0}; the SSD tries again, and is silent until one was")]
    Accept(io::Error),
    /// A client.
    #[error("a client left without a word: {0}")]
    Protocol(String),
    /// A client that is none.
    #[error("a client sent what is no message of vfio-user, and was cut off ({0})")]
    Malformed(String),
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
