//! Experiments: builds a store from parts, runs, verifies, prints tables, JSON and plots.

pub mod exit;
pub mod experiments;
pub mod machine;
pub mod options;
mod process;
pub mod reference;
pub mod report;
pub mod serve;
pub mod sizing;
