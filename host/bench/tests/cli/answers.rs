//! Right answers, whatever the store is made of.

use std::fs;
use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::{Folder, email_graph};

#[test]
fn the_email_graph_gives_the_known_answers() {
    let folder = Folder::new();
    let graph = email_graph();
    let bfs = folder.result(&format!("bfs --source 0 --graph {}", graph.display()));
    let numbers = [&bfs["reached"], &bfs["depth"], &bfs["distance_sum"]];
    assert_eq!(numbers, [33696, 9, 146_222]);
    let cc = folder.result(&format!("cc --graph {}", graph.display()));
    assert_eq!([&cc["components"], &cc["largest"]], [1065, 33696]);
    for result in [bfs, cc] {
        let number = |field: &str| result[field].as_u64().unwrap();
        let (reads, bytes) = (number("reads"), number("bytes_read"));
        // The edges alone are 360 lines of 4096 bytes. A command reads a line, or beside the cache
        // one LBA.
        assert!(reads >= 359, "{result}");
        assert!((reads * 512..=reads * 4096).contains(&bytes), "{result}");
        assert_eq!(bytes % 512, 0, "{result}");
    }
}

/// 4 000 vertices in two halves without an edge between them, 24 000 edges.
fn random_graph() -> String {
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut text = String::new();
    for edge in 0..24_000 {
        let half = edge % 2 * 2000;
        let (from, to) = (half + random(2000), half + random(2000));
        text.push_str(&format!("{from} {to}\n"));
    }
    text
}

#[test]
fn no_option_changes_the_answers() {
    let folder = Folder::new();
    folder.write("r.el", random_graph().as_bytes());
    let expected = [
        answer(&folder, "bfs --graph r.el --source 17"),
        answer(&folder, "cc --graph r.el"),
    ];
    for options in [
        "--line 512 --ssds 3 --cache-lines 1 --depth 2 --queues 1",
        "--line 512 --ssds 1 --cache-lines 7 --depth 64 --queues 4",
        "--line 4096 --ssds 1 --cache-lines 1 --depth 4 --queues 1",
        "--line 4096 --ssds 3 --cache-lines 2 --depth 1024 --queues 4",
        "--line 65536 --ssds 3 --cache-lines 1 --depth 64 --queues 1 --layout replicate",
        "--line 65536 --ssds 1 --cache-lines 64 --depth 2 --queues 4",
        "--line 512 --ssds 3 --cache-mode none --depth 1024 --queues 1",
        "--line 4096 --ssds 1 --cache-mode none --depth 2 --queues 4",
        "--line 4096 --ssds 3 --stripe 128K --depth 4096 --queues 128 --threads 1",
        "--line 512 --ssds 3 --cache-lines 1 --queue bam --depth 64 --queues 1",
        "--line 4096 --ssds 1 --cache-lines 7 --queue bam --depth 64 --queues 4",
        "--line 65536 --ssds 1 --cache-lines 64 --queue bam --depth 1024 --queues 1",
        "--line 4096 --ssds 3 --cache-mode none --queue bam --depth 1024 --queues 4",
        "--line 512 --ssds 3 --cache-lines 7 --queue lock --depth 2 --queues 1",
        "--line 4096 --ssds 1 --cache-lines 1 --queue lock --depth 4 --queues 4",
        "--line 65536 --ssds 1 --cache-mode none --queue lock --depth 64 --queues 1",
        "--line 4096 --ssds 3 --cache-lines 64 --queue lock --depth 1024 --queues 4",
        "--line 4096 --ssds 64 --cache 8K --threads 1024 --ssd model:ideal,lba=4096",
        "--line 512 --ssds 3 --cache-lines 1 --cache-mode naive --depth 2 --queues 1",
        "--line 4096 --ssds 1 --cache-lines 7 --cache-mode naive --queue lock --depth 64",
        "--line 512 --ssds 1 --cache-lines 64 --cache-mode bam --depth 4 --queues 1",
        "--line 4096 --ssds 3 --cache-lines 1 --cache-mode bam --queue bam --depth 64",
        "--line 512 --ssds 3 --cache-lines 1 --cache-mode bam+reuse --depth 1024 --queues 4",
        "--line 4096 --ssds 1 --cache-lines 2 --cache-mode bam+reuse --queue bam --depth 64",
    ] {
        let found = [
            answer(&folder, &format!("bfs --graph r.el --source 17 {options}")),
            answer(&folder, &format!("cc --graph r.el {options}")),
        ];
        assert_eq!(found, expected, "{options}");
    }
}

#[test]
fn no_option_loses_a_write() {
    let folder = Folder::new();
    for options in [
        "--line 512 --ssds 3 --cache-lines 1 --depth 2 --queues 1",
        "--line 512 --ssds 1 --cache-lines 64 --depth 4 --queues 4 --threads 1024",
        "--line 4096 --ssds 3 --cache-lines 2 --depth 1024 --queues 4",
        "--line 65536 --ssds 1 --cache-lines 7 --depth 64 --queues 4",
        "--line 512 --ssds 3 --cache-mode none --depth 64 --queues 1",
        "--line 4096 --ssds 3 --cache-lines 2 --queue bam --depth 64 --queues 4",
        "--line 512 --ssds 1 --cache-lines 7 --queue lock --depth 2 --queues 1",
        "--line 512 --ssds 3 --cache-lines 7 --cache-mode naive --depth 4 --queues 1",
        "--line 512 --ssds 1 --cache-lines 1 --cache-mode bam --depth 64 --queues 4",
        "--line 4096 --ssds 3 --cache-lines 64 --cache-mode bam+reuse --depth 64 --queues 4",
        "--ssds 3 --ssd model:ideal,media=w.img --seed 7",
    ] {
        let rw = folder.result(&format!("rw --span 64K --ops 1024 --timeout 60 {options}"));
        assert_eq!(rw["operations"], 1024, "{options}");
        // Three in eight are writes, and all lines with one get to the SSD in the end.
        let number = |field: &str| rw[field].as_u64().unwrap();
        let line = options.contains("65536");
        assert!(number("writes") >= if line { 1 } else { 16 }, "{rw}");
        assert!(number("words") >= 8192, "{rw}");
    }
    assert_eq!(
        folder.names(),
        ["result.json", "result.svg", "w.img.0", "w.img.1", "w.img.2"]
    );
}

/// Every mode, its sums verified, and no hit that costs a command.
#[test]
fn every_cache_mode_hits_and_misses() {
    let folder = Folder::new();
    folder.succeed("cache --span 64K --ops 20000 --json c.json");
    let report = folder.json("c.json");
    assert_eq!(report["verified"], true);
    assert!(report["configuration"]["cache_mode"].is_null());
    let rows = report["results"].as_array().unwrap();
    let modes = ["naive", "bam", "bam+reuse", "optimistic"];
    assert_eq!(rows.len(), 2 + 4 * modes.len());
    assert!(rows[0]["mode"].is_null());
    for (row, mode) in rows[2..]
        .iter()
        .zip(modes.iter().flat_map(|mode| [mode; 4]))
    {
        assert_eq!(row["mode"], *mode);
        let missed = row["reads"].as_u64().unwrap() > 0;
        assert_eq!(row["access"], if missed { "miss" } else { "hit" }, "{row}");
    }
}

#[test]
fn a_crowd_ends() {
    let folder = Folder::new();
    for options in [
        "--threads 1024 --cache-lines 64 --depth 4",
        "--threads 96 --cache-lines 1 --line 512 --fail-one-in 100",
        "--threads 512 --cache-lines 7 --queue lock --span 128K",
    ] {
        let crowd = folder.result(&format!("crowd --ssds 3 {options}"));
        let number = |field: &str| crowd[field].as_u64().unwrap();
        assert_eq!(number("operations"), 21 * number("threads"), "{options}");
        assert!(number("writes") > 0, "{options}");
    }
}

#[test]
fn commands_that_fail_for_a_while_change_no_answer() {
    let folder = Folder::new();
    folder.write("r.el", random_graph().as_bytes());
    for line in [
        "bfs --graph r.el --cache-lines 7 --line 512",
        "cc --graph r.el --cache-mode none --ssds 3",
        "rw --ops 8192 --span 64K --cache-lines 7 --line 512 --ssds 3 --depth 4",
    ] {
        let plain = folder.result(line);
        assert!(plain["failed"].is_null());
        let mut failing = folder.result(&format!("{line} --fail-one-in 100"));
        let failed = failing["failed"].take();
        assert!(failed["injected"].as_u64().unwrap() > 0, "{line}: {failed}");
        assert_eq!(failed["injected"], failed["seen"], "{line}");
        for field in ["reached", "distance_sum", "components", "operations"] {
            assert_eq!(plain[field], failing[field], "{line}");
        }
    }
}

#[test]
fn every_protocol_reads_the_right_blocks() {
    let folder = Folder::new();
    for (queue, options) in [
        ("hop", "--depth 2 --queues 1"),
        ("bam", "--depth 64 --queues 1"),
        ("bam", "--depth 1024 --queues 4"),
        ("lock", "--depth 2 --queues 1"),
        ("lock", "--depth 64 --queues 4"),
    ] {
        let line = format!(
            "iops --queue {queue} {options} --ops 2000 --span 1M --timeout 60 --json r.json"
        );
        folder.succeed(&line);
        let report = folder.json("r.json");
        assert_eq!(report["verified"], true, "{line}");
        assert_eq!(report["configuration"]["queue"], queue, "{line}");
    }
}

/// More lanes than the queues of BaM's protocol admit: what the options say is exit status 2, also
/// when the number of queues is the runner's.
#[test]
fn bam_refuses_more_lanes_than_its_queues_admit() {
    let folder = Folder::with_graph();
    let refuse = |line: &str, words: &[&str]| {
        folder.fail(&format!("{line} --queue bam"), 2, words);
    };
    refuse("bfs --graph g.el --depth 4", &["--depth 4", "at least 64"]);
    refuse(
        "cc --graph g.el --depth 64 --threads 256",
        &["--threads 256", "--queues 4 of --depth 64 admit 128"],
    );
    refuse("iops --queues 1 --in-flight 1024", &["admit 992"]);
}

/// The result without what depends on time and cache.
fn answer(folder: &Folder, line: &str) -> Value {
    let mut result = folder.result(line);
    assert!(result["reads"].as_u64().unwrap() > 0, "{line}");
    let fields = result.as_object_mut().unwrap();
    for field in ["graph", "seconds", "reads", "bytes_read", "failed"] {
        assert!(fields.remove(field).is_some(), "{line}: no {field}");
    }
    result
}

#[test]
fn every_format_gives_the_same() {
    let folder = Folder::with_graph();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&fs::read(folder.path("g.el")).unwrap())
        .unwrap();
    folder.write("z.el.gz", &gzip.finish().unwrap());
    folder.write(
        "m.mtx",
        b"%%MatrixMarket matrix coordinate pattern general\n7 7 7\n1 2\n2 3\n3 4\n4 1\n6 5\n5 6\n7 7\n",
    );
    folder.write("p.bel.col", &words(&[8, 0, 0, 1, 2, 3, 4, 5, 6, 7]));
    folder.write("p.bel.dst", &words(&[7, 0, 1, 2, 3, 0, 5, 4, 6]));
    for graph in [
        "g.el",
        "z.el.gz",
        "m.mtx",
        "p.bel.col",
        "p.bel.dst",
        "p.bel",
    ] {
        assert_eq!(
            answer(&folder, &format!("bfs --graph {graph}")),
            json!({"experiment": "bfs", "source": 0, "reached": 4, "depth": 3, "distance_sum": 6}),
        );
        assert_eq!(
            answer(&folder, &format!("cc --graph {graph}")),
            json!({"experiment": "cc", "components": 3, "largest": 4}),
        );
    }
}

/// BaM's files: 64-bit words, the number of entries and an unused one first.
fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn vertices_without_edges_are_components() {
    let folder = Folder::new();
    folder.write(
        "none.mtx",
        b"%%MatrixMarket matrix coordinate pattern general\n4 4 0\n",
    );
    let cc = folder.result("cc --graph none.mtx");
    assert_eq!([&cc["components"], &cc["largest"]], [4, 1]);
    let bfs = folder.result("bfs --graph none.mtx --source 3");
    assert_eq!([&bfs["reached"], &bfs["depth"], &bfs["reads"]], [1, 0, 0]);
    folder.write("sparse.el", b"0 1\n1 9\n");
    assert_eq!(folder.result("cc --graph sparse.el")["components"], 8);
}
