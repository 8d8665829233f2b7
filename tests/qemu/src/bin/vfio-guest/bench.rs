//! Benches over real VFIO: what they answer, and what they say when the SSD fails.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use driver_vfio::vfio::bound_controllers;
use warpstore_qemu_tests::guest::UNPLUG_NOW;
use warpstore_qemu_tests::setup::Setup;

use crate::{LIMIT, run};

/// A bench over one namespace of each controller, the `index`th, with the words of `line`.
fn command(setups: &[Setup], index: usize, line: &str) -> Command {
    let name = |setup: &Setup| format!("{}/{}", setup.serial, setup.namespaces[index].nsid);
    let names: Vec<String> = setups.iter().map(name).collect();
    let line = format!("{line} --ssd vfio:{}", names.join(","));
    println!("bench {line}");
    let mut command = Command::new("warpstore-bench");
    command.args(line.split(' ')).current_dir("/");
    command
}

/// The same, allowed to write.
fn destructive(setups: &[Setup], index: usize, line: &str) -> Command {
    let serials: Vec<_> = setups.iter().map(|setup| setup.serial.as_str()).collect();
    let line = format!("{line} --yes-destroy {}", serials.join(","));
    command(setups, index, &line)
}

/// The experiments give right answers, over one namespace of each controller and the other, doorbells
/// passed on or rung in the BAR, and what was not said to be lost is not written.
pub fn answers(setups: &[Setup]) {
    let verified = |command: &mut Command| {
        let (code, text) = run(command);
        assert_eq!(code, Some(0));
        assert!(text.contains("verified: every result agrees"));
        assert!(!text.contains("modelled:"), "nothing is modelled here");
    };
    verified(&mut destructive(
        setups,
        1,
        "rw --queues 1 --depth 4 --span 128K --ops 2048 --doorbells proxy",
    ));
    verified(&mut destructive(
        setups,
        1,
        "iops --queues 1 --block 4096 --span 1M --ops 1024",
    ));
    verified(&mut destructive(
        setups,
        0,
        "bfs --queues 1 --depth 64 --doorbells proxy",
    ));
    let (code, text) = run(&mut command(
        setups,
        0,
        "iops --queues 1 --span 1M --ops 512",
    ));
    assert_eq!(code, Some(0));
    assert!(text.contains("NOT verified"), "an SSD that is only read");
}

/// A session needs a queue pair for the host; with all of them for kernels it says so.
pub fn queues(setups: &[Setup]) {
    let granted = setups[0].queues;
    let line = format!("rw --queues {} --span 64K --ops 512", granted.max(2) - 1);
    // Not where the edges are.
    let index = setups[0].namespaces.len() - 1;
    let (code, text) = run(&mut destructive(&setups[..1], index, &line));
    if granted == 1 {
        assert_eq!(code, Some(1));
        assert!(text.contains("grants 1 queue pairs, 2 were asked for"));
    } else {
        assert_eq!(code, Some(0));
    }
}

/// Media errors end benches with LBA and status, and the next bench is well.
pub fn errors(setups: &[Setup]) {
    for (line, parts) in [
        // Kernels meet it, in the edges.
        (
            "bfs --queues 1 --cache-lines 64",
            ["Unrecovered Read Error", "LBA 2496 of SSD 0"],
        ),
        // The host's own commands meet it.
        (
            "rw --queues 1 --span 4M --ops 512",
            ["WRITE of 256 blocks from LBA 3840", "Write Fault"],
        ),
    ] {
        let (code, text) = run(&mut destructive(setups, 0, line));
        assert_eq!(code, Some(1));
        for part in parts {
            assert!(text.contains(part), "{part}");
        }
    }
    let (code, _) = run(&mut destructive(
        setups,
        0,
        "rw --queues 1 --span 64K --ops 512",
    ));
    assert_eq!(code, Some(0));
}

/// The SSD is unplugged while a bench reads: the bench ends with an error that says so, and the SSD
/// leaves.
pub fn unplug(setups: &[Setup]) {
    let mut command = command(setups, 0, "iops --queues 1 --span 1M --ops 4000000");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench: Child = command.spawn().expect("the bench starts");
    let lines = BufReader::new(bench.stderr.take().expect("a pipe")).lines();
    let mut text = String::new();
    for line in lines.map_while(Result::ok) {
        println!("{line}");
        if line == "iops" {
            println!("{UNPLUG_NOW}");
        }
        text += &line;
    }
    let status = bench.wait().expect("it ends");
    assert_eq!(status.code(), Some(1));
    assert!(text.contains("asks for it back"), "the reason");
    let begin = Instant::now();
    while !bound_controllers().is_empty() {
        assert!(begin.elapsed() < LIMIT, "it does not leave");
        sleep(Duration::from_millis(10));
    }
}
