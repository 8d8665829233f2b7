//! Compiles a kernel crate to PTX: the role that cuda_builder has for Rust-CUDA.
//!
//! In the `build.rs` of the crate that launches the kernels:
//!
//! ```no_run
//! # fn main() -> Result<(), warpstore_builder::BuildError> {
//! warpstore_builder::from_build_script("../kernels")?;
//! # Ok(())
//! # }
//! ```
//!
//! and in its source `include_str!(env!("WARPSTORE_PTX"))`. The kernel crate is an ordinary
//! library crate, with nothing in it for this: its kernels are functions with `#[kernel]`.
//!
//! ```text
//! Builder ─ compile: cargo rustc --target nvptx64-nvidia-cuda, core built from rust-src ─► text
//!         └ ptx: checks version and target, turns launch-bound markers into directives ─► Ptx
//! ```
//!
//! rustc's own back end is behind [`Builder`]; nothing in [`Ptx`] tells, so that another one
//! could stand there. No GPU and no CUDA installation is needed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

mod arch;
mod compile;
mod error;
mod manifest;
mod ptx;
mod toolchain;

pub use arch::{Arch, PtxVersion};
pub use error::BuildError;
pub use ptx::{KernelInfo, Param, Ptx};

/// How to compile one kernel crate.
#[derive(Clone, Debug)]
pub struct Builder {
    kernel_crate: PathBuf,
    arch: Arch,
    ptx_version: Option<PtxVersion>,
    target_dir: Option<PathBuf>,
}

impl Builder {
    /// Compiles the crate in the folder `kernel_crate`, for [`Arch::Compute80`].
    pub fn new(kernel_crate: impl Into<PathBuf>) -> Self {
        Self {
            kernel_crate: kernel_crate.into(),
            arch: Arch::Compute80,
            ptx_version: None,
            target_dir: None,
        }
    }

    /// The oldest architecture that shall run the kernels. The driver compiles PTX for every
    /// newer GPU.
    #[must_use]
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// Version of the PTX language; it decides which drivers load the kernels. Without a call
    /// it is [`Arch::default_ptx_version`].
    #[must_use]
    pub fn ptx_version(mut self, version: PtxVersion) -> Self {
        self.ptx_version = Some(version);
        self
    }

    /// Where cargo keeps what it builds for the device. It must not be the folder of a cargo
    /// that is running. Without a call it is `device` in the workspace's target folder, in a
    /// build script in `OUT_DIR`.
    #[must_use]
    pub fn target_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.target_dir = Some(folder.into());
        self
    }

    /// Compiles; quick when nothing has changed.
    ///
    /// # Errors
    /// The crate is not there or does not compile, the toolchain lacks the sources of core, or
    /// what came out is not the PTX that was asked for.
    pub fn build(&self) -> Result<Ptx, BuildError> {
        let library = manifest::library_name(&self.kernel_crate)?;
        let version = self.ptx_version.unwrap_or(self.arch.default_ptx_version());
        let target_dir = match &self.target_dir {
            Some(folder) => folder.clone(),
            None => manifest::default_target_dir(&self.kernel_crate),
        };
        // A folder for each variant: two builds at the same time must not take each other's text.
        let target_dir = target_dir.join(format!("{}-ptx{version}", self.arch));
        let compiled = compile::run(
            &self.kernel_crate,
            &library,
            self.arch,
            version,
            &target_dir,
        )?;
        let (text, kernels) = ptx::finish(&compiled.text, self.arch, version)?;
        let path = target_dir.join(format!("{library}.ptx"));
        write_if_changed(&path, &text)?;
        let sources = manifest::with_manifests(compiled.sources);
        Ok(Ptx {
            path,
            text,
            kernels,
            sources,
        })
    }

    /// Compiles from a build script and tells cargo when to do so again. In the package that is
    /// being built `env!("WARPSTORE_PTX")` is then the PTX file.
    ///
    /// # Errors
    /// As [`Builder::build`], or this is not a build script.
    pub fn build_for_cargo(self) -> Result<Ptx, BuildError> {
        let out_dir = env::var_os("OUT_DIR")
            .map(PathBuf::from)
            .ok_or(BuildError::NoBuildScript)?;
        println!("cargo::rerun-if-env-changed={}", toolchain::VARIABLE);
        let target_dir = self
            .target_dir
            .clone()
            .unwrap_or_else(|| out_dir.join("device"));
        let mut ptx = self.target_dir(target_dir).build()?;
        for source in &ptx.sources {
            println!("cargo::rerun-if-changed={}", source.display());
        }
        ptx.path = out_dir.join("kernels.ptx");
        write_if_changed(&ptx.path, &ptx.text)?;
        println!("cargo::rustc-env=WARPSTORE_PTX={}", ptx.path.display());
        Ok(ptx)
    }
}

/// [`Builder::build_for_cargo`] of the crate at `kernel_crate`, a path relative to the package
/// that is being built, with everything else as it is by default.
///
/// # Errors
/// As [`Builder::build_for_cargo`].
pub fn from_build_script(kernel_crate: impl Into<PathBuf>) -> Result<Ptx, BuildError> {
    Builder::new(kernel_crate).build_for_cargo()
}

/// Keeps the old file, and its time, where it says the same.
fn write_if_changed(path: &Path, text: &str) -> Result<(), BuildError> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|source| BuildError::Io {
        path: path.to_path_buf(),
        source,
    })
}
