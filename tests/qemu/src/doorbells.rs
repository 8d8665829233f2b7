//! Doorbells as words in memory, and what brings their values to the controller.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Doorbell words, in the order of their registers.
pub(crate) struct Doorbells {
    words: Vec<AtomicU32>,
    /// The value that the controller was told last; none for a doorbell that nobody uses.
    told: Mutex<Vec<Option<u32>>>,
}

impl Doorbells {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            words: (0..count).map(|_| AtomicU32::new(0)).collect(),
            told: Mutex::new(vec![None; count]),
        }
    }

    /// The word of a doorbell that a queue begins to use. It starts at 0, as the queue does.
    pub(crate) fn take(&self, index: usize) -> Option<&AtomicU32> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let word = self.words.get(index)?;
        word.store(0, Ordering::Relaxed);
        told[index] = Some(0);
        Some(word)
    }

    /// Tells the controller, by `tell(index, value)`, every value that it has not been told.
    /// Returns whether there was one.
    ///
    /// Values are loaded from the admin queue's doorbells on, and told in the opposite order. So
    /// what a thread stored before it rang for an admin command (to delete the queue, say) is
    /// told before that, as stores to registers would be.
    pub(crate) fn forward(&self, tell: impl Fn(usize, u32)) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |word: &AtomicU32| word.load(Ordering::Acquire);
        let values: Vec<_> = self.words.iter().map(load).collect();
        let mut any = false;
        for (index, told) in told.iter_mut().enumerate().rev() {
            if told.is_some_and(|told| told != values[index]) {
                tell(index, values[index]);
                *told = Some(values[index]);
                any = true;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_value_is_told_once_the_admin_queues_last() {
        let doorbells = Doorbells::new(4);
        for (index, value) in [(0, 3), (2, 5)] {
            doorbells
                .take(index)
                .unwrap()
                .store(value, Ordering::Relaxed);
        }
        let told = RefCell::new(Vec::new());
        let tell = |index, value| told.borrow_mut().push((index, value));
        assert!(doorbells.forward(tell));
        assert!(!doorbells.forward(tell));
        assert_eq!(*told.borrow(), [(2, 5), (0, 3)]);
    }

    #[test]
    fn a_new_queue_starts_at_zero_whatever_the_old_one_rang() {
        let doorbells = Doorbells::new(2);
        let word = doorbells.take(0).unwrap();
        word.store(1, Ordering::Relaxed);
        assert!(doorbells.forward(|_, _| {}));
        doorbells.take(0).unwrap().store(1, Ordering::Relaxed);
        assert!(doorbells.forward(|_, _| {}), "1 is news to the new queue");
        assert!(doorbells.take(2).is_none());
    }
}
