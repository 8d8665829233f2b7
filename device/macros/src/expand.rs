//! What a kernel becomes.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ItemFn, Result, ReturnType};

use crate::bounds::Bounds;
use crate::signature::{self, Parameter};

/// Expands `#[kernel(arguments)] function`.
pub fn kernel(arguments: &TokenStream, mut function: ItemFn) -> Result<TokenStream> {
    if !arguments.is_empty() {
        let message = "#[kernel] takes no arguments; launch bounds go to #[launch_bounds(…)]";
        return Err(Error::new_spanned(arguments, message));
    }
    let bounds = Bounds::take(&mut function.attrs)?;
    let parameters = signature::parameters(&function.sig)?;
    let definition = definition(&function, &parameters, &bounds);
    let checks = checks(&function, &parameters);
    let entry = entry(&function, &parameters, &bounds);
    Ok(quote!(#definition #checks #entry))
}

/// The unit struct and its `Kernel`, on every target.
fn definition(function: &ItemFn, parameters: &[Parameter], bounds: &Bounds) -> TokenStream {
    let ItemFn {
        attrs,
        vis,
        sig,
        block,
        ..
    } = function;
    let (docs, attrs): (Vec<_>, Vec<_>) =
        attrs.iter().partition(|attr| attr.path().is_ident("doc"));
    let (name, output) = (&sig.ident, &sig.output);
    let name_text = name.to_string();
    let max_threads = bounds.max_threads;
    let args = numbered(parameters);
    let types: Vec<_> = parameters.iter().map(|parameter| &parameter.ty).collect();
    let inputs = parameters.iter().map(
        |Parameter {
             mutability,
             name,
             ty,
         }| { quote!(#mutability #name: #ty) },
    );
    quote! {
        #(#docs)*
        #[allow(non_camel_case_types, reason = "a kernel keeps the name of its function")]
        #[derive(Clone, Copy, Debug)]
        #vis struct #name;

        impl ::warpstore_device::launch::Kernel for #name {
            type Args = (#(#types,)*);
            const NAME: &'static str = #name_text;
            const MAX_THREADS: u32 = #max_threads;
            #[inline(always)]
            fn run(status: ::warpstore_device::launch::StatusSlot, (#(#args,)*): Self::Args) {
                #(#attrs)*
                #[allow(clippy::too_many_arguments, reason = "they are the kernel's interface")]
                #[inline(always)]
                fn body(#(#inputs),*) #output #block
                ::warpstore_device::launch::KernelReturn::conclude(body(#(#args),*), status)
            }
        }
    }
}

/// Trait bounds at the place where the author wrote the type, so that errors point there.
fn checks(function: &ItemFn, parameters: &[Parameter]) -> TokenStream {
    let params = parameters
        .iter()
        .map(|Parameter { ty, .. }| quote_spanned!(ty.span() => _param::<#ty>();));
    let output = match &function.sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(quote_spanned!(ty.span() => _output::<#ty>();)),
    };
    quote! {
        const _: fn() = || {
            // Underscores, since a kernel may have no parameters and return nothing.
            fn _param<T: ::warpstore_device::launch::KernelParam>() {}
            fn _output<T: ::warpstore_device::launch::KernelReturn>() {}
            #(#params)*
            #output
        };
    }
}

/// The entry in the PTX and the marker with its bounds. The builder switches on the compiler
/// features that both need, so that kernel crates are free of them.
fn entry(function: &ItemFn, parameters: &[Parameter], bounds: &Bounds) -> TokenStream {
    let name = &function.sig.ident;
    let marker = bounds.marker(&name.to_string());
    let args = numbered(parameters);
    let types = parameters.iter().map(|parameter| &parameter.ty);
    let inputs = args.iter().zip(types).map(|(arg, ty)| quote!(#arg: #ty));
    quote! {
        #[cfg(target_arch = "nvptx64")]
        #[allow(unsafe_code, reason = "an exported symbol, and a comment by way of assembly")]
        const _: () = {
            // UNSAFETY: the symbol is unique, or the compiler reports it as defined twice.
            mod marker {
                ::core::arch::global_asm!(#marker);
            }
            #[unsafe(no_mangle)]
            extern "ptx-kernel" fn #name(
                status: ::warpstore_device::launch::StatusSlot,
                #(#inputs),*
            ) {
                if status.is_absent() {
                    return;
                }
                <#name as ::warpstore_device::launch::Kernel>::run(status, (#(#args,)*))
            }
        };
    }
}

/// Names for the parameters where a kernel's own could collide with ours.
fn numbered(parameters: &[Parameter]) -> Vec<syn::Ident> {
    (0..parameters.len())
        .map(|index| format_ident!("arg_{index}"))
        .collect()
}
