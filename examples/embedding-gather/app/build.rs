//! Compiles the kernels to PTX.

fn main() -> Result<(), warpstore_builder::BuildError> {
    warpstore_builder::from_build_script("../kernels")?;
    Ok(())
}
