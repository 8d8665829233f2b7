//! Programs in `cases` that the device API forbids: each must fail to compile, with the message in
//! the `.stderr` file beside it.
//!
//! `legal` must compile. It uses what the others misuse, so that none of them fails for a reason
//! that is not its own; and since it must be *built*, the others are too, not only checked: the
//! size of an element is known when code is generated for it.
//!
//! The messages are those of one compiler. With another one than `rust-toolchain.toml` names,
//! nothing is compared, which is said aloud.

use std::process::Command;

const PINNED: &str = include_str!("../../rust-toolchain.toml");

#[test]
fn forbidden_programs_do_not_compile() {
    let compiler = compiler();
    let pinned = format!("channel = \"{compiler}\"");
    if !PINNED.contains(&pinned) {
        eprintln!("SKIPPED: rustc {compiler} is not the pinned one, its messages may differ");
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.pass("cases/legal.rs");
    cases.compile_fail("cases/*_fail.rs");
}

/// The compiler's version, as in `1.95.0`.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').nth(1).unwrap().to_owned()
}
