//! PTX modules, compiled by the driver, with the compiler's log in the error.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule, CUresult,
};

use super::{Context, CudaError, Stream, check};

/// Room for the compiler's error log. Bytes.
const LOG_BYTES: usize = 64 * 1024;

/// A loaded module.
pub struct Module {
    context: Arc<Context>,
    module: CUmodule,
}

// SAFETY: modules may be used from any thread whose current context is theirs.
unsafe impl Send for Module {}
// SAFETY: as for Send.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles and loads `ptx`.
    pub fn load(context: &Arc<Context>, ptx: &str) -> Result<Self, CudaError> {
        context.make_current()?;
        let image = CString::new(ptx).map_err(|_| CudaError::Jit {
            log: "the PTX text contains a NUL byte".to_owned(),
        })?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values: [*mut c_void; 2] = [
            log.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(LOG_BYTES),
        ];
        let mut module = std::ptr::null_mut();
        // SAFETY: the image ends in NUL; the two options describe `log`, which outlives the call.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        let length = log.iter().position(|&byte| byte == 0).unwrap_or(0);
        if result != CUresult::CUDA_SUCCESS && length > 0 {
            let log = String::from_utf8_lossy(&log[..length]).into_owned();
            return Err(CudaError::Jit { log });
        }
        check("cuModuleLoadDataEx", result)?;
        Ok(Self {
            context: Arc::clone(context),
            module,
        })
    }

    /// Finds a kernel by name.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, CudaError> {
        self.context.make_current()?;
        let c_name = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in NUL.
        let result =
            unsafe { sys::cuModuleGetFunction(&mut function, self.module, c_name.as_ptr()) };
        check("cuModuleGetFunction", result)?;
        Ok(Function {
            module: Arc::clone(self),
            function,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: loaded by `load`, unloaded once; no kernel of it runs any more.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// A kernel of a loaded module.
#[derive(Clone)]
pub struct Function {
    module: Arc<Module>,
    function: CUfunction,
}

// SAFETY: a function handle belongs to its module, which may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as for Send.
unsafe impl Sync for Function {}

impl Function {
    /// Blocks of `block` threads and `shared` bytes of dynamic shared memory that fit one SM.
    pub fn blocks_per_multiprocessor(&self, block: u32, shared: u32) -> Result<u32, CudaError> {
        self.module.context.make_current()?;
        let mut blocks = 0;
        // SAFETY: `blocks` is valid for a write, the function is loaded.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function,
                block as i32,
                shared as usize,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(blocks as u32)
    }

    /// Registers a thread.
    pub fn registers(&self) -> Result<u32, CudaError> {
        self.module.context.make_current()?;
        let mut registers = 0;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
        // SAFETY: `registers` is valid for a write, the function is loaded.
        let result = unsafe { sys::cuFuncGetAttribute(&mut registers, attribute, self.function) };
        check("cuFuncGetAttribute", result)?;
        Ok(registers as u32)
    }

    /// Allows `bytes` of dynamic shared memory a block.
    pub fn allow_shared_memory(&self, bytes: u32) -> Result<(), CudaError> {
        self.module.context.make_current()?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded; the driver checks the value.
        let result = unsafe { sys::cuFuncSetAttribute(self.function, attribute, bytes as i32) };
        check("cuFuncSetAttribute", result)
    }

    /// Queues a launch of `grid` blocks of `block` threads with `shared` bytes of dynamic shared
    /// memory. `arguments` are the addresses of the kernel's parameters.
    ///
    /// # Safety
    /// The addresses point to live values of the kernel's parameter types, in order, and what
    /// those values point to stays valid until the kernel has ended.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: u32,
        block: u32,
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        stream.context().make_current()?;
        // SAFETY: function and stream are live; the arguments are the caller's.
        let result = unsafe {
            sys::cuLaunchKernel(
                self.function,
                grid,
                1,
                1,
                block,
                1,
                1,
                shared,
                stream.handle(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", result)
    }
}
