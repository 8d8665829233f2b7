//! Tests of the report: tables, JSON and plots.

use super::*;
use crate::options::{CacheMode, Layout, Queue, Runner};

fn report(results: Vec<Outcome>) -> Report {
    Report {
        schema: SCHEMA,
        experiment: "main".into(),
        runner: Runner::Threads,
        ssd: "model:p5800x,media=ram,lba=512".into(),
        machine: Machine {
            cpu: Some("A CPU".into()),
            cores: 2,
            memory_bytes: Some(16 << 30),
            gpu: None,
            driver: None,
            os: Some("Linux 6.1".into()),
        },
        verified: true,
        modelled: vec!["the SSD's time".into()],
        configuration: Configuration {
            ssds: 3,
            layout: Layout::Stripe,
            stripe_bytes: 4096,
            lba_bytes: Some(512),
            queue: Queue::Hop,
            queues: 4,
            depth: 64,
            threads: Some(64),
            controller_sms: None,
            placement: Placement::Direct,
            doorbells: None,
            serving_threads: None,
            line_bytes: 4096,
            cache_lines: Some(7),
            cache_mode: Some(CacheMode::Optimistic),
            timeout_seconds: 5.0,
            seed: 1,
        },
        results,
    }
}

fn iops(block_bytes: u64, in_flight: u32, iops: f64) -> Outcome {
    let mut recorded = Histogram::new(3).unwrap();
    for ns in 1..=1000u64 {
        recorded.record(ns * u64::from(in_flight)).unwrap();
    }
    Outcome::Iops(Iops {
        iops,
        bandwidth_bytes_per_s: iops * block_bytes as f64,
        block_bytes,
        threads: 64,
        registers: None,
        queues: 4,
        depth: 64,
        in_flight,
        latency_ns: Latency::of(&recorded),
        commands: 100_000,
        seconds: 0.25,
        runs: vec![4.0e6, 5.0e6, 5.5e6],
        limit: Some(Limit {
            iops: 1.5e6,
            by: "the profile".into(),
        }),
    })
}

fn bfs(seconds: f64) -> Outcome {
    Outcome::Bfs(Bfs {
        graph: "email-enron.el.gz".into(),
        source: 0,
        reached: 33_696,
        depth: 9,
        distance_sum: 146_222,
        seconds,
        reads: Some(1200),
        bytes_read: Some(1200 * 4096),
        failed: None,
    })
}

fn cc() -> Outcome {
    Outcome::Cc(Cc {
        graph: "email-enron.el.gz".into(),
        components: 1065,
        largest: 33_696,
        seconds: 2.0,
        reads: None,
        bytes_read: None,
        failed: None,
    })
}

fn cache(mode: Option<CacheMode>, access: Access, pattern: Pattern) -> Outcome {
    Outcome::Cache(Cache {
        mode,
        access,
        pattern,
        array_bytes: 1 << 20,
        cache_lines: 512,
        operations: 1_000_000,
        per_second: 2e9,
        seconds: 5e-4,
        runs: vec![4e-4, 5e-4, 6e-4],
        threads: 64,
        registers: Some(64),
        reads: Some(0),
        bytes_read: Some(0),
    })
}

#[test]
fn cache_modes_have_their_names_everywhere() {
    let report = report(vec![
        cache(None, Access::Hit, Pattern::Scattered),
        cache(Some(CacheMode::BamReuse), Access::Hit, Pattern::Scattered),
        cache(Some(CacheMode::Naive), Access::Miss, Pattern::Sequential),
    ]);
    let table = render(&report);
    for name in [
        "plain loads, scattered",
        "bam+reuse hits, scattered",
        "naive misses, sequential",
        "2 G/s",
    ] {
        assert!(table.contains(name), "{table}");
    }
    let figure = draw(&report).unwrap();
    for name in [
        "Cache hits, scattered",
        "Cache misses, sequential",
        "bam+reuse",
    ] {
        assert!(figure.contains(name), "{name}");
    }
    let json = serde_json::to_value(&report.results).unwrap();
    assert!(json[0]["mode"].is_null());
    assert_eq!(json[1]["mode"], "bam+reuse");
    assert_eq!(json[2]["access"], "miss");
}

#[test]
fn the_json_file_has_the_documented_fields() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("out.json");
    save_json(&file, &report(vec![bfs(1.0), cc(), iops(512, 32, 1e6)])).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for field in [
        "schema",
        "experiment",
        "runner",
        "ssd",
        "machine",
        "verified",
        "modelled",
        "configuration",
        "results",
    ] {
        assert!(value.get(field).is_some(), "{field}");
    }
    assert_eq!(
        (&value["schema"], &value["runner"], &value["verified"]),
        (&1.into(), &"threads".into(), &true.into())
    );
    assert!(value["machine"]["gpu"].is_null());
    assert_eq!(value["results"][0]["experiment"], "bfs");
    assert_eq!(value["results"][0]["distance_sum"], 146_222);
    assert_eq!(value["results"][1]["components"], 1065);
    // The histogram keeps three significant digits.
    let max = value["results"][2]["latency_ns"]["max"].as_u64().unwrap();
    assert!((32_000..32_032).contains(&max), "{max}");
    for (index, fields) in [
        (
            0,
            &[
                "reached",
                "depth",
                "distance_sum",
                "seconds",
                "reads",
                "bytes_read",
            ][..],
        ),
        (
            1,
            &["components", "largest", "seconds", "reads", "bytes_read"],
        ),
        (
            2,
            &[
                "iops",
                "bandwidth_bytes_per_s",
                "block_bytes",
                "threads",
                "queues",
                "depth",
                "in_flight",
                "latency_ns",
                "commands",
                "seconds",
                "limit",
            ],
        ),
    ] {
        for field in fields {
            assert!(value["results"][index].get(field).is_some(), "{field}");
        }
    }
}

#[test]
fn tables_show_machine_model_units_and_every_result() {
    let text = render(&report(vec![iops(512, 32, 1.25e6), bfs(0.5), cc()]));
    for part in [
        "A CPU (2 cores, 16 GiB), no GPU used",
        "3 × model:p5800x",
        "modelled: the SSD's time",
        "1.25 M",
        "610 MiB/s",
        "146222",
        "500 ms",
        "4.69 MiB",
        "1065",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!render(&report(vec![cc()])).contains("IOPS"));
    let unverified = Report {
        verified: false,
        ..report(vec![cc()])
    };
    assert!(render(&unverified).contains("NOT verified"));
}

#[test]
fn figures_have_a_panel_for_each_kind_of_result() {
    let bars = draw(&report(vec![
        iops(512, 32, 1e6),
        iops(512, 32, 1.3e6),
        iops(4096, 32, 8e5),
        bfs(1.0),
        bfs(1.5),
        cc(),
    ]))
    .unwrap();
    for part in [
        "<svg",
        "Random reads",
        "512 B",
        "4 KiB",
        "latency [µs]",
        "99.9",
        "bfs email-enron.el.gz",
        "kernel time",
        "</svg>",
    ] {
        assert!(bars.contains(part), "{part}");
    }
    let sweep = draw(&report(
        (5..12)
            .map(|log| iops(512, 1 << log, 1e5 * f64::from(log)))
            .collect(),
    ))
    .unwrap();
    assert!(sweep.contains("commands in flight") && !sweep.contains("kernel time"));
}

#[test]
fn every_bar_is_drawn() {
    let bars_of = |results| {
        let drawing = draw(&report(results)).unwrap();
        drawing
            .matches("fill=\"#0072B2\" stroke=\"none\"/>")
            .count()
    };
    assert_eq!(bars_of(vec![bfs(1.0)]), 1);
    assert_eq!(bars_of(vec![bfs(1.0), cc()]), 2);
}

#[test]
fn odd_values_can_be_drawn() {
    for results in [
        vec![],
        vec![iops(512, 1, 0.0)],
        vec![bfs(0.0)],
        vec![iops(512, 1, f64::NAN), bfs(f64::INFINITY)],
    ] {
        assert!(draw(&report(results)).unwrap().ends_with("</svg>\n"));
    }
}
