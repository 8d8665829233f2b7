//! What can go wrong, and what mends it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::Arch;

/// Why there is no PTX.
#[derive(thiserror::Error)]
pub enum BuildError {
    /// The folder holds no crate.
    #[error("no kernel crate at {}: {reason}", .path.display())]
    NoKernelCrate {
        /// Its manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The sources of core, from which it is compiled for the GPU, are missing.
    #[error(
        "the Rust toolchain at {} lacks the sources of core, without which nothing compiles for \
         the GPU; run `cargo xtask setup`, or `rustup component add rust-src`", .sysroot.display()
    )]
    NoRustSrc {
        /// The toolchain that was asked.
        sysroot: PathBuf,
    },
    /// The toolchain named by the environment is not there.
    #[error("{variable} is {}, which holds no bin/cargo and no usr/bin/cargo", .folder.display())]
    NoToolchain {
        /// The variable.
        variable: &'static str,
        /// Its value.
        folder: PathBuf,
    },
    /// A program of the toolchain could not be run.
    #[error("cannot run {}: {reason}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// The kernels do not compile.
    #[error("compiling {} for the GPU failed; the end of cargo's output:\n{tail}", .kernel_crate.display())]
    Compile {
        /// The crate.
        kernel_crate: PathBuf,
        /// Last lines of what cargo said.
        tail: String,
    },
    /// The compiler's text is not what was asked for.
    #[error("the compiler produced unusable PTX: {0}")]
    Malformed(String),
    /// There is no such architecture.
    #[error("`{0}` is no architecture known here; known are {list}", list = known())]
    UnknownArch(String),
    /// `build_for_cargo` was called elsewhere.
    #[error("OUT_DIR is not set: PTX for cargo is made in a build.rs only; elsewhere call build")]
    NoBuildScript,
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The message: what a build.rs prints whose `main` returns this error.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn known() -> String {
    Arch::ALL.map(|arch| arch.to_string()).join(", ")
}
