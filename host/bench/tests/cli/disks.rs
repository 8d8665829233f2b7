//! Disks that are full or may not be written, in a mount namespace of the test's own.

use std::fs;
use std::process::Command;

use crate::{Ended, Folder, email_graph, skip};

/// Runs the binary with a small file system of its own at `disk`, mounted with `options`, and
/// lists what is on it afterwards, one name a line, at the end of stdout. `None` if this machine
/// lets nobody mount.
fn run_on_disk(folder: &Folder, options: &str, line: &str) -> Option<Ended> {
    let bench = folder.command(line);
    let _ = fs::create_dir(folder.path("disk"));
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.current_dir(folder.path(""));
        command
    };
    let mount = format!("mount -t tmpfs -o {options} tmpfs disk");
    if !unshared(&mount)
        .status()
        .is_ok_and(|status| status.success())
    {
        return None;
    }
    let script = format!(r#"{mount} || exit 99; "$0" "$@"; status=$?; ls -A disk; exit $status"#);
    let mut command = unshared(&script);
    command.arg(bench.get_program()).args(bench.get_args());
    Some(folder.end(command))
}

#[test]
fn a_disk_that_cannot_take_a_file_ends_with_status_1() {
    let email = email_graph();
    let email = email.display();
    for (options, line, file) in [
        // One file of 1.4 MB; then three, of which the first two fit.
        (
            "size=64k",
            format!("cc --graph {email} --ssd model:ideal,media=disk/m.img"),
            "disk/m.img",
        ),
        (
            "size=1200k",
            format!("cc --graph {email} --ssds 3 --ssd model:ideal,media=disk/m.img"),
            "disk/m.img.2",
        ),
        (
            "ro",
            "cc --graph g.el --ssd model:ideal,media=disk/m.img".to_owned(),
            "disk/m.img",
        ),
        (
            "ro",
            "cc --graph g.el --json disk/r.json".to_owned(),
            "disk/r.json",
        ),
        (
            "nr_inodes=1",
            "cc --graph g.el --json disk/r.json".to_owned(),
            "disk/r.json",
        ),
    ] {
        let folder = Folder::with_graph();
        let Some(ended) = run_on_disk(&folder, options, &line) else {
            return skip("this machine lets no user mount a file system of their own");
        };
        assert_eq!(ended.status, Some(1), "{line}: {}", ended.stderr);
        assert!(ended.message().contains(file), "{line}: {}", ended.stderr);
        let last = ended.stdout.lines().last().unwrap_or_default();
        assert!(
            !["m.img", ".partial", "json"]
                .iter()
                .any(|left| last.contains(left)),
            "{line} leaves {last}"
        );
    }
}
