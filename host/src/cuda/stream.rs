//! Streams that never wait for others, and events that time them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUevent, CUresult, CUstream};

use super::{Context, CudaError, check};

/// Longest wait for a copy or a memset. Kernels bring their own bound.
const COPY_TIMEOUT: Duration = Duration::from_secs(120);

/// A non-blocking stream: a resident kernel on another stream does not hold it up.
pub struct Stream {
    context: Arc<Context>,
    stream: CUstream,
}

// SAFETY: streams may be used from any thread whose current context is theirs.
unsafe impl Send for Stream {}
// SAFETY: the driver serialises calls on a stream.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream.
    pub fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.make_current()?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is valid for a write; the context is current.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut stream, flags)
        })?;
        Ok(Self {
            context: Arc::clone(context),
            stream,
        })
    }

    pub(super) fn handle(&self) -> CUstream {
        self.stream
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// True if everything queued has ended. An error of a kernel shows up here.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.context.make_current()?;
        // SAFETY: the stream lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.stream) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuStreamQuery", result).map(|()| true),
        }
    }

    /// Waits until everything queued has ended, at most `limit`.
    pub fn wait_for(&self, what: &str, limit: Duration) -> Result<(), CudaError> {
        let start = Instant::now();
        while !self.is_idle()? {
            if start.elapsed() > limit {
                return Err(CudaError::Timeout {
                    what: what.to_owned(),
                    seconds: limit.as_secs(),
                });
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    /// Waits for copies and memsets.
    pub fn wait(&self, what: &str) -> Result<(), CudaError> {
        self.wait_for(what, COPY_TIMEOUT)
    }

    /// Copies `bytes` to GPU address `to` and waits.
    ///
    /// # Safety
    /// `to` is valid for `bytes.len()` bytes, which running kernels access by atomic words at most.
    pub unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), CudaError> {
        // SAFETY: the source is a live slice, the target is vouched for by the caller.
        unsafe { self.upload_raw(to, bytes.as_ptr(), bytes.len()) }
    }

    /// Copies `len` bytes at `from` to GPU address `to` and waits.
    ///
    /// # Safety
    /// As [`Stream::upload`], and `from` is valid for reads of `len` bytes, initialised or not.
    pub unsafe fn upload_raw(&self, to: u64, from: *const u8, len: usize) -> Result<(), CudaError> {
        self.context.make_current()?;
        // SAFETY: source and target are vouched for by the caller, and we wait for the end of the
        // copy before either can go.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), len, self.stream) };
        check("cuMemcpyHtoDAsync", result)?;
        self.wait("a copy to the GPU")
    }

    /// Copies from GPU address `from` into `bytes` and waits.
    ///
    /// # Safety
    /// `from` is valid for `bytes.len()` bytes, which running kernels write by atomic words at most.
    pub unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.context.make_current()?;
        // SAFETY: as in upload, the other way round.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from, bytes.len(), self.stream)
        };
        check("cuMemcpyDtoHAsync", result)?;
        self.wait("a copy from the GPU")
    }

    /// Marks the present end of the stream.
    pub fn record(&self) -> Result<Event, CudaError> {
        self.context.make_current()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is valid for a write; the context is current.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&mut event, 0)
        })?;
        let event = Event {
            context: Arc::clone(&self.context),
            event,
        };
        // SAFETY: event and stream are live and of one context.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(event.event, self.stream)
        })?;
        Ok(event)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: created by `new`, destroyed once; a failure cannot be mended here.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
    }
}

/// A moment on a stream.
pub struct Event {
    context: Arc<Context>,
    event: CUevent,
}

impl Event {
    /// Seconds from `self` to `later`; both have passed.
    pub fn seconds_until(&self, later: &Event) -> Result<f64, CudaError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are live and were recorded.
        let result = unsafe { sys::cuEventElapsedTime(&mut milliseconds, self.event, later.event) };
        check("cuEventElapsedTime", result)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: created by `record`, destroyed once; a failure cannot be mended here.
            let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}
