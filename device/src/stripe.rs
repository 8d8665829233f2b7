//! How the lines of a store lie on its SSDs. The host that writes them and the kernel that reads
//! them use this one mapping.

use core::num::{NonZeroU32, NonZeroU64};

/// How lines lie on the SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Layout {
    /// Stripe unit by stripe unit, round robin.
    Stripe = 0,
    /// Every SSD holds everything; each warp reads from its own.
    Replicate = 1,
}

/// The mapping of lines to SSDs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StripeMap {
    /// Lines of a stripe unit.
    pub unit_lines: NonZeroU64,
    /// Number of SSDs.
    pub ssds: NonZeroU32,
    /// Which of the two layouts.
    pub layout: Layout,
}

/// A line's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the SSD.
    pub ssd: u32,
    /// Line on that SSD, counted from the store's first LBA.
    pub line: u64,
}

impl StripeMap {
    /// Where line `line` of the store lies. `reader` chooses among replicas.
    #[inline(always)]
    pub fn place(&self, line: u64, reader: u32) -> Place {
        if self.layout == Layout::Replicate {
            return Place {
                ssd: reader % self.ssds,
                line,
            };
        }
        if self.ssds.get() == 1 {
            return Place { ssd: 0, line };
        }
        let (unit, within) = (line / self.unit_lines, line % self.unit_lines);
        let ssds = NonZeroU64::from(self.ssds);
        Place {
            ssd: (unit % ssds) as u32,
            line: (unit / ssds) * self.unit_lines.get() + within,
        }
    }

    /// Lines of a store whose SSDs have room for `lines_per_ssd` lines each.
    pub fn capacity(&self, lines_per_ssd: u64) -> u64 {
        match self.layout {
            Layout::Replicate => lines_per_ssd,
            Layout::Stripe => {
                let unit = self.unit_lines.get();
                (lines_per_ssd / unit) * unit * u64::from(self.ssds.get())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::*;

    fn map(ssds: u32, unit: u64, layout: Layout) -> StripeMap {
        StripeMap {
            unit_lines: NonZeroU64::new(unit).unwrap(),
            ssds: NonZeroU32::new(ssds).unwrap(),
            layout,
        }
    }

    #[test]
    fn every_line_has_a_place_of_its_own_inside_its_ssd() {
        for (ssds, unit) in [(1, 1), (2, 4), (3, 1), (3, 5)] {
            let map = map(ssds, unit, Layout::Stripe);
            let capacity = map.capacity(40);
            let places: HashSet<_> = (0..capacity)
                .map(|line| map.place(line, 7))
                .inspect(|place| assert!(place.ssd < ssds && place.line < 40))
                .map(|place| (place.ssd, place.line))
                .collect();
            assert_eq!(places.len() as u64, capacity);
        }
    }

    #[test]
    fn replicas_hold_the_same_line_at_the_same_place() {
        let map = map(3, 1, Layout::Replicate);
        assert_eq!(map.place(17, 4), Place { ssd: 1, line: 17 });
        assert_eq!(map.capacity(40), 40);
    }
}
