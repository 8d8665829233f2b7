//! What the NVMe specification says: registers, commands, completions, identify pages.
