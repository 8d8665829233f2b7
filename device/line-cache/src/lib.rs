//! The cache's state machine: which line of the backing store lies in which slot, and who may
//! change that.
//!
//! One `u64` a line ([`Meta`]) says whether the line is resident, in which slot, in which
//! incarnation (version) and how often it is pinned. One `u64` a slot says which line last moved
//! in. [`LineTable`] holds the handles of both and of the clock's hand.
//!
//! ```text
//!                claim                 publish               touch, pin, unpin
//!      INVALID ─────────► BUSY ─────────────────► VALID ◄──┐
//!         ▲                │ ▲ │                    │ └────┘
//!         │  release_claim │ │ │ fail               │
//!         ├────────────────┘ │ └────────► FAILED    │
//!         │                  └─────────────┘ claim  │
//!         └─────────────────────────────────────────┘ victim: version + 1
//! ```
//!
//! | transition | by | how | who may |
//! |---|---|---|---|
//! | INVALID, FAILED → BUSY | [`LineTable::claim`] | compare-exchange | anyone who misses; one wins |
//! | BUSY → BUSY with a slot | [`LineTable::attach`] | or | the winner, with a slot of its own |
//! | BUSY → VALID | [`LineTable::publish`] | compare-exchange | whoever drained the fetch's completion |
//! | BUSY → FAILED | [`LineTable::fail`] | compare-exchange | the same |
//! | BUSY → FAILED, version + 1 | [`LineTable::lose`] | compare-exchange | the winner, if its submission was cut off |
//! | BUSY → INVALID | [`LineTable::release_claim`] | and | the winner, if it found no slot |
//! | VALID → INVALID, version + 1 | [`LineTable::victim`] | compare-exchange | anyone who needs a slot; line unpinned, clean, not referenced lately |
//! | DIRTY set | [`LineTable::soil`] | or | whoever has pinned the line and written into it |
//! | DIRTY → CLEANING | [`LineTable::victim`], [`LineTable::begin_clean`] | compare-exchange | anyone who needs the slot or flushes; one wins |
//! | CLEANING cleared | [`LineTable::cleaned`] | and | whoever drained the write's completion |
//! | CLEANING → DIRTY | [`LineTable::clean_failed`] | or, and | the same, if the write failed |
//! | pins ± 1 | [`LineTable::pin`], [`LineTable::unpin`] | compare-exchange on VALID, after two lost ones as the next; add | anyone; whoever pinned |
//! | pins ± n | [`LineTable::count_in`], [`LineTable::count_out`] | add | anyone, in any state; unless VALID the same lane takes them off again and reads nothing |
//! | REF set, cleared | [`LineTable::touch`], [`LineTable::victim`] | or; and | anyone, in any state: REF is a hint |
//!
//! Every change of a line's word is a read-modify-write, so none loses another's.
//!
//! A slot is free, claimed (its holder is about to attach, or has just evicted), or attached to
//! a line. The line's word decides: a slot may be taken only from the line whose VALID word names
//! it, and what the slot's own word says of an occupant is only where the clock looks first.
//!
//! **Who waits for whom.** A reader waits only for a BUSY line ([`LineTable::settled`]), and BUSY
//! ends by the hand of whoever drains the completion, which may be the reader itself: the holder
//! of BUSY either has a command in flight or is between `claim` and its submission, where it
//! waits for no line and no slot ([`LineTable::victim`] takes a bounded number of steps and then
//! gives up, upon which the claim is released and the access goes round the cache). A write that
//! goes round the cache keeps the claim, and waits for its own two commands and nothing else. A pin
//! never makes anyone wait; it only makes the clock pass on, and so does CLEANING. So no circle
//! contains the cache.
//!
//! Rules kept: `[LC-1]` to `[LC-9]`, `[RC-1]`, `[RC-2]`, `[RC-5]`, `[WB-1]` to `[WB-6]` and `[HW-1]` of docs/memory-model.md.
//!
//! What this does not do: I/O, waiting, deadlines, the bytes of a line, what a failure means.
#![no_std]
#![forbid(unsafe_code)]

mod clean;
mod clock;
mod fetch;
mod meta;
mod pin;
mod table;

pub use clean::Cleaning;
pub use clock::{Found, SlotClaim};
pub use fetch::{Claim, Fetch};
pub use meta::{Failure, Look, MAX_PINS, MAX_SLOTS, Meta, State, VERSIONS};
pub use pin::NotPinned;
pub use table::{LineTable, Outcome, ReadOrder};
