//! What an SSD's process has counted, in a region that PCI does not have.

use nvme_model::{Controller, Counters};

/// Fault rules that are told of: as many as a controller has at most.
const RULES: usize = 16;
/// Words before the fault rules.
const FIRST_RULE: usize = 8;
/// Bytes of the region: words, little-endian.
pub(super) const BYTES: usize = (FIRST_RULE + RULES) * 8;

/// What an SSD has counted since its process was started, all queues together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands.
    pub counters: Counters,
    /// Threads that serve the queues.
    pub threads: u32,
    /// How often each rule of its faults has hit, in their order.
    pub faults: Vec<u64>,
}

impl Statistics {
    /// Those of `controller`, which `threads` threads serve.
    pub(super) fn of(controller: &Controller, threads: u32) -> Self {
        let all = controller.counters().into_iter();
        let counters = all.fold(Counters::default(), |sum, queue| Counters {
            reads: sum.reads + queue.reads,
            writes: sum.writes + queue.writes,
            bytes: sum.bytes + queue.bytes,
            flushes: sum.flushes + queue.flushes,
            errors: sum.errors + queue.errors,
            bad_doorbells: sum.bad_doorbells + queue.bad_doorbells,
        });
        Self {
            counters,
            threads,
            faults: controller.faults(),
        }
    }

    /// What has been counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let (now, then) = (&self.counters, &before.counters);
        let rules = self.faults.iter().zip(before.faults.iter());
        Self {
            counters: Counters {
                reads: now.reads.wrapping_sub(then.reads),
                writes: now.writes.wrapping_sub(then.writes),
                bytes: now.bytes.wrapping_sub(then.bytes),
                flushes: now.flushes.wrapping_sub(then.flushes),
                errors: now.errors.wrapping_sub(then.errors),
                bad_doorbells: now.bad_doorbells.wrapping_sub(then.bad_doorbells),
            },
            threads: self.threads,
            faults: rules.map(|(now, then)| now.wrapping_sub(*then)).collect(),
        }
    }

    pub(super) fn to_bytes(&self) -> [u8; BYTES] {
        let counters = &self.counters;
        let first = [
            counters.reads,
            counters.writes,
            counters.bytes,
            counters.flushes,
            counters.errors,
            counters.bad_doorbells,
            self.threads.into(),
            self.faults.len() as u64,
        ];
        let words = first.into_iter().chain(self.faults.iter().copied());
        let mut bytes = [0; BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let rules = (word(7) as usize).min(RULES);
        Self {
            counters: Counters {
                reads: word(0),
                writes: word(1),
                bytes: word(2),
                flushes: word(3),
                errors: word(4),
                bad_doorbells: word(5),
            },
            threads: word(6) as u32,
            faults: (FIRST_RULE..FIRST_RULE + rules).map(word).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_arrive_as_they_are() {
        let statistics = Statistics {
            counters: Counters {
                reads: 1,
                writes: 2,
                bytes: u64::MAX,
                flushes: 4,
                errors: 5,
                bad_doorbells: 6,
            },
            threads: 7,
            faults: (100..116).collect(),
        };
        assert_eq!(Statistics::from_bytes(&statistics.to_bytes()), statistics);
    }
}
