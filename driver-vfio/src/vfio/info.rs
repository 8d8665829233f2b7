//! What the kernel says about the IOMMU, in the layout of linux/vfio.h.

use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
};

/// What may be mapped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The smallest page that can be mapped, bytes.
    pub(super) page: u64,
    /// First and last IOVA of each range.
    pub(super) ranges: Vec<(u64, u64)>,
}

/// Reads `struct vfio_iommu_type1_info` and the capabilities behind it; none if it is cut short or
/// says nothing about ranges or pages.
pub(super) fn parse(info: &[u8]) -> Option<Limits> {
    let (flags, pages) = (u32_at(info, 4)?, u64_at(info, 8)?);
    if flags & VFIO_IOMMU_INFO_PGSIZES == 0 || flags & VFIO_IOMMU_INFO_CAPS == 0 || pages == 0 {
        return None;
    }
    let mut at = u32_at(info, 16)? as usize;
    // A chain that goes round has at most this many members.
    for _ in 0..info.len() / 8 {
        if at == 0 {
            return None;
        }
        let id = u32_at(info, at)? & 0xffff;
        if id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
            return Some(Limits {
                page: 1 << pages.trailing_zeros(),
                ranges: ranges(info, at)?,
            });
        }
        at = u32_at(info, at + 4)? as usize;
    }
    None
}

/// The ranges of the capability at `at`: a count, and from byte 16 on pairs of first and last.
fn ranges(info: &[u8], at: usize) -> Option<Vec<(u64, u64)>> {
    let count = u32_at(info, at + 8)? as usize;
    (0..count)
        .map(|index| {
            let at = at + 16 + 16 * index;
            Some((u64_at(info, at)?, u64_at(info, at + 8)?))
        })
        .collect()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with a capability of another kind before the ranges.
    fn answer(ranges: &[(u64, u64)]) -> Vec<u8> {
        let mut words = vec![256, 3];
        words.extend([0x4020_1000, 0, 24, 0]); // page sizes 4 KiB, 2 MiB, 1 GiB; first capability
        words.extend([3 | 1 << 16, 36, 65535]); // mappings left, at 24
        words.extend([1 | 1 << 16, 0, ranges.len() as u32, 0]); // ranges, at 36
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for (first, last) in ranges {
            bytes.extend(first.to_ne_bytes());
            bytes.extend(last.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn ranges_and_pages_are_found() {
        let ranges = [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];
        let limits = parse(&answer(&ranges)).unwrap();
        assert_eq!(limits.page, 4096);
        assert_eq!(limits.ranges, ranges);
    }

    #[test]
    fn an_answer_cut_short_anywhere_is_none() {
        let whole = answer(&[(0, 1 << 30)]);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn a_chain_that_goes_round_ends() {
        let mut bytes = answer(&[(0, 1 << 30)]);
        bytes[28..32].copy_from_slice(&24u32.to_ne_bytes());
        assert_eq!(parse(&bytes), None);
    }
}
