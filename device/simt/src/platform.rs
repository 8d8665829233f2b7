//! The seam that protocols are generic over: native memory, or loom's.

use crate::{Cell, Cells, Order, Scope, System, Word};

/// A memory system with a clock.
///
/// Implementations: [`Native`](crate::Native) (PTX on the GPU, `core::sync::atomic` on the host)
/// and the loom one in `tests/loom`. Ordering lives above this seam: a doorbell is a plain
/// store, and the fence before it is the protocol's own.
pub trait Platform: Copy + 'static {
    /// One shared word.
    type Cell<T: Word, S: Scope>: Cell<T>;
    /// An array of shared words.
    type Cells<T: Word, S: Scope>: Cells<T, Cell = Self::Cell<T, S>>;

    /// Orders the caller's earlier memory operations before its later ones, seen from every
    /// agent in scope `S`.
    fn fence<S: Scope>(order: Order);

    /// Orders all of the caller's earlier memory operations before all of its later ones, a store before
    /// a load too, which [`Platform::fence`] does not; one total order of all such fences in scope `S`.
    fn full_fence<S: Scope>();

    /// Stores a doorbell value: one relaxed store that is never merged or repeated
    /// (`st.mmio` on the GPU). The caller has fenced.
    fn ring(doorbell: Self::Cell<u32, System>, value: u32);

    /// Reads the words `index` and `index + 1` (`index` even) by one 16-byte access where the
    /// hardware has one. Relaxed, and not atomic as a pair.
    fn load_pair<S: Scope>(cells: Self::Cells<u64, S>, index: u64) -> [u64; 2];

    /// Writes the words `index` and `index + 1`; see [`Platform::load_pair`].
    fn store_pair<S: Scope>(cells: Self::Cells<u64, S>, index: u64, pair: [u64; 2]);

    /// Called once in every turn of a waiting loop; `attempt` counts the turns. Backs off.
    fn pause(attempt: u32);

    /// A clock that all agents of the run share. Nanoseconds, monotonic, arbitrary origin.
    fn now_ns() -> u64;
}
