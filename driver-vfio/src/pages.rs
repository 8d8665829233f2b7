//! Pages that processes share: files without a name, mapped whole, sure to stay, and found again by
//! their address.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, MmapRegion};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// A file of `bytes` zeros that nobody can shrink: who has mapped it never meets a page that is gone.
///
/// # Errors
/// There is no memory.
pub(crate) fn file(bytes: u64, flags: MemfdFlags) -> io::Result<File> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("warpstore", flags)?);
    file.set_len(bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// Maps `bytes` bytes of `file` from `offset` on, to read and write. All of them are there at once:
/// a page that is missing later would be a signal instead of an error.
///
/// # Errors
/// The file is too short, or may become so; there is no memory.
pub(crate) fn map(file: File, offset: u64, bytes: u64) -> io::Result<MmapRegion> {
    let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if !fcntl_get_seals(file.as_fd())?.contains(SealFlags::SHRINK) {
        return refused("the file of shared memory is not sealed against shrinking");
    }
    let end = offset.checked_add(bytes);
    let there = file.metadata()?.len();
    if bytes == 0 || !(offset | bytes).is_multiple_of(PAGE) || end.is_none_or(|end| end > there) {
        return refused("shared memory must be whole pages of its file");
    }
    let builder = MmapRegionBuilder::new(bytes as usize)
        .with_file_offset(FileOffset::new(file, offset))
        .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
        .with_mmap_flags(libc::MAP_SHARED | libc::MAP_POPULATE);
    builder.build().map_err(io::Error::other)
}

/// Bytes of memory that the machine has; all there could be if the system does not say.
pub(crate) fn of_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

/// The length and the file of each piece of memory that may be shared, by its address. One table for
/// the process, as its address space is one.
static SHAREABLE: Mutex<BTreeMap<u64, (u64, FileOffset)>> = Mutex::new(BTreeMap::new());

fn shareable() -> MutexGuard<'static, BTreeMap<u64, (u64, FileOffset)>> {
    SHAREABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a mapping in the table.
pub(crate) struct Listed(u64);

impl Listed {
    /// Puts `region` into the table; the caller unmaps it after this is dropped.
    pub(crate) fn new(region: &MmapRegion) -> Self {
        let address = region.as_ptr().expose_provenance() as u64;
        let file = region.file_offset().expect("`map` maps files only");
        shareable().insert(address, (region.size() as u64, file.clone()));
        Self(address)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        shareable().remove(&self.0);
    }
}

/// The file behind the `bytes` bytes at `address`, from the first of them on, if they may be shared.
pub(crate) fn find(address: u64, bytes: u64) -> Option<FileOffset> {
    let table = shareable();
    let (first, (len, file)) = table.range(..=address).next_back()?;
    let offset = address - first;
    let inside = offset <= *len && bytes <= len - offset;
    inside.then(|| FileOffset::from_arc(file.arc().clone(), file.start() + offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_its_address_while_it_is_listed() {
        let region = map(file(4 * PAGE, MemfdFlags::empty()).unwrap(), PAGE, 2 * PAGE).unwrap();
        let address = region.as_ptr().expose_provenance() as u64;
        let listed = Listed::new(&region);
        let start = |address, bytes| find(address, bytes).map(|file| file.start());
        assert_eq!(start(address, 2 * PAGE), Some(PAGE));
        assert_eq!(start(address + PAGE, PAGE), Some(2 * PAGE));
        assert_eq!(start(address + PAGE, PAGE + 1), None);
        assert_eq!(start(address - 1, 1), None);
        drop(listed);
        assert_eq!(start(address, 1), None);
    }

    #[test]
    fn files_that_could_shrink_or_end_too_soon_are_not_mapped() {
        let refused = |file, bytes| {
            let error = map(file, 0, bytes).expect_err("it must be refused");
            error.to_string()
        };
        let open = memfd_create("open", MemfdFlags::CLOEXEC).unwrap();
        let open = File::from(open);
        open.set_len(PAGE).unwrap();
        assert!(refused(open, PAGE).contains("sealed"));
        let sealed = || file(PAGE, MemfdFlags::empty()).unwrap();
        assert!(sealed().set_len(1).is_err(), "it cannot shrink");
        assert!(refused(sealed(), 2 * PAGE).contains("whole pages"));
        assert!(refused(sealed(), 1).contains("whole pages"));
        assert!(refused(sealed(), 0).contains("whole pages"));
    }
}
