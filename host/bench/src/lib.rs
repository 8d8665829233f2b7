//! Experiments: builds a store from parts, runs, verifies, prints tables, JSON and plots.

pub mod graph;
pub mod reference;
