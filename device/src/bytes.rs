//! Elements as bits: how a register becomes a `T`.

use warpstore_simt::{Device, NativeBytes};
use zerocopy::IntoBytes;

use crate::array::Element;

/// Loads the element at byte `offset` by one access; its bits in the low bits of the result.
/// `offset` is a multiple of the element's size.
#[inline(always)]
pub(crate) fn load<T: Element>(memory: NativeBytes<Device>, offset: u64) -> [u64; 2] {
    match size_of::<T>() {
        1 => [u64::from(memory.load_u8(offset)), 0],
        2 => [u64::from(memory.load_u16(offset)), 0],
        4 => [u64::from(memory.load_u32(offset)), 0],
        8 => [memory.load_u64(offset), 0],
        _ => memory.load_u128(offset),
    }
}

/// Stores the element with these bits at byte `offset` by one access. `offset` is a multiple of the
/// element's size.
#[inline(always)]
pub(crate) fn store<T: Element>(memory: NativeBytes<Device>, offset: u64, bits: [u64; 2]) {
    match size_of::<T>() {
        1 => memory.store_u8(offset, bits[0] as u8),
        2 => memory.store_u16(offset, bits[0] as u16),
        4 => memory.store_u32(offset, bits[0] as u32),
        8 => memory.store_u64(offset, bits[0]),
        _ => memory.store_u128(offset, bits),
    }
}

/// The bits of an element: its bytes, little-endian, and zeros.
#[inline(always)]
pub(crate) fn to_bits<T: Element>(value: T) -> [u64; 2] {
    let mut bits = [0; 2];
    // At most 16 bytes, as in `from_bits`; the write of a larger one would be none.
    let _ = value.write_to_prefix(bits.as_mut_bytes());
    bits
}

/// The element of the 16 bytes `chunk` that begins with byte `byte`, a multiple of its size.
#[inline(always)]
pub(crate) fn element<T: Element>(chunk: [u64; 2], byte: u64) -> T {
    if size_of::<T>() == 16 {
        return from_bits(chunk);
    }
    let word = if byte < 8 { chunk[0] } else { chunk[1] };
    from_bits([word >> ((byte & 7) * 8), 0])
}

/// The element whose bytes are the low bytes of `bits`, little-endian.
#[inline(always)]
pub(crate) fn from_bits<T: Element>(bits: [u64; 2]) -> T {
    // `Element` sizes are at most 16 (checked where the array is first used), so the prefix is
    // there; zeroes stand in for a branch that the compiler removes.
    match T::read_from_prefix(bits.as_bytes()) {
        Ok((value, _)) => value,
        Err(_) => T::new_zeroed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_its_bits_again() {
        assert_eq!(to_bits(0x0102u16), [0x0102, 0]);
        assert_eq!(to_bits(-1i32), [0xFFFF_FFFF, 0]);
        assert_eq!(to_bits([3u64, 4]), [3, 4]);
        assert_eq!(from_bits::<f64>(to_bits(2.5f64)), 2.5);
    }

    #[test]
    fn an_element_comes_from_its_bytes() {
        let chunk = [0x0706_0504_0302_0100, 0x0F0E_0D0C_0B0A_0908];
        assert_eq!(element::<u8>(chunk, 9), 9);
        assert_eq!(element::<u16>(chunk, 6), 0x0706);
        assert_eq!(element::<u32>(chunk, 12), 0x0F0E_0D0C);
        assert_eq!(element::<u64>(chunk, 8), 0x0F0E_0D0C_0B0A_0908);
        assert_eq!(element::<[u64; 2]>(chunk, 0), chunk);
        assert_eq!(
            element::<f32>([u64::from(1.5f32.to_bits()) << 32, 0], 4),
            1.5
        );
    }
}
