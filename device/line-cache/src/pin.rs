//! Pins: a line that stays while somebody uses it.

use warpstore_simt::{Cell, Cells, Order, Platform};

use crate::meta::{MAX_PINS, PIN_ONE};
use crate::{LineTable, Look, Meta};

/// Attempts of one [`LineTable::pin`] against others that change the word meanwhile.
const PIN_ATTEMPTS: u32 = 8;

/// Why a line was not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// It is not resident; never [`Look::Hit`].
    Look(Look),
    /// It carries [`MAX_PINS`] already: wait until some are gone.
    Full,
    /// Others changed the word at every attempt: pause and try again.
    Contended,
}

impl<P: Platform> LineTable<P> {
    /// Pins a resident line: until [`LineTable::unpin`] it stays in its slot, and its bytes may
    /// be read with no validation.
    ///
    /// # Errors
    /// [`NotPinned`]: nothing was changed.
    #[inline(always)]
    pub fn pin(self, line: u64) -> Result<Meta, NotPinned> {
        let cell = self.meta.at(line);
        // Ordering: relaxed; the compare-exchange confirms the word.
        let mut meta = Meta::from_bits(cell.load(Order::Relaxed));
        for _ in 0..PIN_ATTEMPTS {
            let Look::Hit(_) = meta.look() else {
                return Err(NotPinned::Look(meta.look()));
            };
            if meta.pins() == MAX_PINS {
                return Err(NotPinned::Full);
            }
            // Ordering: [LC-1] pairs with `publish`; [LC-5] on VALID only.
            match cell.compare_exchange(meta.bits(), meta.pinned().bits(), Order::Acquire) {
                Ok(_) => return Ok(meta.pinned()),
                Err(found) => meta = Meta::from_bits(found),
            }
        }
        Err(NotPinned::Contended)
    }

    /// Takes one pin off. Whoever calls has pinned the line, and does not touch its bytes after.
    #[inline(always)]
    pub fn unpin(self, line: u64) {
        // Ordering: [LC-6] what the pin's holder did in the slot, before an eviction.
        let before = self
            .meta
            .at(line)
            .fetch_add(PIN_ONE.wrapping_neg(), Order::Release);
        debug_assert!(
            Meta::from_bits(before).pins() > 0,
            "line {line} was not pinned"
        );
    }

    /// Pins the line `lanes` times at once, by an addition, and looks afterwards, as BaM does. None:
    /// it is not resident, and the pins are off again.
    ///
    /// Nobody checks for [`MAX_PINS`]: fewer lanes than that run at a time.
    #[inline(always)]
    pub fn count_in(self, line: u64, lanes: u32) -> Option<Meta> {
        // Ordering: [RC-1] the count comes before the look; [LC-1] pairs with `publish`.
        let before = self
            .meta
            .at(line)
            .fetch_add(Meta::pins_for(lanes), Order::Acquire);
        match Meta::from_bits(before).look() {
            Look::Hit(meta) => Some(meta),
            Look::Busy(_) | Look::Failed(_) | Look::Absent(_) => {
                self.count_out(line, lanes);
                None
            }
        }
    }

    /// Takes `lanes` pins off at once. None of those lanes touches the bytes after.
    #[inline(always)]
    pub fn count_out(self, line: u64, lanes: u32) {
        // Ordering: [LC-6] what they read in the slot, before an eviction.
        let before = self
            .meta
            .at(line)
            .fetch_add(Meta::pins_for(lanes).wrapping_neg(), Order::Release);
        debug_assert!(
            Meta::from_bits(before).pins() >= lanes,
            "line {line} was not pinned {lanes} times"
        );
    }
}
