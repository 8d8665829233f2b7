//! What the NVMe specification says: registers, commands, completions, identify pages.
//!
//! Section numbers cite the NVM Express Base Specification 2.0 ("Base") and the NVM Command Set
//! Specification 1.0 ("NVM"), both at <https://nvmexpress.org/specifications/>.
//!
//! Conventions, the same in every file:
//! - Fields that the specification counts from zero keep their raw value and end in `_z`.
//! - Sets that the specification may extend (opcodes, statuses, features) are open: a newtype
//!   with constants, so that unknown values survive and can be reported.
//! - Names are the specification's. Structures are little-endian in memory, like every machine
//!   that this crate builds for.
//!
//! This crate encodes and decodes. It keeps no state, touches no shared memory and decides
//! nothing. The submitter and the emulated controller share nothing else about NVMe.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod admin;
pub mod cqe;
pub mod identify;
pub mod regs;
pub mod sqe;
pub mod status;

pub use cqe::Cqe;
pub use sqe::Sqe;
pub use status::Status;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "NVMe structures are little-endian"
);

/// Defines an open set: a newtype whose named values are constants and whose unknown values are
/// kept.
macro_rules! open_set {
    ($(#[$doc:meta])* $name:ident($raw:ty) { $($(#[$value_doc:meta])* $value:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub $raw);

        impl $name {
            $($(#[$value_doc])* pub const $value: Self = Self($number);)*

            /// The constant's name, or `"unknown"`.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($value),)*
                    _ => "unknown",
                }
            }
        }
    };
}
pub(crate) use open_set;
