//! Architectures and versions of the PTX language.

use std::fmt;
use std::str::FromStr;

use crate::BuildError;

/// A virtual GPU architecture. PTX for one runs on every newer GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// A100.
    Compute80,
    /// RTX 30 and A40.
    Compute86,
    /// RTX 40 and L40.
    Compute89,
    /// H100 and H200.
    Compute90,
    /// B200.
    Compute100,
    /// RTX 50.
    Compute120,
}

impl Arch {
    /// All of them, oldest first.
    pub const ALL: [Self; 6] = [
        Self::Compute80,
        Self::Compute86,
        Self::Compute89,
        Self::Compute90,
        Self::Compute100,
        Self::Compute120,
    ];

    /// Compute capability times ten.
    pub const fn number(self) -> u32 {
        match self {
            Self::Compute80 => 80,
            Self::Compute86 => 86,
            Self::Compute89 => 89,
            Self::Compute90 => 90,
            Self::Compute100 => 100,
            Self::Compute120 => 120,
        }
    }

    /// PTX 8.2 (driver 535 and newer), the first with `st.mmio`, or the first version that
    /// knows the architecture (PTX ISA, "Release Notes").
    pub const fn default_ptx_version(self) -> PtxVersion {
        match self {
            Self::Compute80 | Self::Compute86 | Self::Compute89 | Self::Compute90 => {
                PtxVersion { major: 8, minor: 2 }
            }
            Self::Compute100 => PtxVersion { major: 8, minor: 6 },
            Self::Compute120 => PtxVersion { major: 8, minor: 7 },
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compute_{}", self.number())
    }
}

impl FromStr for Arch {
    type Err = BuildError;

    /// Reads `compute_80`, or `sm_80` for the same.
    fn from_str(text: &str) -> Result<Self, BuildError> {
        let digits = text
            .strip_prefix("compute_")
            .or_else(|| text.strip_prefix("sm_"));
        let number = digits.and_then(|digits| digits.parse().ok());
        Self::ALL
            .into_iter()
            .find(|arch| Some(arch.number()) == number)
            .ok_or_else(|| BuildError::UnknownArch(text.to_owned()))
    }
}

/// A version of the PTX language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PtxVersion {
    /// The number before the point.
    pub major: u32,
    /// The number after it, one digit.
    pub minor: u32,
}

impl fmt::Display for PtxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse::<Arch>().unwrap(), arch);
        }
        assert_eq!("sm_90".parse::<Arch>().unwrap(), Arch::Compute90);
        let message = "sm_30".parse::<Arch>().unwrap_err().to_string();
        assert!(
            message.contains("sm_30") && message.contains("compute_80"),
            "{message}"
        );
    }
}
