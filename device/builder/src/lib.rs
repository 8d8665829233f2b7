//! Compiles a kernel crate to PTX from its build.rs.
