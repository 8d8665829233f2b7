//! Compiles the kernels to PTX, which the binary carries.

fn main() -> anyhow::Result<()> {
    warpstore_builder::from_build_script("../../device/kernels")?;
    Ok(())
}
