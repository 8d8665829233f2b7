//! What a run writes, and how it ends.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Folder, read};

const REPORT: [&str; 9] = [
    "schema",
    "experiment",
    "runner",
    "ssd",
    "machine",
    "verified",
    "modelled",
    "configuration",
    "results",
];

fn assert_fields(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(
            value.get(field).is_some_and(|value| !value.is_null()),
            "no {field} in {value}"
        );
    }
}

#[test]
fn every_experiment_reports_in_full() {
    let folder = Folder::with_graph();
    let graph = ["seconds", "reads", "bytes_read", "graph"];
    for (line, fields) in [
        (
            "bfs --graph g.el",
            ["source", "reached", "depth", "distance_sum"].as_slice(),
        ),
        ("cc --graph g.el", &["components", "largest"]),
    ] {
        folder.succeed(&format!("{line} --json out.json"));
        let report = folder.json("out.json");
        assert_fields(&report["results"][0], fields);
        assert_fields(&report["results"][0], &graph);
        assert_report(&folder, &report);
    }
    folder.succeed("rw --ops 1000 --span 64K --json out.json");
    let report = folder.json("out.json");
    let fields = [
        "operations",
        "per_second",
        "words",
        "threads",
        "seconds",
        "flush_seconds",
        "reads",
        "writes",
        "bytes_moved",
    ];
    assert_fields(&report["results"][0], &fields);
    assert_report(&folder, &report);
    folder.succeed("iops --ops 1000 --span 1M --json out.json");
    let report = folder.json("out.json");
    let result = &report["results"][0];
    let fields = [
        "iops",
        "bandwidth_bytes_per_s",
        "block_bytes",
        "commands",
        "seconds",
    ];
    assert_fields(result, &fields);
    assert_fields(&result["latency_ns"], &["p50", "p90", "p99", "p999", "max"]);
    assert_report(&folder, &report);
}

/// What every report has, and the plot beside it.
fn assert_report(folder: &Folder, report: &Value) {
    assert_fields(report, &REPORT);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["runner"], "threads");
    assert_eq!(report["ssd"], "model:p5800x,lba=512");
    assert_eq!(report["verified"], true);
    assert!(!report["modelled"].as_array().unwrap().is_empty());
    assert_eq!(report["experiment"], report["results"][0]["experiment"]);
    assert_fields(&report["machine"], &["cpu", "cores"]);
    let plot = read(&folder.path("out.svg"));
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"));
    assert_eq!(folder.names(), ["g.el", "out.json", "out.svg"]);
    fs::remove_file(folder.path("out.svg")).unwrap();
}

#[test]
fn the_plot_may_have_a_place_of_its_own() {
    let folder = Folder::with_graph();
    folder.succeed("cc --graph g.el --json r.json --plot p.svg");
    assert_eq!(folder.names(), ["g.el", "p.svg", "r.json"]);
    folder.succeed("cc --graph g.el --json /dev/null");
    assert!(!fs::exists("/dev/null.svg").unwrap());
}

#[test]
fn what_cannot_be_written_ends_with_status_1() {
    let folder = Folder::with_graph();
    fs::create_dir(folder.path("taken.json")).unwrap();
    for (option, file) in [
        ("--json", "no/such/folder.json"),
        ("--json", "taken.json"),
        ("--json", "/dev/full"),
        ("--plot", "no/such/folder.svg"),
    ] {
        let line = format!("cc --graph g.el {option} {file}");
        folder.fail(&line, 1, &[file, "cannot be written"]);
    }
    assert_eq!(folder.names(), ["g.el", "taken.json"]);
}

#[test]
fn a_gpu_asked_for_by_name_and_missing_ends_with_status_1() {
    let folder = Folder::with_graph();
    let mut command = folder.command("cc --graph g.el --runner cuda");
    // Hides the GPUs of a machine that has some.
    command.env("CUDA_VISIBLE_DEVICES", "");
    let ended = folder.end(command);
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    assert!(ended.message().contains("CUDA"), "{}", ended.stderr);
    assert!(ended.stdout.is_empty());
}

#[test]
fn a_wrong_command_line_ends_with_status_2() {
    let folder = Folder::with_graph();
    for (line, word) in [
        ("sort", "sort"),
        ("cc --graph g.el --depth 3", "--depth 3"),
        ("cc --graph g.el --line 1000", "--line 1000"),
        ("cc --graph g.el --queues 129", "--queues 129"),
        ("cc --graph g.el --ssds 64 --queues 128", "--queues 128"),
        ("cc --graph g.el --cache-lines 4294967295", "--cache-lines"),
        ("cc --graph g.el --ssd model:floppy", "floppy"),
        ("cc --graph g.el --ssd model:ideal,media=none", "media=none"),
        ("cc --graph g.el --timeout 0", "--timeout 0"),
        ("cc --graph g.el --json", "--json"),
    ] {
        // The runner comes first, so that a value may be missing at the end.
        let mut command = folder.command("--runner threads");
        command.args(line.split_whitespace());
        let ended = folder.end(command);
        assert_eq!(ended.status, Some(2), "{line}: {}", ended.stderr);
        assert!(ended.message().contains(word), "{line}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{line}: {}", ended.stderr);
    }
    assert_eq!(folder.names(), ["g.el"]);
}

#[test]
fn a_deadline_that_cannot_be_met_ends_with_status_1() {
    let folder = Folder::new();
    // A few reads may be answered before anybody looks at the clock, but not thousands that
    // take tens of microseconds each.
    folder.fail(
        "iops --ssd model:980pro --ops 20000 --span 1M --timeout 0.000001 --json r.json",
        1,
        &["kernel iops", "deadline"],
    );
    assert!(folder.names().is_empty());
}

#[test]
fn a_reader_that_leaves_disturbs_nobody() {
    let folder = Folder::with_graph();
    let bench = folder.command("cc --graph g.el --json r.json");
    let mut shell = Command::new("sh");
    // `true` reads nothing and is gone when the table comes; 3 carries the status out.
    let script = r#"exec 3>status; { "$0" "$@"; echo $? >&3; } | true"#;
    shell.args(["-c", script]).arg(bench.get_program());
    shell.args(bench.get_args()).current_dir(folder.path(""));
    shell.stdin(Stdio::null());
    assert_eq!(folder.end(shell).status, Some(0));
    assert_eq!(read(&folder.path("status")), "0\n");
    assert_eq!(folder.json("r.json")["verified"], true);
}
