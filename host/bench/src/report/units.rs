//! Numbers with their units, three significant digits.

/// A count with a decimal prefix: 1.23 M.
pub(crate) fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", " k", " M", " G", " T"])
}

/// A size with a binary prefix: 4 KiB.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// A duration: 12.3 µs.
pub(crate) fn seconds(value: f64) -> String {
    if value >= 1.0 {
        scaled(value, f64::INFINITY, &[" s"])
    } else {
        scaled(value * 1e9, 1000.0, &[" ns", " µs", " ms", " s"])
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut scaled = value;
    let mut unit = 0;
    // What would be rounded up to the next unit is shown in that unit.
    while scaled >= step - 0.5 && unit + 1 < units.len() {
        scaled /= step;
        unit += 1;
    }
    let decimals = if scaled.fract() == 0.0 || scaled >= 99.95 {
        0
    } else if scaled >= 9.995 {
        1
    } else {
        2
    };
    format!("{scaled:.decimals$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (1234.0, "1.23 k"),
            (61_500_000.0, "61.5 M"),
            (999_900.0, "1.00 M"),
            (2e15, "2000 T"),
        ] {
            assert_eq!(count(value), text);
        }
        for (value, text) in [
            (512.0, "512 B"),
            (4096.0, "4 KiB"),
            (1.5 * 1048576.0, "1.50 MiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in [
            (5e-9, "5 ns"),
            (1.234e-5, "12.3 µs"),
            (0.0125, "12.5 ms"),
            (1.5, "1.50 s"),
            (150.0, "150 s"),
        ] {
            assert_eq!(seconds(value), text);
        }
    }
}
