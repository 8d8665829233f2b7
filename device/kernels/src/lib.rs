//! warpstore's own kernels and the emulated-SSD kernel.
