//! An emulated NVMe controller with a timing model.
