//! Whether a namespace holds anything, by its first and last mebibyte.
//!
//! Known signatures are named, so that their owner recognises them. But any byte that is not
//! zero counts as data: a table of signatures is never complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How much of either end is looked at. Bytes.
const END: u64 = 1 << 20;

/// A signature: where in a namespace, what, and whose.
struct Known {
    /// First and last byte at which it may begin, and the step between.
    at: (usize, usize, usize),
    magic: &'static [u8],
    name: &'static str,
}

const fn once(at: usize, magic: &'static [u8], name: &'static str) -> Known {
    let at = (at, at, 1);
    Known { at, magic, name }
}

/// Signatures in the first mebibyte.
const HEAD: [Known; 16] = [
    once(0, b"warpstore volume", "a member of a volume of warpstore"),
    once(512, b"EFI PART", "a partition table (GPT)"),
    once(4096, b"EFI PART", "a partition table (GPT)"),
    once(0, b"LUKS\xba\xbe", "encryption (LUKS)"),
    once(0, b"XFSB", "a file system (XFS)"),
    once(3, b"NTFS    ", "a file system (NTFS)"),
    once(82, b"FAT32   ", "a file system (FAT)"),
    once(0x438, b"\x53\xef", "a file system (ext)"),
    once(1024, b"\x10\x20\xf5\xf2", "a file system (F2FS)"),
    once(0x10040, b"_BHRfS_M", "a file system (btrfs)"),
    once(4086, b"SWAPSPACE2", "swap space"),
    Known {
        at: (0, 1536, 512),
        magic: b"LABELONE",
        name: "a volume of LVM",
    },
    Known {
        at: (0, 4096, 4096),
        magic: MD,
        name: "a member of a RAID (md)",
    },
    once(
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a cache (bcache)",
    ),
    Known {
        at: (128 << 10, 255 << 10, 1024),
        magic: b"\x0c\xb1\xba\x00",
        name: "a member of a pool (ZFS)",
    },
    once(510, b"\x55\xaa", "a partition table or boot sector (MBR)"),
];

/// The magic number of md's superblocks, little-endian.
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";

/// What the namespace in `device`, `bytes` long, holds, in words; nothing if both its ends are
/// zeroes.
///
/// # Errors
/// It cannot be read.
pub fn find(device: &File, bytes: u64) -> io::Result<Vec<String>> {
    if bytes == 0 {
        return Ok(vec!["blocks that the kernel cannot read".into()]);
    }
    let mut head = vec![0; END.min(bytes) as usize];
    device.read_exact_at(&mut head, 0)?;
    let tail_at = bytes.saturating_sub(END);
    let mut tail = vec![0; (bytes - tail_at) as usize];
    device.read_exact_at(&mut tail, tail_at)?;

    let mut found: Vec<String> = Vec::new();
    for known in &HEAD {
        if known.is_in(&head) && !found.iter().any(|name| name == known.name) {
            found.push(known.name.into());
        }
    }
    // md's older formats end the device, on a boundary of at least 4 KiB.
    let blocks = tail.chunks(4096).any(|block| block.starts_with(MD));
    if blocks && found.is_empty() {
        found.push("a member of a RAID (md)".into());
    }
    let not_zero = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
    if found.is_empty() {
        let at = not_zero(&head).map(|at| at as u64);
        let at = at.or_else(|| not_zero(&tail).map(|at| tail_at + at as u64));
        found.extend(at.map(|at| format!("data of an unknown kind, from byte {at} on")));
    }
    Ok(found)
}

impl Known {
    fn is_in(&self, bytes: &[u8]) -> bool {
        let (first, last, step) = self.at;
        (first..=last).step_by(step).any(|at| {
            let end = at + self.magic.len();
            bytes.get(at..end).is_some_and(|found| found == self.magic)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 4 << 20;

    fn with(content: &[(u64, &[u8])]) -> Vec<String> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES).unwrap();
        for (at, bytes) in content {
            file.write_all_at(bytes, *at).unwrap();
        }
        find(&file, BYTES).unwrap()
    }

    #[test]
    fn zeroes_are_nothing() {
        assert!(with(&[]).is_empty());
        assert!(with(&[(2 << 20, b"in the middle")]).is_empty());
    }

    #[test]
    fn every_signature_is_named_wherever_it_may_be() {
        for known in &HEAD {
            for at in [known.at.0, known.at.1] {
                let found = with(&[(at as u64, known.magic)]);
                assert_eq!(found, [known.name], "at {at}");
            }
        }
        for from_end in [4096, 8192, 64 << 10] {
            assert_eq!(with(&[(BYTES - from_end, MD)]), ["a member of a RAID (md)"]);
        }
    }

    #[test]
    fn any_other_byte_is_data() {
        assert!(with(&[(70_000, b"?")])[0].contains("from byte 70000 on"));
        assert!(with(&[(BYTES - 1, b"?")])[0].contains("from byte 4194303 on"));
    }

    #[test]
    fn several_signatures_are_all_named() {
        let found = with(&[(512, b"EFI PART"), (510, b"\x55\xaa"), (0x438, b"\x53\xef")]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn small_and_unreadable_disks_do_not_pass_for_empty() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"XFSB", 0).unwrap();
        assert_eq!(find(&file, 4).unwrap(), ["a file system (XFS)"]);
        assert!(find(&file, 0).unwrap()[0].contains("cannot read"));
        assert!(find(&file, 8).is_err());
    }
}
