//! What device code may not use: everything under `device/` also builds for the GPU.
//!
//! There the standard library does not exist, and rustc's atomics lose orderings and scopes
//! (docs/decisions.md), so `simt` has its own. The host tools among the crates, and simt's
//! host side, are ordinary programs.

use super::Problem;
use super::source::Source;

/// Paths under `device/` that never reach a GPU.
const HOST_SIDE: [&str; 3] = ["device/builder/", "device/macros/", "device/simt/src/host"];

/// What must not be named outside tests, and why.
const BANNED: [(&str, &str); 4] = [
    (
        "core::sync::atomic",
        "takes simt's cells: rustc's atomics lose scope and order on a GPU",
    ),
    ("std::", "has no standard library on a GPU"),
    ("extern crate std", "has no standard library on a GPU"),
    ("extern crate alloc", "does not allocate"),
];

/// Checks one file.
pub fn check(source: &Source) -> Vec<Problem> {
    let on_device = source.path.starts_with("device/")
        && !HOST_SIDE
            .iter()
            .any(|prefix| source.path.starts_with(prefix));
    if !on_device {
        return Vec::new();
    }
    let found = BANNED.iter().flat_map(|(name, why)| {
        let product = source.words(name).filter(|at| !source.in_test(*at));
        product
            .map(move |at| Problem::new(source.place(at), format!("`{name}`: device code {why}")))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn device_code_is_held_to_it_and_others_are_not() {
        for (name, _) in BANNED {
            let text = format!("//! std:: in words is fine.\n{name} ;\n");
            assert!(problems("device/nvme-queue/src/sq.rs", &text) > 0, "{name}");
            assert!(problems("device/simt/src/cell.rs", &text) > 0, "{name}");
            assert_eq!(problems("device/simt/src/host/warp.rs", &text), 0, "{name}");
            assert_eq!(problems("device/builder/src/lib.rs", &text), 0, "{name}");
            assert_eq!(problems("host/src/lib.rs", &text), 0, "{name}");
        }
    }

    #[test]
    fn tests_of_device_code_are_host_programs() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::vec;\n}\n";
        assert_eq!(problems("device/nvme-queue/src/sq.rs", text), 0);
        assert_eq!(
            problems("device/nvme-queue/tests/ring.rs", "use std::vec;\n"),
            0
        );
    }
}
