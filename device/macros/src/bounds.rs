//! Launch bounds: the attributes that say them, and the marker that carries them into the PTX.

use std::ops::RangeInclusive;

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, ItemFn, LitInt, Result, Token};

/// The hardware's limit of threads per block on every architecture (CUDA C++ Programming Guide,
/// "Compute Capabilities"), and the bound of kernels that name none.
const MOST_THREADS: u32 = 1024;

/// What the attributes of a kernel say.
pub struct Bounds {
    pub max_threads: u32,
    min_blocks: Option<u32>,
    max_registers: Option<u32>,
}

impl Bounds {
    /// Takes the bounds out of a kernel's attributes.
    pub fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut bounds = Self {
            max_threads: MOST_THREADS,
            min_blocks: None,
            max_registers: None,
        };
        if let Some(attribute) = take_one(attributes, "launch_bounds")? {
            let usage = "write #[launch_bounds(max_threads)] or \
                         #[launch_bounds(max_threads, min_blocks)]";
            let [threads, rest @ ..] = &*integers(&attribute, usage)? else {
                return Err(Error::new_spanned(attribute, usage));
            };
            bounds.max_threads = within(threads, 1..=MOST_THREADS, "max_threads")?;
            bounds.min_blocks = match rest {
                [] => None,
                [blocks] => Some(within(blocks, 1..=32, "min_blocks")?),
                _ => return Err(Error::new_spanned(attribute, usage)),
            };
        }
        if let Some(attribute) = take_one(attributes, "max_registers")? {
            let usage = "write #[max_registers(n)]";
            let [registers] = &*integers(&attribute, usage)? else {
                return Err(Error::new_spanned(attribute, usage));
            };
            bounds.max_registers = Some(within(registers, 16..=255, "max_registers")?);
        }
        Ok(bounds)
    }

    /// The comment that warpstore-builder looks for.
    pub fn marker(&self, kernel: &str) -> String {
        let mut marker = format!(
            "// @warpstore.kernel {kernel} max_threads={}",
            self.max_threads
        );
        if let Some(blocks) = self.min_blocks {
            marker += &format!(" min_blocks={blocks}");
        }
        if let Some(registers) = self.max_registers {
            marker += &format!(" max_registers={registers}");
        }
        marker
    }
}

/// Puts a bounds attribute that stands above `#[kernel]` below it, where `#[kernel]` takes it.
pub fn below_kernel(name: &str, arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut function: ItemFn = syn::parse2(item)?;
    let Some(at) = function
        .attrs
        .iter()
        .position(|attribute| is(attribute, "kernel"))
    else {
        let message = format!("#[{name}] belongs to a function that is a #[kernel]");
        return Err(Error::new_spanned(&function.sig.ident, message));
    };
    let name = format_ident!("{name}");
    function
        .attrs
        .insert(at + 1, syn::parse_quote!(#[#name(#arguments)]));
    Ok(quote!(#function))
}

fn is(attribute: &Attribute, name: &str) -> bool {
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|segment| segment.ident == name)
}

fn take_one(attributes: &mut Vec<Attribute>, name: &str) -> Result<Option<Attribute>> {
    let Some(at) = attributes.iter().position(|attribute| is(attribute, name)) else {
        return Ok(None);
    };
    let attribute = attributes.remove(at);
    match attributes.iter().find(|attribute| is(attribute, name)) {
        Some(second) => Err(Error::new_spanned(
            second,
            format!("#[{name}] stands here twice"),
        )),
        None => Ok(Some(attribute)),
    }
}

fn integers(attribute: &Attribute, usage: &str) -> Result<Vec<LitInt>> {
    let list = attribute
        .meta
        .require_list()
        .map_err(|_| Error::new_spanned(attribute, usage))?;
    Punctuated::<LitInt, Token![,]>::parse_terminated
        .parse2(list.tokens.clone())
        .map(|integers| integers.into_iter().collect())
        .map_err(|_| Error::new_spanned(attribute, format!("{usage}, with integer literals")))
}

fn within(literal: &LitInt, range: RangeInclusive<u32>, what: &str) -> Result<u32> {
    literal
        .base10_parse()
        .ok()
        .filter(|value| range.contains(value))
        .ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            let message = format!("{what} must be from {low} to {high}");
            Error::new_spanned(literal.to_token_stream(), message)
        })
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn marker(mut attributes: Vec<Attribute>) -> std::result::Result<String, String> {
        Bounds::take(&mut attributes)
            .map(|bounds| bounds.marker("k"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn markers_say_what_the_attributes_say() {
        assert_eq!(
            marker(vec![]).unwrap(),
            "// @warpstore.kernel k max_threads=1024"
        );
        let both = vec![
            parse_quote!(#[max_registers(40)]),
            parse_quote!(#[launch_bounds(256, 2)]),
        ];
        let expected = "// @warpstore.kernel k max_threads=256 min_blocks=2 max_registers=40";
        assert_eq!(marker(both).unwrap(), expected);
    }

    #[test]
    fn wrong_bounds_are_refused_with_their_range_or_form() {
        let refused = |attribute| marker(vec![attribute]).unwrap_err();
        assert!(refused(parse_quote!(#[launch_bounds(0)])).contains("1 to 1024"));
        assert!(refused(parse_quote!(#[launch_bounds(2048)])).contains("1 to 1024"));
        assert!(refused(parse_quote!(#[launch_bounds(256, 2, 1)])).contains("write #[launch"));
        assert!(refused(parse_quote!(#[launch_bounds])).contains("write #[launch"));
        assert!(refused(parse_quote!(#[max_registers(256)])).contains("16 to 255"));
        let twice = vec![
            parse_quote!(#[launch_bounds(1)]),
            parse_quote!(#[launch_bounds(2)]),
        ];
        assert!(marker(twice).unwrap_err().contains("twice"));
    }

    #[test]
    fn bounds_above_the_kernel_move_below_it() {
        let item = quote!(
            #[kernel]
            fn k() {}
        );
        let moved = below_kernel("launch_bounds", quote!(256), item)
            .unwrap()
            .to_string();
        assert_eq!(
            moved,
            quote!(
                #[kernel]
                #[launch_bounds(256)]
                fn k() {}
            )
            .to_string()
        );
        let alone = below_kernel(
            "launch_bounds",
            quote!(256),
            quote!(
                fn k() {}
            ),
        );
        assert!(alone.unwrap_err().to_string().contains("is a #[kernel]"));
    }
}
