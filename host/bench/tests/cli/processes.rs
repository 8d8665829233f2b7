//! SSDs in processes of their own: the same answers, and whoever dies is told of.

use std::fs::{self, File};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{Folder, PATIENCE, SMALL, read};

/// A process in the background; it is killed at the end.
struct Background {
    child: Child,
    said: PathBuf,
}

impl Background {
    fn start(folder: &Folder, line: &str, said: &str) -> Self {
        Self::spawn(folder, folder.command(line), said)
    }

    fn spawn(folder: &Folder, mut command: Command, said: &str) -> Self {
        let said = folder.path(said);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        Self { child, said }
    }

    /// Waits until `there` holds.
    fn wait_for(&mut self, what: &str, there: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !there(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{what}: {}", read(&self.said));
            assert!(begin.elapsed() < PATIENCE, "{what} does not come");
            sleep(Duration::from_millis(2));
        }
    }

    /// Its exit status and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(begin.elapsed() < PATIENCE, "it hangs: {}", read(&self.said));
            sleep(Duration::from_millis(2));
        };
        (status, read(&self.said))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// SSDs that listen at `ssd` in the folder.
fn served(folder: &Folder, options: &str) -> Background {
    let line = format!("serve-ssds --socket ssd --bytes 16M {options}");
    let mut server = Background::start(folder, &line, "served");
    let socket = folder.path("ssd");
    server.wait_for("the socket", |_| socket.exists());
    server
}

/// A run that lasts until it is ended, on those SSDs; kernels of it have begun. Its accesses have so many
/// seconds.
fn endless(folder: &Folder, timeout: u32) -> Background {
    let line = format!("rw --ssd socket:ssd --ops 100000000 --timeout {timeout}");
    let mut run = Background::start(folder, &line, "said");
    // The arrays are on the SSD once it has been written for a while.
    run.wait_for("the run", |run| read(&run.said).contains("rw"));
    sleep(Duration::from_millis(300));
    run
}

#[test]
fn a_process_of_its_own_gives_the_same_answers() {
    let folder = Folder::with_graph();
    for options in [
        "--ssd process:ideal --doorbells direct",
        "--ssd process:ideal,serving=2 --doorbells proxy --ssds 3 --cache-lines 1 --line 512",
        "--ssd process:ideal,lba=4096 --doorbells proxy --cache-mode none --queue bam",
        "--ssd process:ideal --queue lock --depth 4 --fail-one-in 10",
    ] {
        let bfs = folder.result(&format!("bfs --graph g.el {options}"));
        assert_eq!([&bfs["reached"], &bfs["distance_sum"]], [4, 6], "{SMALL}");
        let report = folder.json("result.json");
        let configuration = &report["configuration"];
        assert_eq!(configuration["placement"], "staged");
        let wanted = ["direct", "proxy"].map(|one| options.contains(one));
        let expected = if wanted == [false, true] {
            "proxy"
        } else {
            "direct"
        };
        assert_eq!(configuration["doorbells"], expected);
        assert!(configuration["serving_threads"].as_u64() >= Some(1));
        let rw = folder.result(&format!("rw --ops 2000 --span 64K {options}"));
        assert!(rw["writes"].as_u64() > Some(0), "{rw}");
        let failed = &rw["failed"];
        assert_eq!(failed["injected"], failed["seen"]);
        if options.contains("fail") {
            assert!(failed["seen"].as_u64() > Some(0), "{rw}");
        }
    }
    let iops = folder.result("iops --ssd process:gp1 --ops 2000 --span 1M");
    assert!(iops["limit"]["by"].as_str().unwrap().contains("profile"));
    assert_eq!(folder.names(), ["g.el", "result.json", "result.svg"]);
}

#[test]
fn media_of_a_process_outlive_it() {
    let folder = Folder::new();
    for _ in 0..2 {
        folder.result("rw --ops 2000 --span 64K --ssds 2 --ssd process:ideal,media=m.img");
    }
    assert!(folder.names().contains(&"m.img.1".to_owned()));
    fs::write(folder.path("other"), "somebody else's").unwrap();
    let ended = folder.run("rw --ops 2000 --ssd process:ideal,media=other");
    assert_eq!(ended.status, Some(1));
    assert!(ended.stderr.contains("--overwrite"), "{}", ended.stderr);
}

#[test]
fn media_in_use_are_refused_and_left_alone() {
    let folder = Folder::new();
    let _server = served(&folder, "--media m.img");
    let before = fs::read(folder.path("m.img")).unwrap();
    for line in [
        "rw --ops 2000 --span 64K --ssd model:ideal,media=m.img --overwrite",
        "rw --ops 2000 --span 64K --ssd process:ideal,media=m.img",
        "serve-ssds --socket other --bytes 16M --media m.img",
    ] {
        let ended = folder.run(line);
        assert_eq!(ended.status, Some(1), "{line}: {}", ended.stderr);
        let said = ended.stderr.contains("m.img is in use by another process");
        assert!(said, "{line}: {}", ended.stderr);
        let after = fs::read(folder.path("m.img")).unwrap();
        assert!(after == before, "{line} wrote over it");
    }
}

#[test]
fn a_process_serves_one_run_after_the_other() {
    let folder = Folder::with_graph();
    let _server = served(&folder, "--fail-one-in 50");
    for options in ["--doorbells proxy", "--doorbells direct"] {
        for experiment in [
            "bfs --graph g.el",
            "cc --graph g.el",
            "rw --ops 2000 --span 64K",
        ] {
            folder.result(&format!("{experiment} --ssd socket:ssd {options}"));
        }
    }
}

#[test]
fn an_ssd_that_is_named_twice_is_refused() {
    let folder = Folder::new();
    let _server = served(&folder, "");
    let line = "rw --ops 2000 --span 64K --ssd socket:ssd,./ssd";
    folder.fail(line, 1, &["ssd and ./ssd are the same SSD"]);
}

#[test]
fn a_run_that_is_killed_leaves_the_ssds_to_the_next() {
    let folder = Folder::with_graph();
    let mut server = served(&folder, "");
    for _ in 0..2 {
        endless(&folder, 600).kill();
        let bfs = folder.result("bfs --graph g.el --ssd socket:ssd");
        assert_eq!(bfs["reached"], 4);
    }
    server.wait_for("nothing", |_| true);
}

#[test]
fn a_process_that_is_killed_ends_the_run_with_its_reason() {
    let folder = Folder::new();
    let mut server = served(&folder, "");
    let run = endless(&folder, 600);
    server.kill();
    let (status, said) = run.end();
    assert_eq!(status, Some(1), "{said}");
    let message = said.lines().find_map(|line| line.strip_prefix("error: "));
    let message = message.unwrap_or_else(|| panic!("{said}"));
    let names_it = message.contains("is gone or stuck") || message.contains("removed");
    assert!(names_it, "{message}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_process_that_stands_still_ends_the_run_with_its_reason() {
    let folder = Folder::new();
    let server = served(&folder, "");
    let run = endless(&folder, 5);
    let stop = Command::new("kill")
        .args(["-STOP", &server.child.id().to_string()])
        .status();
    assert!(stop.unwrap().success());
    let (status, said) = run.end();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("is gone or stuck: timed out"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_run_that_is_killed_leaves_no_sockets() {
    let folder = Folder::new();
    let temporary = folder.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let left = || fs::read_dir(&temporary).unwrap().count();
    let line = "rw --ssds 2 --ssd process:ideal --ops 100000000 --timeout 1";
    let mut command = folder.command(line);
    command.env("TMPDIR", &temporary);
    let mut run = Background::spawn(&folder, command, "said");
    run.wait_for("the folder of the sockets", |_| left() == 1);
    run.wait_for("the run", |run| read(&run.said).contains("rw"));
    run.kill();
    let begin = Instant::now();
    while left() != 0 {
        assert!(begin.elapsed() < PATIENCE, "the folder stays");
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_socket_that_a_killed_process_left_is_replaced() {
    let folder = Folder::with_graph();
    served(&folder, "").kill();
    assert!(folder.path("ssd").exists());
    let line = "serve-ssds --socket ssd --bytes 16M";
    let mut server = Background::start(&folder, line, "served");
    let socket = folder.path("ssd");
    let listens = |_: &Background| UnixStream::connect(&socket).is_ok();
    server.wait_for("the socket", listens);
    let bfs = folder.result("bfs --graph g.el --ssd socket:ssd");
    assert_eq!(bfs["reached"], 4);
    // One that is in use is not, nor is a file. Who listens may be no process of ours.
    folder.write("file", b"content");
    let _foreign = UnixListener::bind(folder.path("foreign")).unwrap();
    for path in ["ssd", "file", "foreign"] {
        let line = format!("serve-ssds --socket {path} --bytes 16M");
        folder.fail(&line, 1, &["cannot listen", path]);
    }
    assert_eq!(fs::read(folder.path("file")).unwrap(), b"content");
    folder.result("bfs --graph g.el --ssd socket:ssd");
}

/// Also while the first has nothing at the path yet.
#[test]
fn one_process_serves_at_a_path() {
    let folder = Folder::new();
    let _server = served(&folder, "");
    fs::rename(folder.path("ssd"), folder.path("elsewhere")).unwrap();
    let line = "serve-ssds --socket ssd --bytes 16M";
    folder.fail(line, 1, &["cannot listen at ssd", "is about to"]);
    let twice = "serve-ssds --socket a --socket a --bytes 16M";
    folder.fail(twice, 1, &["cannot listen at a", "is about to"]);
    // The first is as it was.
    folder.result("iops --ssd socket:elsewhere --ops 64 --span 1M");
}

#[test]
fn sockets_that_lead_nowhere_are_refused() {
    let folder = Folder::with_graph();
    folder.fail("rw --ssd socket:nobody", 1, &["cannot connect", "nobody"]);
    File::create(folder.path("file")).unwrap();
    folder.fail("rw --ssd socket:file", 1, &["cannot connect", "file"]);
    for (line, words) in [
        ("rw --ssd socket:a --ssds 2", "names each SSD"),
        ("rw --ssd socket:a --fail-one-in 9", "serve-ssds"),
        ("rw --doorbells proxy", "outside this process"),
        ("serve-ssds", "--socket"),
    ] {
        let ended = folder.run(line);
        assert_eq!(ended.status, Some(2), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{line}: {}", ended.stderr);
    }
}
