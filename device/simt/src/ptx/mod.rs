//! The PTX back end.
pub mod intrinsics;
pub mod memory;
