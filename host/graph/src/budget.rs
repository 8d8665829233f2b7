//! How much memory a graph may take.

use std::fs;

use super::error::Reason;

/// One row offset here, and a distance and a label in the plain CPU implementation.
const BYTES_PER_VERTEX: u128 = 16;
/// One destination, and the pair it is sorted from in a vector that may have just doubled.
const BYTES_PER_EDGE: u128 = 20;

/// Bytes of memory that a graph and its verification may take. It is asked before memory is
/// allocated, since an allocation too large ends the process, now or when its pages are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    bytes: u64,
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self { bytes }
    }

    /// Half of what this machine says is available: the emulated media, the cache and the
    /// kernels' own arrays need room too. Unlimited where the machine does not say.
    pub fn of_machine() -> Self {
        let available = fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| available(&text));
        let allowed = fs::read_to_string("/sys/fs/cgroup/memory.max")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        Self::new(
            available
                .into_iter()
                .chain(allowed)
                .min()
                .map_or(u64::MAX, |bytes: u64| bytes / 2),
        )
    }

    /// Checks that a graph of this size fits.
    ///
    /// # Errors
    /// [`Reason::Memory`].
    pub fn admit(self, vertices: u64, edges: u64) -> Result<(), Reason> {
        let need = u128::from(vertices) * BYTES_PER_VERTEX + u128::from(edges) * BYTES_PER_EDGE;
        if need <= u128::from(self.bytes) {
            Ok(())
        } else {
            Err(Reason::Memory {
                vertices,
                edges,
                need,
                limit: self.bytes,
            })
        }
    }
}

/// The bytes available by /proc/meminfo: proc_meminfo(5) calls kB what are KiB.
fn available(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib = value.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_in_bytes() {
        let text = "MemTotal:       16384256 kB\nMemAvailable:   12000000 kB\n";
        assert_eq!(available(text), Some(12_000_000 * 1024));
        assert_eq!(available("MemAvailable: 1 MB\n"), None);
        assert_eq!(available("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_has_memory_for_a_small_graph_only() {
        assert!(Budget::of_machine().admit(1000, 1000).is_ok());
        assert!(Budget::new(159).admit(10, 0).is_err());
        assert!(Budget::new(160).admit(10, 0).is_ok());
        assert!(Budget::new(u64::MAX).admit(u64::MAX, u64::MAX).is_err());
    }
}
