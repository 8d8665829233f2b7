//! Which IOVAs are free: first fit from the lowest, within what the IOMMU translates.
//!
//! IOVAs are not addresses of this process. IOMMUs translate 39 or 48 bits, with holes (where
//! interrupts are delivered), and low IOVAs are inside whatever there is.

use super::info::Limits;

/// Every mapping begins at a multiple: the largest page of a controller that the driver takes.
const ALIGNMENT: u64 = 64 << 10;
/// Mappings of at least this size begin at a multiple of it where their memory does, so that the
/// IOMMU can use pages of this size.
const HUGE: u64 = 2 << 20;

/// The free IOVAs.
pub(super) struct IovaSpace {
    /// First and end of each free range, ascending, apart from one another.
    free: Vec<(u64, u64)>,
    page: u64,
}

impl IovaSpace {
    /// All that `limits` allows, but for the lowest 64 KiB: IOVA 0 looks like no address.
    pub(super) fn new(limits: &Limits) -> Self {
        let mut free: Vec<_> = limits
            .ranges
            .iter()
            // The last byte of the address space is left out, so that an end is a number.
            .map(|(first, last)| ((*first).max(ALIGNMENT), last.saturating_add(1)))
            .filter(|(first, end)| first < end)
            .collect();
        free.sort_unstable();
        Self {
            free,
            page: limits.page,
        }
    }

    /// Takes `bytes` IOVAs for memory at `address`.
    ///
    /// # Errors
    /// The memory is not whole pages, or there is no room.
    pub(super) fn take(&mut self, address: u64, bytes: u64) -> Result<u64, String> {
        let page = self.page;
        if bytes == 0 || !address.is_multiple_of(page) || !bytes.is_multiple_of(page) {
            return Err(format!(
                "{bytes} bytes at {address:#x} are not whole pages of {page} bytes; the IOMMU maps \
                 nothing else"
            ));
        }
        let alignment = if bytes >= HUGE && address.is_multiple_of(HUGE) {
            HUGE
        } else {
            ALIGNMENT.max(page)
        };
        let fits = |(first, end): &(u64, u64)| {
            let iova = first.checked_next_multiple_of(alignment)?;
            (iova <= *end && bytes <= end - iova).then_some(iova)
        };
        let found = self.free.iter().enumerate();
        let found = found.filter_map(|(index, range)| Some((index, fits(range)?)));
        let Some((index, iova)) = found.min_by_key(|(_, iova)| *iova) else {
            return Err(format!(
                "no {bytes} consecutive IOVAs are free; map less at a time"
            ));
        };
        let (first, end) = self.free[index];
        let rest = [(first, iova), (iova + bytes, end)];
        let rest = rest.into_iter().filter(|(first, end)| first < end);
        self.free.splice(index..=index, rest);
        Ok(iova)
    }

    /// Gives back what `take` gave.
    pub(super) fn give_back(&mut self, iova: u64, bytes: u64) {
        let (mut first, mut end) = (iova, iova + bytes);
        let at = self.free.partition_point(|range| range.0 < iova);
        let (mut from, mut to) = (at, at);
        if at > 0 && self.free[at - 1].1 == first {
            (from, first) = (at - 1, self.free[at - 1].0);
        }
        if self.free.get(at).is_some_and(|range| range.0 == end) {
            (to, end) = (at + 1, self.free[at].1);
        }
        self.free.splice(from..to, [(first, end)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn space() -> IovaSpace {
        IovaSpace::new(&Limits {
            page: 4096,
            ranges: vec![(0xfef0_0000, (1 << 39) - 1), (0, 0xfedf_ffff)],
        })
    }

    #[test]
    fn low_iovas_come_first_aligned_and_never_zero() {
        let mut space = space();
        assert_eq!(space.take(0x1000, 0x3000), Ok(0x1_0000));
        assert_eq!(space.take(0x1000, 0x1000), Ok(0x2_0000));
        assert_eq!(space.take(0x20_0000, 0x40_0000), Ok(0x20_0000));
        assert_eq!(space.take(0x1000, 0x1000), Ok(0x3_0000));
    }

    #[test]
    fn holes_are_left_out() {
        let mut space = space();
        let most = 0xfee0_0000 - ALIGNMENT;
        assert_eq!(space.take(0x1000, most), Ok(ALIGNMENT));
        assert_eq!(space.take(0x1000, 0x1000), Ok(0xfef0_0000));
        assert!(space.take(0x1000, 1 << 39).is_err());
    }

    #[test]
    fn what_is_not_whole_pages_is_refused() {
        let mut space = space();
        for (address, bytes) in [(0x1000, 0), (0x1008, 0x1000), (0x1000, 0x1008)] {
            let error = space.take(address, bytes).unwrap_err();
            assert!(error.contains("whole pages of 4096"), "{error}");
        }
    }

    #[test]
    fn the_end_of_the_address_space_is_no_overflow() {
        let mut space = IovaSpace::new(&Limits {
            page: 4096,
            ranges: vec![(u64::MAX - 0x1_ffff, u64::MAX), (0, 1)],
        });
        assert_eq!(space.take(0x1000, 0x1000), Ok(u64::MAX - 0x1_ffff));
        assert!(space.take(0x1000, 0x1_0000).is_err());
    }

    proptest! {
        /// Whatever is taken and given back: mappings never overlap or lie in a hole, and in the
        /// end everything is free again.
        #[test]
        fn mappings_never_overlap(steps in prop::collection::vec((any::<bool>(), 1u64..2048, 0u64..512), 1..200)) {
            let mut space = space();
            let (all, mut taken) = (space.free.clone(), Vec::new());
            for (take, pages, page) in steps {
                if take || taken.is_empty() {
                    let bytes = pages * 4096;
                    let iova = space.take(page * 4096, bytes).unwrap();
                    for (other, len) in &taken {
                        prop_assert!(iova + bytes <= *other || other + len <= iova);
                    }
                    prop_assert!(all.iter().any(|(first, end)| *first <= iova && iova + bytes <= *end));
                    taken.push((iova, bytes));
                } else {
                    let (iova, bytes) = taken.swap_remove(pages as usize % taken.len());
                    space.give_back(iova, bytes);
                }
            }
            for (iova, bytes) in taken {
                space.give_back(iova, bytes);
            }
            prop_assert_eq!(space.free, all);
        }
    }
}
