//! BAR 0: registers and doorbells.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nvme_wire::regs::offset;
use vfio_bindings::bindings::vfio::{VFIO_PCI_BAR0_REGION_INDEX, VFIO_REGION_INFO_FLAG_MMAP};
use vfio_ioctls::{VfioDevice, VfioRegionInfoCap};
use warpstore_simt::{NativeCell, System};

use super::sys::{self, Area};

/// BAR 0: the parts that may be mapped, and a slower way to the rest.
pub(super) struct Bar {
    /// Offset in the BAR and mapping of each part.
    areas: Vec<(u64, Area)>,
    bytes: u64,
    file: File,
    /// Where the BAR begins in `file`.
    start: u64,
}

impl Bar {
    /// BAR 0 of `device`, mapped where the kernel allows it.
    pub(super) fn map(device: &VfioDevice) -> io::Result<Self> {
        let index = VFIO_PCI_BAR0_REGION_INDEX;
        let (bytes, start) = (
            device.get_region_size(index),
            device.get_region_offset(index),
        );
        let file = sys::duplicate(device)?;
        let may_be_mapped = device.get_region_flags(index) & VFIO_REGION_INFO_FLAG_MMAP != 0;
        let parts: Vec<(u64, u64)> = if may_be_mapped {
            mappable(&device.get_region_caps(index), bytes)
        } else {
            Vec::new()
        };
        Self::of(file, start, bytes, parts)
    }

    /// `bytes` bytes of `file` from `start` on, of which `parts` are mapped.
    fn of(file: File, start: u64, bytes: u64, parts: Vec<(u64, u64)>) -> io::Result<Self> {
        let map = |(at, len): (u64, u64)| {
            sys::map(&file, start + at, len as usize).map(|area| (at, area))
        };
        let areas = parts.into_iter().map(map).collect::<Result<_, _>>()?;
        Ok(Self {
            areas,
            bytes,
            file,
            start,
        })
    }

    /// The file that BAR 0 is a part of.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Where in the file it begins.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Reads the register at `at`.
    pub(super) fn read32(&self, at: u64) -> u32 {
        if let Some((area, offset)) = self.find(at) {
            return area.read32(offset);
        }
        let mut bytes = [0xff; 4];
        // An error leaves all-ones, as a controller that is gone does.
        let _ = self.file.read_exact_at(&mut bytes, self.start + at);
        u32::from_le_bytes(bytes)
    }

    /// Writes the register at `at`.
    pub(super) fn write32(&self, at: u64, value: u32) {
        if let Some((area, offset)) = self.find(at) {
            return area.write32(offset, value);
        }
        // An error means that the controller is gone; the next read tells.
        let _ = self
            .file
            .write_all_at(&value.to_le_bytes(), self.start + at);
    }

    /// The doorbell at `at`, as a word to store to.
    pub(super) fn doorbell(&self, at: u64) -> Result<NativeCell<u32, System>, String> {
        let found = self.find(at).filter(|_| at >= offset::DOORBELLS);
        let (area, word) = found.ok_or_else(|| {
            format!(
                "there is none at {at:#x}: BAR 0 has {} bytes, or does not let this part be mapped",
                self.bytes
            )
        })?;
        Ok(area.cell(word))
    }

    /// The mapping that holds the 32-bit word at `at`, and the word's offset in it.
    fn find(&self, at: u64) -> Option<(&Area, usize)> {
        self.areas.iter().find_map(|(first, area)| {
            let offset = at.checked_sub(*first)?;
            (offset + 4 <= area.bytes() as u64).then_some((area, offset as usize))
        })
    }
}

/// The parts of a region that may be mapped: all of it, unless the kernel lists them.
fn mappable(capabilities: &[VfioRegionInfoCap], bytes: u64) -> Vec<(u64, u64)> {
    let listed = capabilities.iter().find_map(|capability| match capability {
        VfioRegionInfoCap::SparseMmap(sparse) => Some(&sparse.areas),
        _ => None,
    });
    match listed {
        Some(areas) => areas.iter().map(|area| (area.offset, area.size)).collect(),
        None => vec![(0, bytes)],
    }
}

#[cfg(test)]
mod tests {
    use vfio_ioctls::{VfioRegionInfoCapSparseMmap, VfioRegionSparseMmapArea};
    use warpstore_simt::{Cell, Order};

    use super::*;

    #[test]
    fn a_bar_is_mapped_whole_unless_the_kernel_lists_its_parts() {
        let whole = [VfioRegionInfoCap::MsixMappable];
        assert_eq!(mappable(&whole, 0x4000), [(0, 0x4000)]);
        let area = |offset, size| VfioRegionSparseMmapArea { offset, size };
        let sparse = VfioRegionInfoCap::SparseMmap(VfioRegionInfoCapSparseMmap {
            areas: vec![area(0, 0x2000), area(0x3000, 0x1000)],
        });
        assert_eq!(mappable(&[sparse], 0x4000), [(0, 0x2000), (0x3000, 0x1000)]);
    }

    #[test]
    fn a_hole_in_the_mapping_is_reached_by_the_file_and_has_no_doorbells() {
        const START: u64 = 0x1000;
        let file = tempfile::tempfile().unwrap();
        file.set_len(START + 0x4000).unwrap();
        let parts = vec![(0, 0x2000), (0x3000, 0x1000)];
        let bar = Bar::of(file, START, 0x4000, parts).unwrap();
        for at in [0x14, 0x1ffc, 0x2000, 0x2ffc, 0x3000, 0x3ffc] {
            bar.write32(at, at as u32 + 1);
        }
        for at in [0x14, 0x1ffc, 0x2000, 0x2ffc, 0x3000, 0x3ffc] {
            assert_eq!(bar.read32(at), at as u32 + 1);
            let mut bytes = [0; 4];
            bar.file.read_exact_at(&mut bytes, START + at).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), at as u32 + 1, "one and the same");
        }
        assert_eq!(bar.read32(0x4000), u32::MAX, "behind the end");
        for (at, is_there) in [
            (0x14, false),
            (0x1000, true),
            (0x2000, false),
            (0x3000, true),
            (0x4000, false),
        ] {
            assert_eq!(bar.doorbell(at).is_ok(), is_there, "{at:#x}");
        }
    }

    #[test]
    fn a_bar_that_vanishes_under_its_mapping_reads_all_ones() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x4000).unwrap();
        let bar = Bar::of(file, 0, 0x4000, vec![(0, 0x2000), (0x3000, 0x1000)]).unwrap();
        let other = tempfile::tempfile().unwrap();
        other.set_len(0x1000).unwrap();
        let other = Bar::of(other, 0, 0x1000, vec![(0, 0x1000)]).unwrap();
        bar.write32(0x14, 7);
        other.write32(0x14, 8);
        let doorbell = bar.doorbell(0x3008).unwrap();
        // From now on an access of the mapping is a SIGBUS, as on a device that was pulled.
        bar.file.set_len(0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| doorbell.store(5, Order::Relaxed));
            scope.spawn(|| bar.write32(0x1000, 9));
            scope.spawn(|| assert_eq!(bar.read32(0x14), u32::MAX));
        });
        assert_eq!(bar.read32(offset::CSTS), u32::MAX);
        assert_eq!(other.read32(0x14), 8, "others stay");
    }
}
