//! Golden PTX: what the compiler must and must not emit.
