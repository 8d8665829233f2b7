//! Media files: made, used again, refused, overwritten, and damaged while in use.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::{Folder, email_graph};

/// Bytes behind the blocks that say whose the file is.
const TRAILER: u64 = 4096;

#[test]
fn a_file_is_made_and_used_again() {
    let folder = Folder::with_graph();
    for _ in 0..2 {
        folder.succeed("cc --graph g.el --ssd model:ideal,media=m.img");
        assert_eq!(folder.names(), ["g.el", "m.img"]);
    }
    let blocks = fs::read(folder.path("m.img")).unwrap();
    assert_eq!(blocks.len() as u64 % 512, 0);
    // The destinations of `SMALL`, sorted by source, as they lie on the SSD.
    let edges = [1u32, 2, 3, 0, 5, 4, 6].map(u32::to_le_bytes).concat();
    assert!(blocks.starts_with(&edges));
    // A graph is imported anew: another one takes its place.
    folder.write("h.el", b"0 2\n2 0\n");
    folder.succeed("cc --graph h.el --ssd model:ideal,media=m.img");
    let edges = [2u32, 0].map(u32::to_le_bytes).concat();
    assert!(fs::read(folder.path("m.img")).unwrap().starts_with(&edges));
}

#[test]
fn three_ssds_have_three_files() {
    let folder = Folder::with_graph();
    for _ in 0..2 {
        folder.succeed("bfs --graph g.el --ssds 3 --ssd model:ideal,media=m.img");
        assert_eq!(folder.names(), ["g.el", "m.img.0", "m.img.1", "m.img.2"]);
    }
}

#[test]
fn a_foreign_file_is_refused_unless_told_otherwise() {
    let folder = Folder::with_graph();
    folder.write("m.img", b"hello");
    let line = "cc --graph g.el --ssd model:ideal,media=m.img";
    folder.fail(line, 1, &["m.img", "not made by warpstore"]);
    assert_eq!(fs::read(folder.path("m.img")).unwrap(), b"hello");
    folder.succeed(&format!("{line} --overwrite"));
    assert!(fs::metadata(folder.path("m.img")).unwrap().len() > TRAILER);
    folder.succeed(line);
}

#[test]
fn of_several_files_none_is_left_if_one_is_refused() {
    let folder = Folder::with_graph();
    folder.write("m.img.1", b"hello");
    let line = "cc --graph g.el --ssds 3 --ssd model:ideal,media=m.img";
    folder.fail(line, 1, &["m.img.1", "not made by warpstore"]);
    assert_eq!(folder.names(), ["g.el", "m.img.1"]);
}

#[test]
fn a_file_that_is_too_small_is_refused() {
    let folder = Folder::with_graph();
    folder.succeed("cc --graph g.el --ssd model:ideal,media=m.img");
    let before = fs::read(folder.path("m.img")).unwrap();
    let line = format!(
        "cc --graph {} --ssd model:ideal,media=m.img",
        email_graph().display()
    );
    folder.fail(&line, 1, &["m.img", "4096 bytes"]);
    assert_eq!(fs::read(folder.path("m.img")).unwrap(), before);
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let folder = Folder::with_graph();
    fs::create_dir(folder.path("d.img")).unwrap();
    symlink("no/where", folder.path("l.img")).unwrap();
    for file in ["d.img", "l.img", "no/such/m.img", "/dev/null", "/dev/full"] {
        let line = format!("cc --graph g.el --ssd model:ideal,media={file}");
        folder.fail(&line, 1, &["media file", file]);
    }
    assert_eq!(folder.names(), ["d.img", "g.el", "l.img"]);
}

/// 4000 vertices, each with 16 neighbours in its own half: two components.
fn two_halves() -> String {
    let mut text = String::new();
    for vertex in 0..4000u64 {
        for neighbour in 1..=16 {
            let (half, place) = (vertex / 2000, vertex % 2000);
            let to = half * 2000 + (place + neighbour * 61) % 2000;
            text.push_str(&format!("{vertex} {to}\n"));
        }
    }
    text
}

/// Somebody else zeroes the blocks while the kernel reads them. All edges then lead to vertex 0,
/// in both halves.
#[test]
fn a_medium_that_loses_its_data_ends_with_status_3() {
    let folder = Folder::new();
    folder.write("two.el", two_halves().as_bytes());
    let medium = folder.path("m.img");
    let done = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Ok(file) = OpenOptions::new().write(true).open(&medium) {
                    let blocks = file.metadata().unwrap().len().saturating_sub(TRAILER);
                    file.write_all_at(&vec![0; blocks as usize], 0).unwrap();
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        // One command at a time on a slow SSD, so that the kernel is long at it.
        let slow =
            "--ssd model:980pro,media=m.img --cache-mode none --line 512 --queues 1 --depth 2";
        let ended = folder.run(&format!("cc --graph two.el {slow} --json r.json"));
        done.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended.status, Some(3), "{}", ended.stderr);
    let message = ended.message();
    assert!(
        message.starts_with("the result is wrong: cc of two.el: "),
        "{message}"
    );
    assert_eq!(folder.json("r.json")["verified"], false);
}
