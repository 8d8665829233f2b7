//! What a launch needs to know of a kernel, on either runner; `#[kernel]` writes the rest.
//!
//! A kernel is a type: its parameters are a tuple of [`KernelParam`]s, so a launch is checked by
//! the compiler, and the same tuple is what the CUDA driver is given and what each lane of the
//! host runner is called with. Every kernel has one parameter more than its author wrote, in
//! front: the [`StatusSlot`] in which a lane's error ends up.
#![allow(
    unsafe_code,
    reason = "kernel parameters cross to the GPU as plain bytes"
)]
// UNSAFETY: only the marker trait KernelParam, whose contract is about layout. No memory is
// accessed here but through simt's cells.

use core::ffi::c_void;

use warpstore_simt::{Cell, Cells, Device, NativeCell, NativeCells, Order, Scope, Word};

use crate::IoError;

/// A kernel, as `#[kernel]` defines it: a unit struct with the name of the function.
pub trait Kernel {
    /// The parameters, in order, without the status slot.
    type Args: KernelArgs;
    /// Name of the entry in the PTX: the function's own.
    const NAME: &'static str;
    /// The largest block that may be launched: from `#[launch_bounds]`, else 1024.
    const MAX_THREADS: u32;
    /// The body, run by one lane. An error is reported in `status`.
    fn run(status: StatusSlot, args: Self::Args);
}

/// A type that may be a kernel's parameter.
///
/// # Safety
/// The type is a scalar, or `repr(C)` or `repr(transparent)` over such types; it is not empty,
/// its alignment is at most 16, and its bytes mean the same to the CPU and the GPU. What it
/// points to is memory that any lane may reach through it at any time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel parameter",
    label = "not plain data that a GPU can be handed",
    note = "pass scalars (u32, u64, i32, i64, f32, f64) and handles: Array<T> for data on SSDs, \
            Global<T> for GPU memory that is read, DisjointSlice<T> for GPU memory that is written"
)]
pub unsafe trait KernelParam: Copy + Send + Sync + 'static {
    /// Address and bytes of the memory that the parameter gives access to, if it is a handle; for
    /// one that reaches SSDs, of the store's description. The host refuses what is not its own.
    fn memory(&self) -> Option<(u64, u64)> {
        None
    }

    /// Whether kernels may write arrays through it.
    fn writes(&self) -> bool {
        false
    }
}

// SAFETY: scalars of 4 or 8 bytes, the same on both sides.
unsafe impl KernelParam for u32 {}
// SAFETY: as for u32.
unsafe impl KernelParam for u64 {}
// SAFETY: as for u32.
unsafe impl KernelParam for i32 {}
// SAFETY: as for u32.
unsafe impl KernelParam for i64 {}
// SAFETY: as for u32.
unsafe impl KernelParam for f32 {}
// SAFETY: as for u32.
unsafe impl KernelParam for f64 {}
// SAFETY: a transparent address; others reach the word through cells, as its `new` demands.
unsafe impl<T: Word, S: Scope> KernelParam for NativeCell<T, S> {
    fn memory(&self) -> Option<(u64, u64)> {
        Some((self.address() as u64, size_of::<T>() as u64))
    }
}
// SAFETY: as for NativeCell; `repr(C)`, an address and a length.
unsafe impl<T: Word, S: Scope> KernelParam for NativeCells<T, S> {
    fn memory(&self) -> Option<(u64, u64)> {
        Some((self.address() as u64, self.len() * size_of::<T>() as u64))
    }
}

/// The parameters of a kernel: a tuple of up to twelve [`KernelParam`]s.
pub trait KernelArgs: Copy + Send + Sync + 'static {
    /// How many there are.
    const COUNT: usize;
    /// Writes the address of each parameter to the front of `out`, as `cuLaunchKernel` wants
    /// them. They are valid while `self` is neither moved nor dropped.
    ///
    /// # Panics
    /// `out` is shorter than [`KernelArgs::COUNT`].
    fn addresses(&self, out: &mut [*const c_void]);
    /// [`KernelParam::memory`] of parameter `index`; none beyond the last.
    fn memory(&self, index: usize) -> Option<(u64, u64)>;
    /// Whether [`KernelParam::writes`] holds for any of them.
    fn writes(&self) -> bool;
}

macro_rules! kernel_args {
    ($($param:ident $index:tt),*) => {
        impl<$($param: KernelParam),*> KernelArgs for ($($param,)*) {
            const COUNT: usize = <[&str]>::len(&[$(stringify!($param)),*]);
            fn addresses(&self, out: &mut [*const c_void]) {
                let addresses: &[*const c_void] = &[$((&raw const self.$index).cast()),*];
                out[..addresses.len()].copy_from_slice(addresses);
            }
            fn memory(&self, index: usize) -> Option<(u64, u64)> {
                match index {
                    $($index => self.$index.memory(),)*
                    _ => None,
                }
            }
            fn writes(&self) -> bool {
                let any: &[bool] = &[$(self.$index.writes()),*];
                any.contains(&true)
            }
        }
    };
}
kernel_args!();
kernel_args!(A 0);
kernel_args!(A 0, B 1);
kernel_args!(A 0, B 1, C 2);
kernel_args!(A 0, B 1, C 2, D 3);
kernel_args!(A 0, B 1, C 2, D 3, E 4);
kernel_args!(A 0, B 1, C 2, D 3, E 4, F 5);
kernel_args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
kernel_args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
kernel_args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
kernel_args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
kernel_args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
kernel_args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

/// What a kernel may return.
#[diagnostic::on_unimplemented(
    message = "a kernel returns nothing or `Result<(), IoError>`, not `{Self}`",
    label = "not a kernel's return type",
    note = "write results to a DisjointSlice<T>"
)]
pub trait KernelReturn {
    /// Leaves an error, if there is one, in the status slot.
    fn conclude(self, status: StatusSlot);
}

impl KernelReturn for () {
    #[inline(always)]
    fn conclude(self, _: StatusSlot) {}
}

impl KernelReturn for Result<(), IoError> {
    #[inline(always)]
    fn conclude(self, status: StatusSlot) {
        if let Err(error) = self {
            status.report(error);
        }
    }
}

/// Where the lanes of one launch leave their errors: [`StatusSlot::WORDS`] words in memory of
/// the machine that runs the kernel, zeroed before the launch and read after it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct StatusSlot {
    words: NativeCells<u64, Device>,
}

impl StatusSlot {
    /// Size of a slot, in 64-bit words.
    pub const WORDS: u64 = 2;
    /// Index of the word that holds the error which came first, as [`IoError::to_bits`]; 0 if
    /// no lane failed.
    pub const FIRST_ERROR: u64 = 0;
    /// Index of the word that counts the lanes which returned an error.
    pub const FAILED_LANES: u64 = 1;

    /// A slot in `words`, of which there are [`StatusSlot::WORDS`].
    #[inline(always)]
    pub const fn new(words: NativeCells<u64, Device>) -> Self {
        Self { words }
    }

    /// True for a slot of zero bytes: the kernel was launched to be loaded, not to work.
    #[inline(always)]
    pub fn is_absent(self) -> bool {
        self.words.is_empty()
    }

    /// Counts a failed lane, and keeps its error if it is the first.
    #[inline(always)]
    pub fn report(self, error: IoError) {
        // Relaxed: the host reads the words after the launch has ended, which orders them. Only
        // the first error is kept, so losing the exchange is no failure.
        let first = self.words.at(Self::FIRST_ERROR);
        let _ = first.compare_exchange(0, error.to_bits(), Order::Relaxed);
        self.words
            .at(Self::FAILED_LANES)
            .fetch_add(1, Order::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_elements_in_order() {
        let args = (7_u32, 9_u64, 0.5_f32);
        let mut out = [core::ptr::null(); 4];
        args.addresses(&mut out);
        let expected: [*const c_void; 4] = [
            (&raw const args.0).cast(),
            (&raw const args.1).cast(),
            (&raw const args.2).cast(),
            core::ptr::null(),
        ];
        assert_eq!(out, expected);
        assert_eq!(<(u32, u64, f32) as KernelArgs>::COUNT, 3);
        assert_eq!(<() as KernelArgs>::COUNT, 0);
    }
}
