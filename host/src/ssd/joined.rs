//! Parts that follow one another on an SSD, moved together: a copy to a GPU costs microseconds, however
//! little it moves.

use crate::Error;

/// Most bytes that are joined.
const MOST: usize = 8 << 20;

/// Writes `parts`, each at a byte.
pub(super) fn write<'p>(
    parts: impl Iterator<Item = (u64, &'p [u8])>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut start, mut joined) = (0, Vec::new());
    for (at, part) in parts {
        if start + joined.len() as u64 != at || joined.len() + part.len() > MOST {
            write(start, &joined)?;
            joined.clear();
            start = at;
        }
        joined.extend_from_slice(part);
    }
    write(start, &joined)
}

/// Fills `parts`, each from a byte on.
pub(super) fn read<'p>(
    parts: impl Iterator<Item = (u64, &'p mut [u8])>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut start, mut len) = (0, 0);
    let (mut waiting, mut bytes) = (Vec::<&mut [u8]>::new(), Vec::new());
    let mut fill = |start, len, waiting: &mut Vec<&mut [u8]>| {
        bytes.resize(len, 0);
        read(start, &mut bytes)?;
        let mut rest = &bytes[..];
        for part in waiting.drain(..) {
            let (first, behind) = rest.split_at(part.len());
            part.copy_from_slice(first);
            rest = behind;
        }
        Ok::<(), Error>(())
    };
    for (at, part) in parts {
        if start + len as u64 != at || len + part.len() > MOST {
            fill(start, len, &mut waiting)?;
            (start, len) = (at, 0);
        }
        len += part.len();
        waiting.push(part);
    }
    fill(start, len, &mut waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where parts of 512 bytes lie: two runs, one of them longer than what is joined.
    fn places() -> Vec<u64> {
        let long = (MOST / 512) as u64 + 3;
        (0..long)
            .chain(long + 1..long + 4)
            .map(|at| at * 512)
            .collect()
    }

    #[test]
    fn what_is_written_in_parts_is_written_whole() {
        let (places, mut calls) = (places(), 0);
        let parts: Vec<Vec<u8>> = places
            .iter()
            .map(|at| vec![(at / 512) as u8; 512])
            .collect();
        let mut medium = vec![0xEEu8; 512 * (places.len() + 2)];
        let joined = places.iter().copied().zip(parts.iter().map(Vec::as_slice));
        write(joined, |at, bytes| {
            calls += 1;
            medium[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert!(calls <= 4, "{calls} calls");
        for (index, block) in medium.chunks(512).enumerate() {
            let is_part = places.contains(&(index as u64 * 512));
            let expected = if is_part { index as u8 } else { 0xEE };
            assert!(block.iter().all(|&byte| byte == expected), "block {index}");
        }
        let mut found = vec![vec![0u8; 512]; places.len()];
        let joined = places
            .iter()
            .copied()
            .zip(found.iter_mut().map(Vec::as_mut_slice));
        read(joined, |at, bytes| {
            bytes.copy_from_slice(&medium[at as usize..][..bytes.len()]);
            Ok(())
        })
        .unwrap();
        assert_eq!(found, parts);
    }
}
