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
