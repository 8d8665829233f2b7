//! The loom implementation of the simt seams, for protocol tests.
