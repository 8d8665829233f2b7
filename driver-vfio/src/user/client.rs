//! The client: a backing over a socket and shared pages.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvme_wire::regs::{Cap, doorbell_offset, offset};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_REGION_INFO_CAP_SPARSE_MMAP,
    VFIO_REGION_INFO_FLAG_MMAP,
};
use vm_memory::MmapRegion;
use warpstore_simt::{NativeCell, System};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::UserError;
use super::message::{
    CAPABILITIES, Command, DeviceInfo, DmaMap, DmaUnmap, RegionAccess, RegionInfo, SparseMmap,
    Version,
};
use super::socket::{Reply, Socket};
use super::statistics::{self, Statistics};
use super::{BAR, REGIONS, STATISTICS};
use crate::backing::{Backing, BackingError, BarOffset, DmaRegion, Iova, Registers};
use crate::pages;

/// Bits of DMA_MAP's flags: the server may read and write.
const READ_WRITE: u32 = 3;
/// Most bytes that the description of a region may take with its capabilities.
const MOST_INFO: u32 = 4096;

/// Most bytes of doorbells: the longest stride, 128 KiB, has room for 256 queue pairs there.
const MOST_DOORBELLS: u64 = 64 << 20;

/// An SSD in another process, connected.
///
/// Memory that it shall reach must be [`DmaMemory`](crate::vfio::DmaMemory). Dropping it ends the
/// connection; the server then stops the controller and lets go of the memory.
pub struct Client {
    name: String,
    socket: Mutex<Socket>,
    doorbells: Doorbells,
    /// Length of each mapping, by its first IOVA.
    mapped: Mutex<HashMap<u64, u64>>,
}

/// The part of BAR 0 that is mapped.
struct Doorbells {
    region: MmapRegion,
    /// Its offset in the BAR.
    first: u64,
}

impl Client {
    /// Connects to the server at `path`, which serves nobody else now.
    ///
    /// # Errors
    /// Nobody listens, or who listens is no such server, or serves somebody else.
    pub fn connect(path: &Path) -> Result<Self, UserError> {
        Self::over(Socket::connect(path)?, path)
    }

    fn over(mut socket: Socket, path: &Path) -> Result<Self, UserError> {
        negotiate(&mut socket).map_err(|error| match error {
            // The system takes connections for a server that is busy.
            UserError::Gone { path, source } if source.kind() == ErrorKind::TimedOut => {
                UserError::Busy { path }
            }
            other => other,
        })?;
        socket.taken(Duration::ZERO);
        check_device(&mut socket)?;
        let doorbells = map_doorbells(&mut socket)?;
        Ok(Self {
            name: format!("the SSD at {}", path.display()),
            socket: Mutex::new(socket),
            doorbells,
            mapped: Mutex::default(),
        })
    }

    /// Waits for replies as long as accesses wait for commands, but for some seconds at least.
    pub fn wait_for_replies(&self, patience: Duration) {
        self.socket().taken(patience);
    }

    /// What the SSD has counted since its process was started.
    ///
    /// # Errors
    /// The server is gone, or another one.
    pub fn statistics(&self) -> Result<Statistics, UserError> {
        let mut bytes = [0; statistics::BYTES];
        read(&mut self.socket(), STATISTICS, 0, &mut bytes)?;
        Ok(Statistics::from_bytes(&bytes))
    }

    fn socket(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mapped(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, at: BarOffset, bytes: &[u8]) {
        let access = RegionAccess {
            offset: at.0,
            region: BAR,
            count: bytes.len() as u32,
        };
        let parts = [access.as_bytes(), bytes];
        // An error means that the server is gone; the next read tells.
        let _ = self.socket().call(Command::RegionWrite, &parts, None);
    }
}

/// Agrees on the version of the protocol.
fn negotiate(socket: &mut Socket) -> Result<(), UserError> {
    let version = Version { major: 0, minor: 1 };
    let parts = [version.as_bytes(), CAPABILITIES];
    let reply = socket.call(Command::Version, &parts, None)?;
    let (answer, _) = prefix::<Version>(socket, &reply)?;
    match answer.major {
        0 => Ok(()),
        other => Err(socket.foreign(format!("it speaks version {other} of the protocol"))),
    }
}

/// The device must be a function of PCI with all of our regions.
fn check_device(socket: &mut Socket) -> Result<(), UserError> {
    let argsz = size_of::<DeviceInfo>() as u32;
    let question = DeviceInfo {
        argsz,
        ..DeviceInfo::default()
    };
    let reply = socket.call(Command::DeviceGetInfo, &[question.as_bytes()], None)?;
    let (info, _) = prefix::<DeviceInfo>(socket, &reply)?;
    let wanted = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
    if info.flags & wanted != wanted || info.num_regions < REGIONS {
        let (flags, regions) = (info.flags, info.num_regions);
        return Err(socket.foreign(format!(
            "it is a device with flags {flags:#x} and {regions} regions"
        )));
    }
    Ok(())
}

/// Maps the doorbells: the one part of BAR 0 that may be.
fn map_doorbells(socket: &mut Socket) -> Result<Doorbells, UserError> {
    let question = RegionInfo {
        argsz: MOST_INFO,
        index: BAR,
        ..RegionInfo::default()
    };
    let command = Command::DeviceGetRegionInfo;
    let mut reply = socket.call(command, &[question.as_bytes()], None)?;
    let descriptor = reply.descriptor.take();
    let (info, _) = prefix::<RegionInfo>(socket, &reply)?;
    let sparse = reply
        .body
        .get(info.cap_offset as usize..)
        .filter(|_| info.cap_offset as usize >= size_of::<RegionInfo>())
        .and_then(|rest| SparseMmap::read_from_prefix(rest).ok())
        .map(|(sparse, _)| sparse)
        .filter(|sparse| u32::from(sparse.id) == VFIO_REGION_INFO_CAP_SPARSE_MMAP)
        .filter(|sparse| sparse.areas == 1 && sparse.offset >= offset::DOORBELLS);
    let may_be_mapped = info.flags & VFIO_REGION_INFO_FLAG_MMAP != 0;
    let (Some(sparse), Some(file), true) = (sparse, descriptor, may_be_mapped) else {
        return Err(socket.foreign("it does not share its doorbells".to_owned()));
    };
    let mut cap = [0; 8];
    read(socket, BAR, offset::CAP, &mut cap)?;
    let most = most_doorbells(Cap::from_bits(u64::from_le_bytes(cap)).dstrd());
    // Mapping them makes pages that were not there yet.
    if sparse.size > most {
        let (bytes, first) = (sparse.size, sparse.offset);
        return Err(socket.foreign(format!(
            "it shares {bytes} bytes of doorbells from {first:#x} on, where {most} are the most"
        )));
    }
    let start = info.offset.wrapping_add(sparse.offset);
    let region = pages::map(file.into(), start, sparse.size)
        .map_err(|error| socket.foreign(format!("its doorbells cannot be mapped: {error}")))?;
    Ok(Doorbells {
        region,
        first: sparse.offset,
    })
}

/// Bytes that the doorbells of all queues there can be take, with this stride, in whole pages; but no
/// more than [`MOST_DOORBELLS`].
fn most_doorbells(dstrd: u8) -> u64 {
    let last = doorbell_offset(u16::MAX, true, dstrd) - offset::DOORBELLS;
    (last + 4).next_multiple_of(pages::PAGE).min(MOST_DOORBELLS)
}

/// What a reply begins with, and the rest.
fn prefix<T: FromBytes + Immutable + KnownLayout + Copy>(
    socket: &Socket,
    reply: &Reply,
) -> Result<(T, Vec<u8>), UserError> {
    match T::read_from_prefix(&reply.body) {
        Ok((value, rest)) => Ok((value, rest.to_vec())),
        Err(_) => Err(socket.foreign("a reply is too short".to_owned())),
    }
}

/// Reads `bytes` from `offset` of a region on.
fn read(socket: &mut Socket, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), UserError> {
    let access = RegionAccess {
        offset,
        region,
        count: bytes.len() as u32,
    };
    let reply = socket.call(Command::RegionRead, &[access.as_bytes()], None)?;
    let (_, data) = prefix::<RegionAccess>(socket, &reply)?;
    if data.len() != bytes.len() {
        return Err(socket.foreign("a read gave another number of bytes".to_owned()));
    }
    bytes.copy_from_slice(&data);
    Ok(())
}

impl Registers for Client {
    fn read32(&self, at: BarOffset) -> u32 {
        let mut bytes = [0xff; 4];
        // An error leaves all-ones, as a controller that is gone does.
        let _ = read(&mut self.socket(), BAR, at.0, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn read64(&self, at: BarOffset) -> u64 {
        let mut bytes = [0xff; 8];
        let _ = read(&mut self.socket(), BAR, at.0, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn write32(&self, at: BarOffset, value: u32) {
        self.write(at, &value.to_le_bytes());
    }

    fn write64(&self, at: BarOffset, value: u64) {
        self.write(at, &value.to_le_bytes());
    }
}

impl Backing for Client {
    fn name(&self) -> &str {
        &self.name
    }

    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError> {
        let Doorbells { region, first } = &self.doorbells;
        let bytes = region.size() as u64;
        let inside = |word: &u64| word.is_multiple_of(4) && *word < bytes;
        let Some(word) = at.0.checked_sub(*first).filter(inside) else {
            let (at, first) = (at.0, *first);
            return Err(UserError::NoDoorbell { at, first, bytes }.into());
        };
        let address = region.as_ptr().wrapping_add(word as usize);
        // SAFETY: aligned and inside a mapping of whole pages, which lives as long as this backing;
        // cells must not outlive that. The file cannot shrink.
        Ok(unsafe { NativeCell::new(address.cast()) })
    }

    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        let (address, bytes) = (region.address(), region.bytes());
        let file = pages::find(address, bytes).ok_or(UserError::Private { address, bytes })?;
        let map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: READ_WRITE,
            offset: file.start(),
            address,
            size: bytes,
        };
        let descriptor = Some(file.file().as_fd());
        self.socket()
            .call(Command::DmaMap, &[map.as_bytes()], descriptor)?;
        self.mapped().insert(address, bytes);
        Ok(Iova(address))
    }

    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        let mut mapped = self.mapped();
        if mapped.get(&iova.0) != Some(&len) {
            let (iova, bytes) = (iova.0, len);
            return Err(UserError::NotMapped { iova, bytes }.into());
        }
        let unmap = DmaUnmap {
            argsz: size_of::<DmaUnmap>() as u32,
            flags: 0,
            address: iova.0,
            size: len,
        };
        self.socket()
            .call(Command::DmaUnmap, &[unmap.as_bytes()], None)?;
        mapped.remove(&iova.0);
        Ok(())
    }

    /// The server lets go of the memory when the connection ends, and has mappings of its own.
    fn cuts_off(&self) -> bool {
        true
    }

    fn reset(&self) -> Result<(), BackingError> {
        self.socket().call(Command::DeviceReset, &[], None)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_takes_no_client_may_be_busy() {
        let (near, _far) = UnixStream::pair().unwrap();
        let path = Path::new("ssd");
        let socket = Socket::over(near, path, Duration::from_millis(20));
        let error = Client::over(socket, path).err().expect("nobody answers");
        let text = error.to_string();
        assert!(text.contains("may be serving another run"), "{text}");
    }
}
