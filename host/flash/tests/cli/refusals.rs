//! What is refused, with the reason, and with nothing lost.

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;

use crate::Folder;

fn with_source() -> Folder {
    let folder = Folder::new();
    folder.write("s.bin", &[3; 70_000]);
    folder
}

#[test]
fn members_that_make_no_volume_are_refused() {
    let folder = with_source();
    folder.succeed("flash --to file:a.img,file:b.img s:u8=s.bin");
    folder.succeed("flash --to file:c.img s:u8=s.bin");
    folder.fail(
        "ls file:a.img",
        1,
        &[
            "has 2 members, and 1 were given",
            "member 1 of it is missing",
        ],
    );
    folder.fail(
        "ls file:a.img,file:c.img",
        1,
        &["file:c.img belongs to volume"],
    );
    folder.fail("ls file:none.img", 1, &["none.img", "No such file"]);
    folder.fail("ls file:s.bin", 1, &["s.bin", "not made by warpstore"]);
    for bytes in [0, 300_000] {
        let member = folder.read("a.img");
        folder.write("cut.img", &member[..bytes]);
        let words = format!("file:cut.img has {bytes} bytes");
        for command in ["ls", "verify"] {
            let line = format!("{command} file:cut.img,file:b.img");
            folder.fail(&line, 1, &[&words, "cut off", "give the whole file"]);
        }
    }
    // A copy of a member from before the last flash.
    folder.write("old.img", &folder.read("b.img"));
    folder.succeed("flash --to file:a.img,file:b.img s:u8=s.bin");
    folder.fail(
        "verify file:a.img,file:old.img",
        1,
        &["file:old.img is stale", "generation 1"],
    );
}

#[test]
fn nothing_is_lost_unless_it_is_named() {
    let folder = with_source();
    folder.write("letter", b"dear reader");
    folder.fail(
        "flash --to file:letter s:u8=s.bin",
        1,
        &["letter holds other data", "--yes-destroy"],
    );
    assert_eq!(folder.read("letter"), b"dear reader");
    folder.fail(
        "flash --to file:letter --yes-destroy other s:u8=s.bin",
        2,
        &["--yes-destroy other: it is no member"],
    );
    folder.fail(
        "flash --to file:letter,vfio:letter --yes-destroy letter s:u8=s.bin",
        2,
        &["--yes-destroy letter: it may be several members"],
    );
    folder.succeed("flash --to file:letter --yes-destroy letter s:u8=s.bin");
    folder.succeed("verify file:letter");
    // Half of a volume.
    folder.succeed("flash --to file:a.img,file:b.img s:u8=s.bin");
    folder.fail(
        "flash --to file:a.img s:u8=s.bin",
        1,
        &["holds a member of volume"],
    );
    folder.succeed("verify file:a.img,file:b.img");
}

#[test]
fn a_volume_without_room_for_two_goes_first_only_if_it_is_named() {
    let folder = with_source();
    folder.succeed("flash --to file:a.img --size 448K s:u8=s.bin");
    folder.fail(
        "flash --to file:a.img s:u8=s.bin",
        1,
        &["can only be written anew if it goes first"],
    );
    folder.succeed("verify file:a.img");
    folder.succeed("flash --to file:a.img --yes-destroy a.img s:u8=s.bin");
    folder.succeed("verify file:a.img");
}

#[test]
fn sizes_are_told_with_the_numbers() {
    let folder = with_source();
    let line = "flash --to file:a.img --size 320K s:u8=s.bin";
    folder.fail(
        line,
        1,
        &["file:a.img has 327680 bytes, and 393216 are needed"],
    );
    assert_eq!(folder.names(), ["s.bin"]);
    folder.succeed("flash --to file:a.img s:u8=s.bin");
    folder.fail(
        "flash --to file:a.img --size 1M s:u8=s.bin",
        2,
        &["--size 1048576: it is for media files"],
    );
    folder.fail(
        "flash --to file:b.img --stripe 4K s:u8=s.bin",
        1,
        &["4096", "no multiple of 65536"],
    );
}

#[test]
fn a_member_by_two_names_is_told_before_it_is_made() {
    let folder = with_source();
    let line = "flash --to file:a.img,file:./a.img s:u8=s.bin";
    let words = ["file:./a.img and file:a.img are one file"];
    folder.fail(line, 2, &words);
    assert_eq!(folder.names(), ["s.bin"]);
    folder.succeed("flash --to file:a.img s:u8=s.bin");
    folder.fail(line, 2, &words);
    std::os::unix::fs::symlink("a.img", folder.path("b.img")).unwrap();
    fs::hard_link(folder.path("a.img"), folder.path("c.img")).unwrap();
    for other in ["b.img", "c.img"] {
        let names = format!("file:a.img,file:{other}");
        let words = [&*format!("file:{other} and file:a.img are one file")];
        folder.fail(&format!("flash --to {names} s:u8=s.bin"), 2, &words);
        let destroy = format!("--yes-destroy a.img --yes-destroy {other}");
        let dry = format!("flash --dry-run {destroy} --to {names} s:u8=s.bin");
        folder.fail(&dry, 2, &words);
        for command in ["ls", "verify", "verify --seal"] {
            folder.fail(&format!("{command} {names}"), 1, &words);
        }
    }
    folder.succeed("verify file:a.img");
}

#[test]
fn a_member_in_use_is_left_alone() {
    let folder = with_source();
    folder.succeed("flash --to file:a.img s:u8=s.bin");
    let file = File::open(folder.path("a.img")).unwrap();
    file.lock_shared().unwrap();
    folder.fail(
        "flash --to file:a.img s:u8=s.bin",
        1,
        &["file:a.img is in use"],
    );
    folder.succeed("ls file:a.img");
    // Closing it would not do: a child that another test just forks has it open too.
    file.unlock().unwrap();
    folder.succeed("flash --to file:a.img s:u8=s.bin");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = with_source();
    for name in ["p", "p.csv", "p.parquet", "p.el"] {
        let made = Command::new("mkfifo").arg(folder.path(name)).status();
        assert!(made.unwrap().success());
        let sources = [format!("s:u8={name}"), format!("s={name}")];
        let source = &sources[usize::from(name != "p")];
        for line in [
            format!("flash --to file:a.img {source}"),
            format!("flash --to file:{name} s:u8=s.bin"),
            format!("ls file:{name}"),
        ] {
            folder.fail(&line, 1, &[name, "not a regular file"]);
        }
    }
}

#[test]
fn wrong_sources_are_one_sentence() {
    let folder = with_source();
    folder.write("g.el", b"0 1\n");
    folder.write("odd.bin", b"123");
    folder.write("twice.csv", b"a,a\n1,2\n");
    for (source, words) in [
        ("s=s.bin", &["say the type", "s:u32=s.bin"][..]),
        ("s:u16=odd.bin", &["odd.bin has 3 bytes", "u16"]),
        ("s:u8=none.bin", &["cannot read none.bin"]),
        ("s:u8=s.bin#x", &["is no table"]),
        ("g:u32=g.el", &["is a graph"]),
        ("s:u8=.", &["not a regular file"]),
        ("s,t:u8=s.bin", &["cannot name an array"]),
        ("s:u8=s.bin s:u8=s.bin", &["two arrays are called \"s\""]),
        ("t=twice.csv", &["\"t.a\"", "another name in the file"]),
    ] {
        folder.fail(&format!("flash --to file:a.img {source}"), 1, words);
    }
    folder.fail(
        "flash --to file:a.img s:u9=s.bin",
        2,
        &["'u9' is no element type"],
    );
    folder.fail("sort", 2, &["sort"]);
    assert!(!folder.path("a.img").exists());
}

/// Two flashes of one file that was not there when they looked: nothing of the first is lost.
#[test]
fn a_volume_that_was_made_meanwhile_is_not_written_over() {
    let folder = with_source();
    folder.write("late.bin", &[4; 50_000]);
    // It has looked, and waits before it makes its file: nobody reads what it says.
    let (mut said, full) = full_pipe();
    let late = folder.start("flash --to file:v.img late:u8=late.bin", full);
    wait_until_it_prints(&late);
    assert!(!folder.path("v.img").exists());
    folder.succeed("flash --to file:v.img s:u8=s.bin");
    let before = folder.read("v.img");
    io::copy(&mut said, &mut io::sink()).unwrap();
    let output = late.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("v.img was to be made, and by now"),
        "{stderr}"
    );
    assert!(folder.read("v.img") == before);
}

/// Waits until a process is in a system call on its stdout.
fn wait_until_it_prints(process: &Child) {
    let call = format!("/proc/{}/syscall", process.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let call = fs::read_to_string(&call).unwrap();
        if call.split(' ').nth(1) == Some("0x1") {
            return;
        }
        assert!(Instant::now() < deadline, "it is in {call}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A pipe that takes nothing more until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let capacity = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![0; capacity]).unwrap();
    (reader, writer)
}

#[test]
fn a_file_that_cannot_be_made_leaves_none() {
    let folder = with_source();
    folder.fail(
        "flash --to file:a.img,file:no/such/b.img s:u8=s.bin",
        1,
        &["no/such/b.img"],
    );
    assert_eq!(folder.names(), ["s.bin"]);
}

/// What an interruption leaves while a file is being made.
#[test]
fn a_file_that_is_half_made_is_made_again() {
    let folder = with_source();
    let half = File::create(folder.path("a.img")).unwrap();
    rustix::fs::fallocate(&half, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let line = "flash --to file:a.img s:u8=s.bin";
    let said = folder.succeed(&format!("{line} --dry-run"));
    assert!(said.contains("makes a.img"), "{said}");
    folder.succeed(line);
    folder.succeed("verify file:a.img");
}

#[test]
fn a_source_that_is_a_member_is_refused() {
    let folder = with_source();
    let before = folder.read("s.bin");
    fs::hard_link(folder.path("s.bin"), folder.path("link")).unwrap();
    for source in ["s.bin", "./s.bin", "link"] {
        let line = format!("flash --to file:s.bin --yes-destroy s.bin s:u8={source}");
        folder.fail(&line, 2, &[source, "is file:s.bin too", "copy"]);
    }
    assert_eq!(folder.read("s.bin"), before);
}
