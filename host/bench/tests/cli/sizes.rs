//! `warpstore-size`, from the outside.

use std::process::Command;

fn run(line: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_warpstore-size"))
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_testbed_is_sized() {
    let (status, stdout, stderr) = run("--ssd 980pro --target 26GB/s --line 512");
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    for words in [
        "50.8 M/s",
        "68 × Samsung 980 Pro",
        "16454, 242 each SSD; latency 324 µs at full load",
        "2 of 16 PCIe lanes",
    ] {
        assert!(stdout.contains(words), "{words} in:\n{stdout}");
    }
}

#[test]
fn a_wrong_line_is_one_sentence_and_status_2_and_help_is_no_error() {
    let (status, stdout, stderr) = run("--ssd 980pro --target fast");
    assert_eq!((status, stdout.as_str()), (Some(2), ""));
    assert_eq!(
        stderr,
        "error: --target fast: it must be a number of GB/s or MB/s, such as 26GB/s\n"
    );
    let (status, stdout, _) = run("--help");
    assert_eq!(status, Some(0));
    assert!(stdout.contains("cargo xtask size"), "{stdout}");
}
