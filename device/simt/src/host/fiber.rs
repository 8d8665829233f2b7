//! What ThreadSanitizer is told of lanes: it follows OS threads, and a coroutine changes the stack
//! of one behind its back.
//!
//! Only `cargo xtask test tsan` sets `warpstore_tsan`. In every other build a [`Fiber`] is nothing.
#![allow(unsafe_code, reason = "calls of ThreadSanitizer's run time")]
// UNSAFETY: the four functions of compiler-rt's `sanitizer/tsan_interface.h` on fibers, called
// with fibers that were made here and not yet destroyed.

/// A stack, for ThreadSanitizer.
pub(crate) struct Fiber {
    #[cfg(warpstore_tsan)]
    handle: *mut core::ffi::c_void,
}

#[cfg(not(warpstore_tsan))]
impl Fiber {
    pub(crate) fn new() -> Self {
        Self {}
    }

    /// Runs `switch`, which goes to the stack and comes back.
    #[inline(always)]
    pub(crate) fn visit<R>(&self, switch: impl FnOnce() -> R) -> R {
        switch()
    }
}

#[cfg(warpstore_tsan)]
unsafe extern "C" {
    fn __tsan_get_current_fiber() -> *mut core::ffi::c_void;
    fn __tsan_create_fiber(flags: core::ffi::c_uint) -> *mut core::ffi::c_void;
    fn __tsan_destroy_fiber(fiber: *mut core::ffi::c_void);
    fn __tsan_switch_to_fiber(fiber: *mut core::ffi::c_void, flags: core::ffi::c_uint);
}

#[cfg(warpstore_tsan)]
impl Fiber {
    pub(crate) fn new() -> Self {
        // SAFETY: takes no memory of ours; 0 asks for nothing special.
        let handle = unsafe { __tsan_create_fiber(0) };
        Self { handle }
    }

    /// Runs `switch`, which goes to the stack and comes back.
    ///
    /// Flags 0: what came before a switch happens before what follows it, as on one OS thread it
    /// does. So lanes of one worker never race for the tool; those of different workers do.
    pub(crate) fn visit<R>(&self, switch: impl FnOnce() -> R) -> R {
        // SAFETY: takes nothing.
        let here = unsafe { __tsan_get_current_fiber() };
        // SAFETY: the fiber is alive as long as `self`.
        unsafe { __tsan_switch_to_fiber(self.handle, 0) };
        let result = switch();
        // SAFETY: the fiber that runs here was running when this function was called.
        unsafe { __tsan_switch_to_fiber(here, 0) };
        result
    }
}

#[cfg(warpstore_tsan)]
impl Drop for Fiber {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once, and not running: `visit` has come back.
        unsafe { __tsan_destroy_fiber(self.handle) };
    }
}
