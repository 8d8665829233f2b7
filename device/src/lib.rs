//! The API that GPU kernels use: arrays on NVMe SSDs, read by the GPU thread that needs the byte.
