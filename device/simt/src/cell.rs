//! Shared words as typed handles: the scope is in the type, the order at the call.

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::memory::MachineWord;
#[cfg(target_arch = "nvptx64")]
use crate::ptx::memory::MachineWord;

/// How a memory operation is ordered against the caller's other operations.
///
/// Passed as a constant and matched in `#[inline(always)]` code, so that each call becomes one
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Atomic, but orders nothing else.
    Relaxed,
    /// Later operations stay after this load.
    Acquire,
    /// Earlier operations stay before this store.
    Release,
    /// Both, for read-modify-write operations and fences.
    AcqRel,
}

/// Who else may access the word at the same time (PTX ISA, "Scope").
pub trait Scope: Copy + Send + Sync + 'static {
    /// True when agents outside this GPU (the CPU, an SSD) take part.
    const SYSTEM: bool;
}

/// Only threads of one GPU touch the word: tickets, marks, the line table.
#[derive(Clone, Copy, Debug)]
pub struct Device;
/// The CPU or a controller touches the word too: rings, doorbells, abort words.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Scope for Device {
    const SYSTEM: bool = false;
}
impl Scope for System {
    const SYSTEM: bool = true;
}

/// A machine word that cells can hold: `u32` or `u64`.
pub trait Word: MachineWord + Copy + Eq + Send + Sync + core::fmt::Debug + 'static {}
impl Word for u32 {}
impl Word for u64 {}

/// A handle to one shared word. Copying the handle shares the word.
///
/// Orders: `load` takes Relaxed or Acquire, `store` Relaxed or Release; any other order is
/// treated as the strongest one that the operation has.
pub trait Cell<T: Word>: Copy {
    /// Reads the word.
    fn load(self, order: Order) -> T;
    /// Writes the word.
    fn store(self, value: T, order: Order);
    /// Replaces `current` by `new`. `Ok` holds the old value (= `current`), `Err` what was found
    /// instead; a failure orders as a relaxed load.
    fn compare_exchange(self, current: T, new: T, order: Order) -> Result<T, T>;
    /// Adds, wrapping; returns the old value. Subtract by adding the two's complement.
    fn fetch_add(self, value: T, order: Order) -> T;
    /// Sets bits; returns the old value.
    fn fetch_or(self, value: T, order: Order) -> T;
    /// Keeps only the bits of `value`; returns the old value.
    fn fetch_and(self, value: T, order: Order) -> T;
}

/// A handle to an array of shared words.
pub trait Cells<T: Word>: Copy {
    /// Handle to one element.
    type Cell: Cell<T>;
    /// Number of words.
    fn len(self) -> u64;
    /// True if there is no word.
    #[inline(always)]
    fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// The word at `index`. An index at or beyond `len` is a bug of the caller: debug builds
    /// panic on the host, release builds and the device give word 0, so no index, not even one
    /// that a controller sent, leads outside the array.
    fn at(self, index: u64) -> Self::Cell;
}
