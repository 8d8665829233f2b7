//! Elements that are not plain data: not every value is one, some bytes are none, or they point.

use warpstore_device::prelude::*;

/// Has seven bytes of padding.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Padded {
    weight: u64,
    kind: u8,
}

#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::Immutable, zerocopy::IntoBytes)]
#[repr(C)]
pub struct PaddedButDerived {
    weight: u64,
    kind: u8,
}

pub fn padded(array: Array<Padded>) -> Result<Padded, IoError> {
    array.get(0)
}

pub fn boolean(array: Array<bool>) -> Result<bool, IoError> {
    array.get(0)
}

pub fn reference(array: Array<&'static u32>) -> Result<&'static u32, IoError> {
    array.get(0)
}

pub fn text(array: Array<String>) -> Result<String, IoError> {
    array.get(0)
}

fn main() {}
