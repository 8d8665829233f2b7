//! What controllers of one VFIO container reach: IOVAs, and the memory that is mapped at them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_ioctls::VfioContainer;

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
    users: u32,
}

impl Domain {
    /// Nothing is mapped yet in `container`, to which all of its devices belong by now.
    pub(super) fn new(container: Arc<VfioContainer>, limits: &Limits) -> Self {
        Self {
            container,
            space: Mutex::new(Space {
                free: IovaSpace::new(limits),
                mapped: HashMap::new(),
            }),
        }
    }

    /// Maps `region` for one more controller.
    pub(super) fn map(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        let mut space = self.space();
        let same = |(_, mapping): &(&u64, &mut Mapping)| mapping.region == region;
        if let Some((iova, mapping)) = space.mapped.iter_mut().find(same) {
            mapping.users += 1;
            return Ok(Iova(*iova));
        }
        let (address, bytes) = (region.address(), region.bytes());
        let iova = space.free.take(address, bytes)?;
        if let Err(source) = sys::map_dma(&self.container, iova, region) {
            space.free.give_back(iova, bytes);
            let before = space.mapped.values().map(|one| one.region.bytes()).sum();
            return Err(memory::explain(source, bytes, before).into());
        }
        space.mapped.insert(iova, Mapping { region, users: 1 });
        Ok(Iova(iova))
    }

    /// Takes a mapping back from one controller, and from the IOMMU if that was the last.
    pub(super) fn unmap(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        let mut space = self.space();
        let found = space.mapped.get_mut(&iova.0);
        let Some(mapping) = found.filter(|mapping| mapping.region.bytes() == len) else {
            return Err(format!("{len} bytes at {:#x} are not mapped", iova.0).into());
        };
        if mapping.users > 1 {
            mapping.users -= 1;
            return Ok(());
        }
        // [VF-2] If this fails, the range stays taken.
        self.container.vfio_dma_unmap(iova.0, len as usize)?;
        space.mapped.remove(&iova.0);
        space.free.give_back(iova.0, len);
        Ok(())
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
