//! One GPU: its primary context and its facts.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute};

use super::{CudaError, check, driver_present};

/// A GPU's primary context, released when the last owner goes.
pub struct Context {
    device: CUdevice,
    context: CUcontext,
    name: String,
}

// SAFETY: contexts may be used from any thread that makes them current.
unsafe impl Send for Context {}
// SAFETY: as for Send; the driver locks its own state.
unsafe impl Sync for Context {}

impl Context {
    /// Opens GPU `gpu` and makes its context current on this thread.
    pub fn open(gpu: u32) -> Result<Arc<Self>, CudaError> {
        if !driver_present() {
            return Err(CudaError::NoDriver);
        }
        // SAFETY: flags must be 0 and are.
        check("cuInit", unsafe { sys::cuInit(0) })?;
        let found = Self::count()?;
        if gpu >= found as u32 {
            return Err(CudaError::NoGpu { asked: gpu, found });
        }
        let mut device = 0;
        // SAFETY: `device` is valid for a write; the ordinal is below the count.
        check("cuDeviceGet", unsafe {
            sys::cuDeviceGet(&mut device, gpu as i32)
        })?;
        let mut name = [0u8; 128];
        // SAFETY: the buffer is valid for the length given; the driver ends it with NUL.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 127, device) };
        check("cuDeviceGetName", result)?;
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(0);
        // Local memory that a kernel needed stays: to give it back or to get it again the driver
        // waits for all kernels, and a resident one does not end.
        let flags = sys::CUctx_flags::CU_CTX_LMEM_RESIZE_TO_MAX as u32;
        // SAFETY: `device` is a device of this process, the flags are the driver's own.
        let result = unsafe { sys::cuDevicePrimaryCtxSetFlags_v2(device, flags) };
        check("cuDevicePrimaryCtxSetFlags", result)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is valid for a write, `device` is a device of this process.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
        check("cuDevicePrimaryCtxRetain", result)?;
        let name = String::from_utf8_lossy(&name[..length]).into_owned();
        let context = Arc::new(Self {
            device,
            context,
            name,
        });
        context.make_current()?;
        Ok(context)
    }

    /// Number of GPUs that the driver shows. `cuInit` has been called.
    fn count() -> Result<i32, CudaError> {
        let mut count = 0;
        // SAFETY: `count` is valid for a write.
        check("cuDeviceGetCount", unsafe {
            sys::cuDeviceGetCount(&mut count)
        })?;
        Ok(count)
    }

    /// Makes the context current on the calling thread.
    pub fn make_current(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained as long as `self` lives.
        check("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.context)
        })
    }

    /// The GPU's name, as "NVIDIA H200".
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of streaming multiprocessors.
    pub fn multiprocessors(&self) -> Result<u32, CudaError> {
        self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// Most dynamic shared memory that a block may ask for. Bytes.
    pub fn max_shared_memory(&self) -> Result<u32, CudaError> {
        self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
    }

    /// The driver's version: 13000 for CUDA 13.0.
    pub fn driver_version(&self) -> Result<i32, CudaError> {
        let mut version = 0;
        // SAFETY: `version` is valid for a write.
        check("cuDriverGetVersion", unsafe {
            sys::cuDriverGetVersion(&mut version)
        })?;
        Ok(version)
    }

    fn attribute(&self, attribute: CUdevice_attribute) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: `value` is valid for a write, the device belongs to this process.
        let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, self.device) };
        check("cuDeviceGetAttribute", result)?;
        Ok(value as u32)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; every owner of memory, modules and streams of this
        // context holds an `Arc` of it, so they are gone. A failure cannot be mended here.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
