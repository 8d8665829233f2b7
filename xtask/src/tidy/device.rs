//! What device code may not use: everything under `device/` also builds for the GPU.
//!
//! There the standard library does not exist, and rustc's atomics lose orderings and scopes
//! (docs/decisions.md), so `simt` has its own. Tests, the two host tools among the crates, and
//! what stands under `#[cfg(not(target_arch = "nvptx64"))]` (an item, or a module with its
//! files) are ordinary host code.

use super::Problem;
use super::source::Source;

/// Crates under `device/` that are host tools.
const TOOLS: [&str; 2] = ["device/builder/", "device/macros/"];

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

/// Checks every file under `device/`.
pub fn check(sources: &[Source]) -> Vec<Problem> {
    let host_modules: Vec<String> = sources.iter().flat_map(Source::host_modules).collect();
    let is_host = |path: &str| {
        host_modules.iter().any(|module| {
            let rest = path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    let on_device = sources.iter().filter(|source| {
        source.path.starts_with("device/")
            && !TOOLS.iter().any(|tool| source.path.starts_with(tool))
            && !is_host(&source.path)
    });
    on_device.flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Problem> {
    let found = BANNED.iter().flat_map(|(name, why)| {
        let words = source.words(name);
        let device = words.filter(|at| !source.in_test(*at) && !source.is_host_only(*at));
        device.map(move |at| Problem::new(source.place(at), format!("`{name}`: device code {why}")))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[Source::new(path, text)]).len()
    }

    #[test]
    fn device_code_is_held_to_it_and_others_are_not() {
        for (name, _) in BANNED {
            let text = format!("//! std:: in words is fine.\n{name} ;\n");
            assert!(problems("device/nvme-queue/src/sq.rs", &text) > 0, "{name}");
            assert!(problems("device/simt/src/cell.rs", &text) > 0, "{name}");
            assert_eq!(problems("device/builder/src/lib.rs", &text), 0, "{name}");
            assert_eq!(problems("host/src/lib.rs", &text), 0, "{name}");
        }
    }

    #[test]
    fn host_modules_are_free_and_their_neighbours_are_not() {
        let lib = "#[cfg(not(target_arch = \"nvptx64\"))]\nmod media;\nmod medias;\n";
        let sources = ["lib.rs", "media.rs", "media/file.rs", "medias.rs"].map(|file| {
            let text = if file == "lib.rs" {
                lib
            } else {
                "use std::fs;\n"
            };
            Source::new(&format!("device/nvme-model/src/{file}"), text)
        });
        let problems: Vec<String> = check(&sources).into_iter().map(|p| p.place).collect();
        assert_eq!(problems, ["device/nvme-model/src/medias.rs:1"]);
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
