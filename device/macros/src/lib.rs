//! #[kernel] and #[launch_bounds].
