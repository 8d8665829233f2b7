//! GPU memory and pinned host memory, zeroed.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr};

use super::{Context, CudaError, Stream, check};

/// Alignment of GPU memory here: a controller page, or more, so that PRPs find pages where they
/// expect them. The driver itself promises only 256 bytes.
const ALIGNMENT: u64 = 64 * 1024;

/// Memory on the GPU.
pub struct DeviceMemory {
    context: Arc<Context>,
    allocation: CUdeviceptr,
    address: CUdeviceptr,
}

impl DeviceMemory {
    /// Allocates `len` bytes, aligned to 64 KiB, and zeroes them on `stream`.
    pub fn zeroed(context: &Arc<Context>, stream: &Stream, len: usize) -> Result<Self, CudaError> {
        context.make_current()?;
        let mut allocation = 0;
        let whole = len.max(1) + ALIGNMENT as usize;
        // SAFETY: `allocation` is valid for a write; the context is current.
        check("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&mut allocation, whole)
        })?;
        let address = allocation.next_multiple_of(ALIGNMENT);
        let memory = Self {
            context: Arc::clone(context),
            allocation,
            address,
        };
        // SAFETY: the range lies inside the allocation just made.
        let result = unsafe { sys::cuMemsetD8Async(address, 0, len.max(1), stream.handle()) };
        check("cuMemsetD8Async", result)?;
        stream.wait("zeroing GPU memory")?;
        Ok(memory)
    }

    /// Address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: allocated by `zeroed`, freed once. The session frees memory only after its
            // kernels have ended; a failure means that the context is gone, and the memory too.
            let _ = unsafe { sys::cuMemFree_v2(self.allocation) };
        }
    }
}

/// Host memory that cannot be paged out and has the same address on the GPU (unified addressing).
pub struct PinnedMemory {
    context: Arc<Context>,
    address: *mut u8,
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: the type gives no access by itself, only an address.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `len` bytes, page-aligned, and zeroes them.
    pub fn zeroed(context: &Arc<Context>, len: usize) -> Result<Self, CudaError> {
        context.make_current()?;
        let mut address = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: `address` is valid for a write; the context is current.
        let result = unsafe { sys::cuMemHostAlloc(&mut address, len.max(1), flags) };
        check("cuMemHostAlloc", result)?;
        // SAFETY: `len` bytes were allocated at `address` and nobody else knows them yet.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, len) };
        Ok(Self {
            context: Arc::clone(context),
            address: address.cast(),
        })
    }

    /// Address, for the CPU and the GPU alike.
    pub fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: allocated by `zeroed`, freed once; see DeviceMemory.
            let _ = unsafe { sys::cuMemFreeHost(self.address.cast()) };
        }
    }
}

/// Pages of this process that the GPU reaches, by the same address, until this is dropped.
pub struct Registered {
    context: Arc<Context>,
    address: u64,
}

impl Registered {
    /// Pins `bytes` bytes from `address` on, whole pages, and lets the GPU reach them.
    ///
    /// # Errors
    /// The driver cannot pin them, or the GPU would reach them elsewhere.
    ///
    /// # Safety
    /// The pages are mapped, readable and writable, and stay so until this is dropped.
    pub unsafe fn new(context: &Arc<Context>, address: u64, bytes: u64) -> Result<Self, CudaError> {
        context.make_current()?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let host = address as *mut std::ffi::c_void;
        // SAFETY: the caller vouches for the pages; the context is current.
        let result = unsafe { sys::cuMemHostRegister_v2(host, bytes as usize, flags) };
        check("cuMemHostRegister", result)?;
        let registered = Self {
            context: Arc::clone(context),
            address,
        };
        let mut on_gpu = 0;
        // SAFETY: `on_gpu` is valid for a write, and the pages have just been registered.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut on_gpu, host, 0) };
        check("cuMemHostGetDevicePointer", result)?;
        if on_gpu == address {
            Ok(registered)
        } else {
            Err(CudaError::Elsewhere { address, on_gpu })
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: registered by `new`, once. Kernels that use the pages have ended; a failure
            // means that the context is gone, and the registration too.
            let _ = unsafe { sys::cuMemHostUnregister(self.address as *mut std::ffi::c_void) };
        }
    }
}
