//! The PTX back end.
pub mod memory;
