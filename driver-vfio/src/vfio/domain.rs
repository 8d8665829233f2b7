//! What controllers of one VFIO container reach: IOVAs, and the memory that is mapped at them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_ioctls::{VfioContainer, VfioError};

use super::info::Limits;
use super::iova::IovaSpace;
use super::{memory, sys};
use crate::backing::{BackingError, DmaRegion, Iova};

/// The mappings of a container. Memory that several of its controllers map is pinned once, and all
/// of them find it at the same IOVA.
pub(super) struct Domain {
    container: Arc<VfioContainer>,
    space: Mutex<Space>,
}

/// What is mapped where.
struct Space {
    free: IovaSpace,
    /// Each mapping, by its first IOVA.
    mapped: HashMap<u64, Mapping>,
}

struct Mapping {
    region: DmaRegion,
    /// Controllers that have mapped it.
    users: u32,
}

impl Domain {
    /// Nothing is mapped yet in `container`, to which all of its devices belong by now.
    pub(super) fn new(container: Arc<VfioContainer>, limits: &Limits) -> Self {
        Self {
            container,
            space: Mutex::new(Space::new(limits)),
        }
    }

    /// Maps `region` for one more controller.
    pub(super) fn map(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        let map = |iova| sys::map_dma(&self.container, iova, region);
        self.space().map(region, map)
    }

    /// Takes a mapping back from one controller, and from the IOMMU if that was the last.
    pub(super) fn unmap(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        let unmap = || self.container.vfio_dma_unmap(iova.0, len as usize);
        self.space().unmap(iova, len, unmap)
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space {
    fn new(limits: &Limits) -> Self {
        Self {
            free: IovaSpace::new(limits),
            mapped: HashMap::new(),
        }
    }

    /// The IOVA of `region`; `map` tells the kernel of a new one.
    fn map(
        &mut self,
        region: DmaRegion,
        map: impl FnOnce(u64) -> Result<(), VfioError>,
    ) -> Result<Iova, BackingError> {
        let same = |(_, mapping): &(&u64, &mut Mapping)| mapping.region == region;
        if let Some((iova, mapping)) = self.mapped.iter_mut().find(same) {
            mapping.users += 1;
            return Ok(Iova(*iova));
        }
        let (address, bytes) = (region.address(), region.bytes());
        let iova = self.free.take(address, bytes)?;
        if let Err(source) = map(iova) {
            self.free.give_back(iova, bytes);
            let before = self.mapped.values().map(|one| one.region.bytes()).sum();
            return Err(memory::explain(source, bytes, before).into());
        }
        self.mapped.insert(iova, Mapping { region, users: 1 });
        Ok(Iova(iova))
    }

    /// Takes a mapping from one user; `unmap` tells the kernel when that was the last.
    fn unmap(
        &mut self,
        iova: Iova,
        len: u64,
        unmap: impl FnOnce() -> Result<(), VfioError>,
    ) -> Result<(), BackingError> {
        let found = self.mapped.get_mut(&iova.0);
        let Some(mapping) = found.filter(|mapping| mapping.region.bytes() == len) else {
            return Err(format!("{len} bytes at {:#x} are not mapped", iova.0).into());
        };
        if mapping.users > 1 {
            mapping.users -= 1;
            return Ok(());
        }
        // [VF-2] If this fails, the range stays taken.
        unmap()?;
        self.mapped.remove(&iova.0);
        self.free.give_back(iova.0, len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::memory::DmaMemory;
    use super::*;

    const HUGE: u64 = 2 << 20;

    fn space() -> Space {
        Space::new(&Limits {
            page: 4096,
            ranges: vec![(0, 16 * HUGE - 1)],
        })
    }

    #[test]
    fn memory_of_two_controllers_is_mapped_once_and_until_the_last_has_done() {
        let memory = DmaMemory::new(HUGE).unwrap();
        let other = DmaMemory::new(HUGE).unwrap();
        let calls = Cell::new(0);
        let map = |_| {
            calls.set(calls.get() + 1);
            Ok(())
        };
        let mut space = space();
        let first = space.map(memory.cells().into(), map).unwrap();
        let second = space.map(memory.cells().into(), map).unwrap();
        let apart = space.map(other.cells().into(), map).unwrap();
        assert_eq!(
            (first == second, first == apart, calls.get()),
            (true, false, 2)
        );
        let early = || panic!("somebody uses it still");
        space.unmap(first, HUGE, early).unwrap();
        assert!(space.unmap(first, HUGE / 2, || Ok(())).is_err());
        calls.set(0);
        let last = || {
            calls.set(1);
            Ok(())
        };
        space.unmap(first, HUGE, last).unwrap();
        assert_eq!(calls.get(), 1);
        assert!(space.unmap(first, HUGE, || Ok(())).is_err());
    }

    #[test]
    fn a_range_that_the_kernel_does_not_let_go_stays_taken() {
        let memory = DmaMemory::new(HUGE).unwrap();
        let mut space = space();
        let iova = space.map(memory.cells().into(), |_| Ok(())).unwrap();
        let refused = || Err(VfioError::InvalidDmaUnmapSize);
        assert!(space.unmap(iova, HUGE, refused).is_err());
        let other = DmaMemory::new(HUGE).unwrap();
        assert_ne!(space.map(other.cells().into(), |_| Ok(())).unwrap(), iova);
    }
}
