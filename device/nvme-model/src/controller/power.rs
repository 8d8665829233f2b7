//! Power cut, power on, and what is durable then.

use std::sync::atomic::Ordering::Relaxed;

use super::Controller;
use super::admin::AdminQueue;
use super::registers::Registers;
use crate::layout::{header, mode};

impl Controller {
    /// Cuts the power, at any moment and from any thread, while the queues are being served.
    ///
    /// The controller is gone: its registers read all-ones, nothing is fetched any more, and of a
    /// volatile write cache only what was made durable is left. With a `seed` each other LBA
    /// that was written survives or not by chance, as on a real drive; without one all are lost. An
    /// LBA is never torn; a command of several may be. A command that is being executed at this
    /// moment may still complete: with success if it came before the cut, else with an error.
    pub fn power_cut(&self, seed: Option<u64>) {
        let mut state = self.lock();
        self.words.word(header::MODE).fetch_or(mode::GONE, Relaxed);
        if let Some(cache) = &self.cache {
            cache.cut(seed);
        }
        self.delete_all(&mut state);
    }

    /// Gives the power back after a cut or a removal: the controller is in reset, with the media
    /// as they were left.
    pub fn power_on(&self) {
        let mut state = self.lock();
        self.words
            .word(header::MODE)
            .fetch_and(!mode::GONE, Relaxed);
        if let Some(cache) = &self.cache {
            cache.power_on();
        }
        self.delete_all(&mut state);
        state.admin = AdminQueue::default();
        // A service may still be busy with a queue from before.
        state.registers = Registers::in_reset();
        self.settle(&mut state);
    }

    /// Makes all that was written durable; false if the machine could not.
    pub(super) fn make_durable(&self) -> bool {
        self.cache.as_ref().is_none_or(|cache| cache.flush()) && self.image_here().persist()
    }

    /// True after a removal or a power cut.
    pub(super) fn is_gone(&self) -> bool {
        self.image_here().read(header::MODE) & mode::GONE != 0
    }

    /// True after a fatal error, until a reset.
    pub(super) fn has_failed(&self) -> bool {
        self.image_here().read(header::MODE) & mode::FATAL != 0
    }

    /// Ends a fatal error.
    pub(super) fn recover(&self) {
        self.words
            .word(header::MODE)
            .fetch_and(!mode::FATAL, Relaxed);
    }

    /// Feature 06h.
    pub(super) fn enable_cache(&self, enabled: bool) {
        if let Some(cache) = &self.cache {
            cache.set_enabled(enabled);
        }
    }
}
