//! What a kernel's signature may look like. Everything wrong with it is reported at once.

use syn::spanned::Spanned;
use syn::{Error, FnArg, Ident, Pat, Result, Safety, Signature, Type};

/// `cuLaunchKernel` takes more; the tuples that implement `KernelArgs` end here.
const MOST_PARAMETERS: usize = 12;

/// One parameter of a kernel.
pub struct Parameter {
    /// `mut`, where the author wrote it.
    pub mutability: Option<syn::token::Mut>,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: Type,
}

/// Checks the signature and takes the parameters out of it.
pub fn parameters(signature: &Signature) -> Result<Vec<Parameter>> {
    let mut errors = Errors(None);
    check_qualifiers(signature, &mut errors);
    let mut parameters = Vec::new();
    for input in &signature.inputs {
        match parameter(input) {
            Ok(parameter) => parameters.push(parameter),
            Err(error) => errors.add(error),
        }
    }
    if signature.inputs.len() > MOST_PARAMETERS {
        let message = format!(
            "a kernel has at most {MOST_PARAMETERS} parameters; put scalars that belong together \
             into a Global<u64>"
        );
        errors.add(Error::new_spanned(&signature.inputs, message));
    }
    errors.0.map_or(Ok(parameters), Err)
}

struct Errors(Option<Error>);

impl Errors {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn refuse(&mut self, at: Option<impl quote::ToTokens>, message: &str) {
        if let Some(at) = at {
            self.add(Error::new_spanned(at, message));
        }
    }
}

fn check_qualifiers(signature: &Signature, errors: &mut Errors) {
    let generics = &signature.generics;
    errors.refuse(
        (!generics.params.is_empty()).then_some(&generics.params),
        "a kernel is not generic: the host finds it by name; write a generic function and one \
         kernel per type that calls it",
    );
    errors.refuse(
        generics.where_clause.as_ref(),
        "a kernel has no where clause",
    );
    errors.refuse(signature.asyncness.as_ref(), "a kernel is not async");
    errors.refuse(signature.constness.as_ref(), "a kernel is not const");
    errors.refuse(
        signature.abi.as_ref(),
        "#[kernel] chooses the ABI; remove `extern`",
    );
    errors.refuse(
        signature.variadic.as_ref(),
        "a kernel has a fixed number of parameters",
    );
    errors.refuse(
        matches!(signature.safety, Safety::Unsafe(_)).then_some(&signature.safety),
        "a kernel is not unsafe: the host launches it with handles that are safe to use; put an \
         unsafe block with its proof into the body",
    );
}

fn parameter(input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(
            input,
            "a kernel is a free function, without self",
        ));
    };
    if let Some(attribute) = typed.attrs.first() {
        return Err(Error::new_spanned(
            attribute,
            "a kernel's parameters have no attributes",
        ));
    }
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new_spanned(
            &typed.pat,
            "a kernel's parameter is a plain name",
        ));
    };
    if pattern.by_ref.is_some() || pattern.subpat.is_some() {
        return Err(Error::new_spanned(
            pattern,
            "a kernel's parameter is a plain name",
        ));
    }
    check_type(&typed.ty)?;
    Ok(Parameter {
        mutability: pattern.mutability,
        name: pattern.ident.clone(),
        ty: Type::clone(&typed.ty),
    })
}

/// Refuses the types that would compile to something wrong: a reference becomes a load that
/// the hardware may serve from a cache which nobody invalidates, tuples and enums have no
/// defined layout. The rest is `KernelParam`'s business.
fn check_type(ty: &Type) -> Result<()> {
    let problem = match ty {
        Type::Reference(_) | Type::Slice(_) => {
            "a reference promises that nobody else writes, which no kernel can promise; pass \
             Global<T> to read, DisjointSlice<T> to write, Array<T> for data on SSDs"
        }
        Type::Ptr(_) => {
            "a raw pointer has no length; pass Global<T> to read or DisjointSlice<T> to write"
        }
        Type::Tuple(_) => "a tuple has no defined layout; pass its fields one by one",
        Type::Array(_) => "an array would be copied by every thread; pass a Global<T>",
        Type::Path(path)
            if path
                .path
                .segments
                .last()
                .is_some_and(|last| last.ident == "Option") =>
        {
            "an Option has no defined layout; pass a value that means none, or a second kernel"
        }
        Type::ImplTrait(_) | Type::TraitObject(_) | Type::FnPtr(_) | Type::Infer(_) => {
            "a kernel's parameters have concrete types: scalars and handles"
        }
        _ => return Ok(()),
    };
    Err(Error::new(ty.span(), problem))
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn refused(signature: Signature) -> String {
        let errors = parameters(&signature).err().into_iter().flatten();
        errors
            .map(|error| error.to_string())
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn scalars_and_handles_are_taken_with_their_mut() {
        let signature = parse_quote!(fn k(a: Array<u32>, mut b: DisjointSlice<u64>, n: u64));
        let parameters = parameters(&signature).unwrap();
        let shown = |p: &Parameter| (p.name.to_string(), p.mutability.is_some());
        let shown: Vec<_> = parameters.iter().map(shown).collect();
        assert_eq!(
            shown,
            [("a".into(), false), ("b".into(), true), ("n".into(), false)]
        );
    }

    #[test]
    fn each_wrong_parameter_says_what_to_pass_instead() {
        assert!(refused(parse_quote!(fn k(a: &[u32]))).contains("Global<T> to read"));
        assert!(refused(parse_quote!(fn k(a: &mut u32))).contains("DisjointSlice<T> to write"));
        assert!(refused(parse_quote!(fn k(a: *mut u32))).contains("no length"));
        assert!(refused(parse_quote!(fn k(a: (u32, u64)))).contains("one by one"));
        assert!(refused(parse_quote!(fn k(a: Option<u32>))).contains("Option"));
        assert!(refused(parse_quote!(fn k(a: [u32; 4]))).contains("copied by every thread"));
        assert!(refused(parse_quote!(fn k(self))).contains("without self"));
        assert!(refused(parse_quote!(fn k((a, b): Pair))).contains("plain name"));
        let many = parse_quote!(fn k(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8,
            i: u8, j: u8, k: u8, l: u8, m: u8));
        assert!(refused(many).contains("at most 12"));
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let errors = refused(parse_quote!(async unsafe extern "C" fn k<T>(a: &T) where T: Copy));
        for problem in ["generic", "where", "async", "unsafe", "extern", "reference"] {
            assert!(errors.contains(problem), "{problem}: {errors}");
        }
    }
}
