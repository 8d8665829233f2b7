//! The panic handler of every kernel: it stops the GPU, and looks at nothing.
//!
//! Kernels do not panic by design; this is for the checks that the compiler adds. A handler that
//! looked at its argument would keep the message and all of `core::fmt` alive: 80 KB of PTX, and
//! stack frames in every kernel. The host sees a trap as a failed launch.
#![allow(unsafe_code, reason = "the trap instruction is an intrinsic")]
// UNSAFETY: one instruction that ends the kernel.

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: a trap has no preconditions.
    unsafe { core::arch::nvptx::trap() }
}
