//! Where `unsafe` may stand: in the rooms listed here, in files that say why.
//!
//! The compiler denies it elsewhere too, but a module can opt out of a lint; it cannot opt out
//! of this list.

use super::Problem;
use super::source::Source;

/// Beginnings of the paths that may hold `unsafe`.
const ROOMS: [&str; 8] = [
    // Intrinsics, asm, the coroutine switch of the host runner.
    "device/simt/src/",
    // Kernel entries, and the macro that writes them.
    "device/kernels/src/",
    "device/macros/src/",
    // Raw access of Array and Store to the lines.
    "device/src/",
    // CUDA calls.
    "host/src/",
    // mmap and ioctls.
    "driver-vfio/src/",
    // The emulated controller reaches the memory of others by address, as DMA does.
    "device/nvme-model/src/",
    // Taking a queue from the addresses that the host laid out.
    "device/nvme-queue/src/desc",
];

/// What a file with `unsafe`, or the file of the module around it, begins with.
const SENTENCE: &str = "// UNSAFETY:";

/// Checks every file.
pub fn check(sources: &[Source]) -> Vec<Problem> {
    sources
        .iter()
        .filter_map(|source| check_file(source, sources))
        .collect()
}

fn check_file(source: &Source, all: &[Source]) -> Option<Problem> {
    let first = source.words("unsafe").find(|at| !source.in_test(*at))?;
    let allowed = ROOMS.iter().any(|room| source.path.starts_with(room));
    // A module that opts out of the lint does so for the modules in it, and says why once.
    let parent = parent_files(&source.path);
    let around = all.iter().filter(|other| parent.contains(&other.path));
    let text = if !allowed {
        "`unsafe` outside the rooms that may hold it (xtask/src/tidy/unsafety.rs)".to_owned()
    } else if !std::iter::once(source).chain(around).any(explains) {
        format!("`unsafe` without a `{SENTENCE}` sentence, here or in the module's file, why")
    } else {
        return None;
    };
    Some(Problem::new(source.place(first), text))
}

fn explains(source: &Source) -> bool {
    source
        .text
        .lines()
        .any(|line| line.trim_start().starts_with(SENTENCE))
}

/// The files that may hold the module in which a file is one: `a/mod.rs` and `a.rs` for
/// `a/b.rs`.
fn parent_files(path: &str) -> [String; 2] {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    [format!("{folder}/mod.rs"), format!("{folder}.rs")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(path: &str, text: &str) -> Option<String> {
        check(&[Source::new(path, text)])
            .first()
            .map(ToString::to_string)
    }

    #[test]
    fn unsafe_needs_a_room_and_a_sentence() {
        let bare = "//! A file.\nunsafe fn a() {}\n";
        let said = "//! A file.\n// UNSAFETY: calls CUDA.\nunsafe fn a() {}\n";
        assert!(verdict("host/src/cuda.rs", said).is_none());
        assert!(
            verdict("host/src/cuda.rs", bare)
                .unwrap()
                .contains("UNSAFETY")
        );
        assert!(
            verdict("host/bench/src/main.rs", said)
                .unwrap()
                .contains("outside")
        );
        assert!(verdict("device/nvme-queue/src/sq.rs", said).is_some());
        assert!(verdict("device/nvme-queue/src/desc.rs", said).is_none());
    }

    #[test]
    fn a_module_speaks_for_the_files_in_it() {
        let bare = || Source::new("host/src/cuda/stream.rs", "unsafe fn a() {}\n");
        let said = |path| Source::new(path, "// UNSAFETY: calls CUDA.\n");
        assert!(check(&[bare(), said("host/src/cuda/mod.rs")]).is_empty());
        assert!(check(&[bare(), said("host/src/cuda.rs")]).is_empty());
        assert_eq!(check(&[bare(), said("host/src/lib.rs")]).len(), 1);
    }

    #[test]
    fn talk_about_unsafe_is_not_unsafe() {
        let talk = "//! No unsafe here.\n#![forbid(unsafe_code)]\nfn a() { b(\"unsafe\") }\n";
        assert!(verdict("xtask/src/a.rs", talk).is_none());
    }

    #[test]
    fn an_attribute_counts() {
        assert!(verdict("xtask/src/a.rs", "#[unsafe(no_mangle)]\nfn a() {}\n").is_some());
    }
}
