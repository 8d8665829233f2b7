//! The table in the machine's own memory: against a model, and under real concurrency.

mod model;
mod stress;
mod words;
