//! Memory that controllers use, and what a kernel says that will not pin it.

use std::{fs, io};

use rustix::fs::MemfdFlags;
use rustix::process::{Resource, getrlimit};
use vfio_ioctls::VfioError;
use vm_memory::MmapRegion;
use warpstore_simt::{NativeCells, System};

use super::sys;
use crate::pages::{self, Listed};

/// Size of a huge page, and what allocations are rounded up to. Bytes.
const HUGE: u64 = 2 << 20;

/// Which pages memory was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// Huge pages of 2 MiB: few entries for the IOMMU.
    Huge,
    /// Pages of 4 KiB, since the kernel has too few free huge pages; the command reserves them.
    Small {
        /// What makes huge pages of it next time.
        mend: String,
    },
}

/// Memory for rings and data: zeroed, and of huge pages where there are any. Whoever maps it for a
/// controller unmaps it before it is dropped; an emulated SSD in another process then shares it.
pub struct DmaMemory {
    _listed: Listed,
    region: MmapRegion,
    pages: PageSize,
}

impl DmaMemory {
    /// At least `bytes` of memory, at a multiple of 2 MiB if huge pages are free.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE);
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let (needed, free) = (bytes / HUGE, free_huge_pages(&meminfo));
        if needed <= free
            && let Ok(region) = map(bytes, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
        {
            return Ok(Self::of(region, PageSize::Huge));
        }
        let mend = format!(
            "sysctl vm.nr_hugepages={}",
            huge_pages(&meminfo, "HugePages_Total:") + needed - needed.min(free)
        );
        let region = map(bytes, MemfdFlags::empty())?;
        Ok(Self::of(region, PageSize::Small { mend }))
    }

    fn of(region: MmapRegion, pages: PageSize) -> Self {
        Self {
            _listed: Listed::new(&region),
            region,
            pages,
        }
    }

    /// The memory, in words.
    pub fn cells(&self) -> NativeCells<u64, System> {
        sys::cells(&self.region)
    }

    /// Which pages it is made of.
    pub fn pages(&self) -> &PageSize {
        &self.pages
    }
}

fn map(bytes: u64, flags: MemfdFlags) -> io::Result<MmapRegion> {
    pages::map(pages::file(bytes, flags)?, 0, bytes)
}

/// Free huge pages of 2 MiB, by the text of /proc/meminfo.
fn free_huge_pages(meminfo: &str) -> u64 {
    let of_this_size = huge_pages(meminfo, "Hugepagesize:") << 10 == HUGE;
    // Reserved ones are free and belong to somebody.
    let free = huge_pages(meminfo, "HugePages_Free:");
    let reserved = huge_pages(meminfo, "HugePages_Rsvd:");
    if of_this_size {
        free.saturating_sub(reserved)
    } else {
        0
    }
}

fn huge_pages(meminfo: &str, key: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// What a refused mapping of `bytes` means, with `before` bytes mapped already.
pub(super) fn explain(error: VfioError, bytes: u64, before: u64) -> String {
    let known = match &error {
        VfioError::IommuDmaMap(errno) => known(errno.errno(), bytes, before),
        _ => None,
    };
    known.unwrap_or_else(|| error.to_string())
}

/// The refusals that users meet, with what to do about them.
fn known(errno: i32, bytes: u64, before: u64) -> Option<String> {
    match errno {
        libc::ENOMEM => Some(not_pinned(
            bytes,
            before,
            getrlimit(Resource::Memlock).current,
        )),
        libc::ENOSPC => Some(format!(
            "the IOMMU has no more mappings to give; map less often and more at a time, or load \
             vfio_iommu_type1 with a larger dma_entry_limit (now {})",
            fs::read_to_string("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit")
                .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
        )),
        _ => None,
    }
}

fn not_pinned(bytes: u64, before: u64, limit: Option<u64>) -> String {
    // What `ulimit -l` counts in.
    let needed = (before + bytes).div_ceil(1024);
    match limit {
        Some(limit) if before + bytes > limit => format!(
            "{bytes} bytes cannot be pinned: with the {before} before, they are more than the limit \
             of {limit} bytes of locked memory; run `ulimit -l {needed}` or more as root, or set \
             memlock in /etc/security/limits.conf and log in again"
        ),
        _ => format!("{bytes} bytes cannot be pinned: there is too little memory"),
    }
}

#[cfg(test)]
mod tests {
    use warpstore_simt::{Cell, Cells, Order};

    use super::*;

    #[test]
    fn memory_is_zeroed_whole_pages_and_writable() {
        let memory = DmaMemory::new(5000).unwrap();
        let cells = memory.cells();
        assert_eq!(cells.len() * 8, HUGE);
        assert!((cells.address() as u64).is_multiple_of(4096));
        for index in [0, cells.len() - 1] {
            assert_eq!(cells.at(index).load(Order::Relaxed), 0);
            cells.at(index).store(7, Order::Relaxed);
        }
        match memory.pages() {
            PageSize::Huge => assert!((cells.address() as u64).is_multiple_of(HUGE)),
            PageSize::Small { mend } => {
                assert!(mend.starts_with("sysctl vm.nr_hugepages="), "{mend}")
            }
        }
    }

    #[test]
    fn reserved_pages_and_those_of_other_sizes_are_not_free() {
        let meminfo = |kib| {
            format!(
                "HugePages_Total:  9\nHugePages_Free:   8\nHugePages_Rsvd:   3\nHugepagesize:  {kib} kB\n"
            )
        };
        assert_eq!(free_huge_pages(&meminfo(2048)), 5);
        assert_eq!(free_huge_pages(&meminfo(1_048_576)), 0);
        assert_eq!(free_huge_pages(""), 0);
    }

    #[test]
    fn a_limit_in_the_way_is_named_with_the_command_that_moves_it() {
        let text = not_pinned(6 << 20, 4 << 20, Some(8 << 20));
        assert!(text.contains("ulimit -l 10240"), "{text}");
        assert!(!not_pinned(1, 0, None).contains("ulimit"));
        assert!(!not_pinned(1, 0, Some(8)).contains("ulimit"));
    }

    #[test]
    fn an_iommu_without_room_for_mappings_is_told_from_a_lack_of_memory() {
        let refused = |errno| known(errno, 1 << 20, 0).unwrap_or_default();
        assert!(refused(libc::ENOSPC).contains("dma_entry_limit"));
        assert!(refused(libc::ENOMEM).contains("cannot be pinned"));
        assert_eq!(known(libc::EFAULT, 1 << 20, 0), None);
    }
}
