//! The types that elements of an array have.

use std::any::TypeId;
use std::fmt;
use std::str::FromStr;

/// A type of elements. Values are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "Rust's names for the same types")]
pub enum ElementType {
    U8 = 1,
    U16 = 2,
    U32 = 3,
    U64 = 4,
    U128 = 5,
    I8 = 6,
    I16 = 7,
    I32 = 8,
    I64 = 9,
    I128 = 10,
    F32 = 11,
    F64 = 12,
}

/// Each type with its name and its size in bytes.
const TYPES: [(ElementType, &str, u64); 12] = [
    (ElementType::U8, "u8", 1),
    (ElementType::U16, "u16", 2),
    (ElementType::U32, "u32", 4),
    (ElementType::U64, "u64", 8),
    (ElementType::U128, "u128", 16),
    (ElementType::I8, "i8", 1),
    (ElementType::I16, "i16", 2),
    (ElementType::I32, "i32", 4),
    (ElementType::I64, "i64", 8),
    (ElementType::I128, "i128", 16),
    (ElementType::F32, "f32", 4),
    (ElementType::F64, "f64", 8),
];

impl ElementType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        TYPES[self as usize - 1].2
    }

    /// The type with this number in a superblock.
    pub fn from_code(code: u32) -> Option<Self> {
        let index = (code as usize).checked_sub(1)?;
        TYPES.get(index).map(|&(element, ..)| element)
    }

    /// The element type that `T` is, if it is one of them and not plain data of another type.
    pub fn of<T: 'static>() -> Option<Self> {
        let types = [
            (TypeId::of::<u8>(), Self::U8),
            (TypeId::of::<u16>(), Self::U16),
            (TypeId::of::<u32>(), Self::U32),
            (TypeId::of::<u64>(), Self::U64),
            (TypeId::of::<u128>(), Self::U128),
            (TypeId::of::<i8>(), Self::I8),
            (TypeId::of::<i16>(), Self::I16),
            (TypeId::of::<i32>(), Self::I32),
            (TypeId::of::<i64>(), Self::I64),
            (TypeId::of::<i128>(), Self::I128),
            (TypeId::of::<f32>(), Self::F32),
            (TypeId::of::<f64>(), Self::F64),
        ];
        let mut types = types.into_iter();
        types.find_map(|(id, element)| (id == TypeId::of::<T>()).then_some(element))
    }

    /// The names of all types, for messages.
    pub fn names() -> String {
        TYPES.map(|(_, name, _)| name).join(", ")
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TYPES[*self as usize - 1].1)
    }
}

impl FromStr for ElementType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = TYPES.iter().find(|(_, name, _)| *name == text);
        found.map(|&(element, ..)| element).ok_or_else(|| {
            format!(
                "'{text}' is no element type; use one of {}",
                ElementType::names()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_names_and_rust_types_agree() {
        for (index, (element, name, bytes)) in TYPES.into_iter().enumerate() {
            assert_eq!(element as usize, index + 1);
            assert_eq!(ElementType::from_code(element as u32), Some(element));
            assert_eq!(name.parse(), Ok(element));
            assert_eq!(
                (element.to_string(), element.bytes()),
                (name.to_owned(), bytes)
            );
        }
        assert_eq!(ElementType::from_code(0), None);
        assert_eq!(ElementType::from_code(13), None);
        assert_eq!(ElementType::of::<f64>(), Some(ElementType::F64));
        assert_eq!(ElementType::of::<[u32; 2]>(), None);
        assert!("u31".parse::<ElementType>().is_err());
    }
}
