//! Pins: a line that stays while somebody uses it.

use warpstore_simt::{Cell, Cells, Order, Platform};

use crate::meta::{MAX_PINS, PIN_ONE};
use crate::{LineTable, Look, Meta};

/// Compare-exchanges that one [`LineTable::pin`] may lose to others that change the word meanwhile.
const LOST_RACES: u32 = 2;

/// Why a line was not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// It is not resident; never [`Look::Hit`].
    Look(Look),
    /// It carries too many already, [`MAX_PINS`] at most: wait until some are gone.
    Full,
}

impl<P: Platform> LineTable<P> {
    /// Pins a resident line: until [`LineTable::unpin`] it stays in its slot, and its bytes may
    /// be read with no validation. However many others count, pin and mark meanwhile, this takes
    /// a bounded number of steps.
    ///
    /// # Errors
    /// [`NotPinned`]: nothing was changed, or for a moment only ([RC-2]).
    #[inline(always)]
    pub fn pin(self, line: u64) -> Result<Meta, NotPinned> {
        let cell = self.meta.at(line);
        // Ordering: relaxed; the compare-exchange confirms the word.
        let mut meta = Meta::from_bits(cell.load(Order::Relaxed));
        let mut lost = 0;
        loop {
            let Look::Hit(_) = meta.look() else {
                return Err(NotPinned::Look(meta.look()));
            };
            if meta.pins() == MAX_PINS {
                return Err(NotPinned::Full);
            }
            if lost == LOST_RACES {
                return self.pin_by_count(line, meta);
            }
            // Ordering: [LC-1] pairs with `publish`; [LC-5] on VALID only.
            match cell.compare_exchange(meta.bits(), meta.pinned().bits(), Order::Acquire) {
                Ok(_) => return Ok(meta.pinned()),
                Err(found) => meta = Meta::from_bits(found),
            }
            lost += 1;
        }
    }

    /// The pin of one who has lost its races, after a look that found `meta`, which is VALID. An
    /// addition cannot be lost: [RC-5].
    #[inline(always)]
    fn pin_by_count(self, line: u64, meta: Meta) -> Result<Meta, NotPinned> {
        // Room for whoever comes here at the same time: fewer lanes than half of MAX_PINS run.
        if meta.pins() > MAX_PINS / 2 {
            return Err(NotPinned::Full);
        }
        match self.count(line, 1) {
            Ok(meta) => Ok(meta.pinned()),
            Err(look) => Err(NotPinned::Look(look)),
        }
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
        self.count(line, lanes).ok()
    }

    /// As `count_in`; on an error, what the line was doing.
    #[inline(always)]
    fn count(self, line: u64, lanes: u32) -> Result<Meta, Look> {
        // Ordering: [RC-1] the count comes before the look; [LC-1] pairs with `publish`.
        let before = self
            .meta
            .at(line)
            .fetch_add(Meta::pins_for(lanes), Order::Acquire);
        match Meta::from_bits(before).look() {
            Look::Hit(meta) => Ok(meta),
            look => {
                self.count_out(line, lanes);
                Err(look)
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
