//! Values of options: each parser says what it would have taken.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// Longest `--timeout`: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// A whole number from `low` to `high`.
pub fn within<T: FromStr + PartialOrd + Display + Copy>(
    low: T,
    high: T,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let value = text
            .parse()
            .ok()
            .filter(|value| (low..=high).contains(value));
        value.ok_or_else(|| format!("it must be a whole number from {low} to {high}"))
    }
}

/// Any whole number of 64 bits.
pub fn number(text: &str) -> Result<u64, String> {
    within(0, u64::MAX)(text)
}

/// A size that is a power of two from `low` to `high`.
pub fn power_of_two(low: u64, high: u64) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let value =
            bytes(text).filter(|value| value.is_power_of_two() && (low..=high).contains(value));
        value.ok_or_else(|| format!("it must be a power of two from {low} to {high}"))
    }
}

/// A size in bytes, at least 1.
pub fn size(text: &str) -> Result<u64, String> {
    let value = bytes(text).filter(|&value| value > 0);
    value.ok_or_else(|| "it must be a number of bytes, such as 65536, 64K or 8G".to_owned())
}

/// A number with an optional K, M, G or Ki, Mi, Gi: either way a power of 1024, as sizes of
/// memory and blocks are meant.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" | "Ki" => 1 << 10,
        "M" | "Mi" => 1 << 20,
        "G" | "Gi" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// A time in seconds, fractions allowed.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let value = text
        .parse::<f64>()
        .ok()
        .filter(|value| *value > 0.0 && *value <= MAX_SECONDS);
    value
        .and_then(|value| Duration::try_from_secs_f64(value).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("it must be a number of seconds above 0, at most {MAX_SECONDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_binary_suffixes() {
        assert_eq!(bytes("512"), Some(512));
        assert_eq!(bytes("4K"), Some(4096));
        assert_eq!(bytes("4Ki"), Some(4096));
        assert_eq!(bytes("3M"), Some(3 << 20));
        assert_eq!(bytes("8Gi"), Some(8 << 30));
        for text in [
            "",
            "K",
            "4k",
            "4KB",
            "-4K",
            "4 K",
            "1.5G",
            "99999999999999G",
            "4T",
            "+",
            "\u{661}",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_may_be_fractions() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "NaN", "inf", "1e9", "1e-30", "", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = (bytes(&text), seconds(&text), number(&text), power_of_two(2, 64)(&text));
        }
    }
}
