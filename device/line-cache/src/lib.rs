//! The cache's state machine: line table, clock, pins.
