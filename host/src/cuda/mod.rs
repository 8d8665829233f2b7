//! The CUDA driver, found at run time: contexts, memory, modules, streams.
//!
//! cudarc's `sys` functions carry the bindings and the loading; the owning types are ours, since
//! cudarc's module type has no JIT log and its memory type no pinned, device-mapped form.
#![allow(unsafe_code, reason = "FFI to the CUDA driver")]
// UNSAFETY: calls of the CUDA driver API. Each wrapper owns its handle, makes the context current
// on the calling thread before the call, and checks the result.

mod context;
mod memory;
mod module;
mod stream;

pub use context::Context;
pub use memory::{DeviceMemory, PinnedMemory, Registered};
pub use module::{Function, Module};
pub use stream::{Event, Stream};

use cudarc::driver::sys::{self, CUresult};

/// A call of the CUDA driver failed.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// There is no libcuda on this machine.
    #[error(
        "no CUDA driver: libcuda.so.1 was not found; install NVIDIA's driver, or run with --runner threads"
    )]
    NoDriver,
    /// There is no GPU with this number.
    #[error("there is no GPU {asked}: this machine has {found}")]
    NoGpu {
        /// The GPU asked for.
        asked: u32,
        /// How many there are.
        found: i32,
    },
    /// The driver refused a call.
    #[error("{call} failed: {name} ({text})")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The result's name, as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// The driver's own words.
        text: String,
    },
    /// The driver's compiler refused the PTX.
    #[error("the driver could not compile the kernels:\n{log}")]
    Jit {
        /// The compiler's log.
        log: String,
    },
    /// Host memory has another address on the GPU.
    #[error(
        "the GPU reaches host memory at {address:#x} by another address, {on_gpu:#x}: it lacks unified \
         addressing for registered memory, which SSDs outside this process need"
    )]
    Elsewhere {
        /// Address here.
        address: u64,
        /// Address on the GPU.
        on_gpu: u64,
    },
    /// Work on the GPU did not end in time.
    #[error("{what} did not end within {seconds} s")]
    Timeout {
        /// What was awaited.
        what: String,
        /// The bound.
        seconds: u64,
    },
}

/// Turns a driver result into an error that names the call.
fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: both pointers are valid for a write; the driver stores static strings or null.
    let _ = unsafe { sys::cuGetErrorName(result, &mut name) };
    // SAFETY: as above.
    let _ = unsafe { sys::cuGetErrorString(result, &mut text) };
    Err(CudaError::Call {
        call,
        name: static_text(name),
        text: static_text(text),
    })
}

/// The text of a static C string of the driver.
fn static_text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: not null, and the driver's strings are static and end in NUL.
    unsafe { std::ffi::CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// True if libcuda can be loaded.
pub fn driver_present() -> bool {
    // SAFETY: loads and unloads the library; its constructors are the driver's own.
    unsafe { sys::is_culib_present() }
}
