//! Words of a ring in any state that a test wants.
#![allow(unsafe_code, reason = "the test owns the memory of its words")]
// UNSAFETY: the words are leaked, so they are valid for ever.

use warpstore_simt::{NativeCells, Scope};

/// Two words, aligned as a CQE's.
#[repr(C, align(16))]
struct Two([u64; 2]);

/// Words that nobody but this test knows, never freed.
pub fn words<S: Scope>(values: &[u64]) -> NativeCells<u64, S> {
    let pairs = values
        .chunks(2)
        .map(|pair| Two([pair[0], *pair.get(1).unwrap_or(&0)]))
        .collect();
    let memory = Vec::leak::<'static>(pairs);
    // SAFETY: a leaked allocation of at least as many words.
    unsafe { NativeCells::new(memory.as_mut_ptr().cast(), values.len() as u64) }
}
