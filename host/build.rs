//! Compiles warpstore's own kernels to PTX, which the library carries.

fn main() -> anyhow::Result<()> {
    warpstore_builder::from_build_script("../device/kernels")?;
    Ok(())
}
