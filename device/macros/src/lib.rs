//! `#[kernel]`, `#[launch_bounds]` and `#[max_registers]`: one definition for both runners.
//!
//! ```text
//! #[kernel]                                     pub struct scale;                       launch(&scale, config, (x, y, 2.0))
//! #[launch_bounds(256)]                    ──►  impl Kernel for scale { … the body … }  host lanes call `run`
//! pub fn scale(x: Global<f32>,                  extern "ptx-kernel" fn scale(status,    only on nvptx64, calls `run`
//!     mut y: DisjointSlice<f32>, f: f32)            x, y, f) and a marker comment
//! { … }
//! ```
//!
//! The marker is a comment in the PTX that carries the launch bounds, since rustc has no
//! attribute for them; warpstore-builder turns it into directives.
use proc_macro::TokenStream;
use syn::parse_macro_input;

mod bounds;
mod expand;
mod signature;

/// Makes a function a kernel: a unit struct of the same name that implements
/// `warpstore_device::launch::Kernel`, and on the GPU an entry of that name.
///
/// Parameters are scalars and handles (`KernelParam`), at most twelve. The function returns
/// nothing or `Result<(), IoError>`; an `Err` of any lane lands in the launch's status slot.
/// A block may have up to 1024 threads unless [`macro@launch_bounds`] says less.
///
/// Being a unit struct, the name cannot be used for a local variable in the same module.
///
/// ```ignore
/// /// y[i] = factor · x[i]
/// #[kernel]
/// #[launch_bounds(256)]
/// pub fn scale(x: Global<f32>, mut y: DisjointSlice<f32>, factor: f32) {
///     for i in thread::grid_stride(y.len()) {
///         y.set(i, factor * x.get(i).unwrap_or(0.0));
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as syn::ItemFn);
    expand::kernel(&arguments.into(), function)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// `#[launch_bounds(max_threads)]` or `#[launch_bounds(max_threads, min_blocks)]`: the largest
/// block that will be launched, and how many blocks a multiprocessor shall hold at least. The
/// compiler limits registers accordingly. Stands beside [`macro@kernel`], above or below it.
#[proc_macro_attribute]
pub fn launch_bounds(arguments: TokenStream, item: TokenStream) -> TokenStream {
    bounds::below_kernel("launch_bounds", arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// `#[max_registers(n)]`: a thread of the kernel gets at most `n` registers; what does not fit is
/// spilled. Stands beside [`macro@kernel`], above or below it.
#[proc_macro_attribute]
pub fn max_registers(arguments: TokenStream, item: TokenStream) -> TokenStream {
    bounds::below_kernel("max_registers", arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
