//! The one call of cargo that turns a library crate into PTX.
//!
//! Each flag is there because its absence was seen to break something; the reasons are beside
//! them. They are given here and not in the workspace's profile, which the host shares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::Toolchain;
use crate::{Arch, BuildError, PtxVersion};

const TARGET: &str = "nvptx64-nvidia-cuda";
/// How much of a failed cargo's output an error shows, in lines.
const TAIL: usize = 60;

/// What the compiler left.
pub struct Compiled {
    /// The PTX as it came.
    pub text: String,
    /// Every file of the workspace that it was made from.
    pub sources: Vec<PathBuf>,
}

/// Compiles the crate, whose library is called `library`.
pub fn run(
    kernel_crate: &Path,
    library: &str,
    arch: Arch,
    version: PtxVersion,
    target_dir: &Path,
) -> Result<Compiled, BuildError> {
    fs::create_dir_all(target_dir).map_err(|source| BuildError::Io {
        path: target_dir.to_path_buf(),
        source,
    })?;
    let target_dir = std::path::absolute(target_dir).map_err(|source| BuildError::Io {
        path: target_dir.to_path_buf(),
        source,
    })?;
    let release = target_dir.join(TARGET).join("release");
    // The place where cargo expects the linked library: it then sees that nothing is to do.
    let text_path = release.join("deps").join(format!("{library}.ptx"));

    let mut cargo = Toolchain::find()?.cargo();
    cargo
        .arg("rustc")
        .arg("--manifest-path")
        .arg(kernel_crate.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_dir);
    add_flags(&mut cargo, arch, version);
    let mut emit = std::ffi::OsString::from("--emit=asm=");
    emit.push(&text_path);
    cargo.arg("--").arg(emit);
    // There is no linker to be called: after fat LTO the assembly is the whole program. Not in
    // RUSTFLAGS, where it would break core.
    cargo.arg("-Zno-link");
    // What `#[kernel]` expands to needs these; passed here, kernel crates are free of them.
    cargo.arg("-Zcrate-attr=feature(abi_ptx, asm_experimental_arch)");

    let output = cargo.output().map_err(|error| BuildError::Start {
        program: cargo.get_program().into(),
        reason: error.to_string(),
    })?;
    if !output.status.success() {
        let tail = last_lines(&String::from_utf8_lossy(&output.stderr), TAIL);
        return Err(BuildError::Compile {
            kernel_crate: kernel_crate.to_path_buf(),
            tail,
        });
    }
    let read =
        |path: PathBuf| fs::read_to_string(&path).map_err(|source| BuildError::Io { path, source });
    let text = read(text_path)?;
    let sources = dependencies(&read(release.join(format!("{library}.d")))?);
    Ok(Compiled { text, sources })
}

fn add_flags(cargo: &mut Command, arch: Arch, version: PtxVersion) {
    // A library in its manifest, since a cdylib would break `cargo build` of the host: without
    // std it has no panic handler there.
    cargo.args([
        "--lib",
        "--release",
        "--crate-type",
        "cdylib",
        "--target",
        TARGET,
    ]);
    cargo.arg("-Zbuild-std=core");
    let profile = [
        "panic=\"abort\"",
        // One unit: calls between crates are inlined, unused code is gone.
        "lto=\"fat\"",
        "codegen-units=1",
        "opt-level=3",
        "overflow-checks=false",
        "debug-assertions=false",
        // Rust lines for profilers; a fuller setting makes ptxas compile for debugging.
        "debug=\"line-directives-only\"",
    ];
    for setting in profile {
        cargo
            .arg("--config")
            .arg(format!("profile.release.{setting}"));
    }
    let flags = [
        // Jump threading copies barriers and votes into both arms of a branch.
        "-Zmir-enable-passes=-JumpThreading".to_owned(),
        "-Cjump-tables=no".to_owned(),
        // Derived accessors of other crates stay calls otherwise.
        "-Zcross-crate-inline-threshold=always".to_owned(),
        format!("-Ctarget-cpu=sm_{}", arch.number()),
        format!("-Ctarget-feature=+ptx{}{}", version.major, version.minor),
    ];
    cargo.env("RUSTFLAGS", flags.join(" "));
    // Stable toolchains refuse -Z without it. It reaches this one call only.
    cargo.env("RUSTC_BOOTSTRAP", "1");
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The files in a makefile rule as cargo writes it: `target: file file`, spaces as `\ `.
fn dependencies(rule: &str) -> Vec<PathBuf> {
    let files = rule
        .lines()
        .next()
        .and_then(|line| line.split_once(": "))
        .unwrap_or_default()
        .1;
    let mut names = vec![String::new()];
    let mut chars = files.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, names.last_mut()) {
            ('\\', Some(name)) if chars.peek() == Some(&' ') => name.extend(chars.next()),
            (' ', _) => names.push(String::new()),
            (c, Some(name)) => name.push(c),
            (_, None) => {}
        }
    }
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_with_spaces_are_whole() {
        let rule = "/t/k.ptx: /a/lib.rs /with\\ space/x.rs\n\n/a/lib.rs:\n";
        let expected = [
            PathBuf::from("/a/lib.rs"),
            PathBuf::from("/with space/x.rs"),
        ];
        assert_eq!(dependencies(rule), expected);
        assert!(dependencies("").is_empty());
    }

    #[test]
    fn a_tail_is_the_end() {
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
    }
}
