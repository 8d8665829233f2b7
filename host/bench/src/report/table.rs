//! Reports for the console.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use super::units::{bytes, count, seconds};
use super::{Bfs, Cache, Cc, Iops, Outcome, Report, Rw};

/// The report as text: where it ran, what was modelled, and a table for each experiment.
pub fn render(report: &Report) -> String {
    let mut text = heading(report);
    let tables = [
        table(
            &IOPS,
            rows(report, |outcome| match outcome {
                Outcome::Iops(row) => Some(iops(row)),
                _ => None,
            }),
        ),
        table(
            &CACHE,
            rows(report, |outcome| match outcome {
                Outcome::Cache(row) => Some(cache(row)),
                _ => None,
            }),
        ),
        table(
            &RW,
            rows(report, |outcome| match outcome {
                Outcome::Rw(row) => Some(rw(row)),
                _ => None,
            }),
        ),
        table(
            &CROWD,
            rows(report, |outcome| match outcome {
                Outcome::Crowd(row) => Some(rw(row)),
                _ => None,
            }),
        ),
        table(
            &BFS,
            rows(report, |outcome| match outcome {
                Outcome::Bfs(row) => Some(bfs(row)),
                _ => None,
            }),
        ),
        table(
            &CC,
            rows(report, |outcome| match outcome {
                Outcome::Cc(row) => Some(cc(row)),
                _ => None,
            }),
        ),
    ];
    for table in tables.into_iter().filter(|table| !table.is_empty()) {
        let _ = write!(text, "\n{table}\n");
    }
    text
}

/// The results of one kind, as rows.
fn rows<const N: usize>(
    report: &Report,
    row: fn(&Outcome) -> Option<[String; N]>,
) -> impl Iterator<Item = [String; N]> {
    report.results.iter().filter_map(row)
}

fn heading(report: &Report) -> String {
    let machine = &report.machine;
    let memory = machine
        .memory_bytes
        .map_or_else(String::new, |memory| format!(", {}", bytes(memory as f64)));
    let gpu = machine.gpu.as_deref().unwrap_or("no GPU used");
    let verified = if report.verified {
        "every result agrees with the plain CPU implementation"
    } else {
        "NOT verified"
    };
    let mut text = format!(
        "{}: runner {}, {} × {}\nmachine: {} ({} cores{memory}), {gpu}\nverified: {verified}\n",
        report.experiment,
        report.runner,
        report.configuration.ssds,
        report.ssd,
        machine.cpu.as_deref().unwrap_or("unknown CPU"),
        machine.cores,
    );
    for fact in &report.modelled {
        let _ = writeln!(text, "modelled: {fact}");
    }
    text
}

const IOPS: [&str; 12] = [
    "block",
    "IOPS",
    "bandwidth",
    "limit",
    "threads",
    "queues × depth",
    "in flight",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "commands",
];
const CACHE: [&str; 9] = [
    "reads",
    "per second",
    "array",
    "cache lines",
    "threads",
    "registers",
    "elements",
    "time",
    "reads of SSDs",
];
const RW: [&str; 9] = [
    "operations",
    "per second",
    "words",
    "threads",
    "time",
    "flush",
    "reads",
    "writes",
    "bytes moved",
];
const CROWD: [&str; 9] = {
    let mut header = RW;
    header[0] = "the crowd's operations";
    header
};
const BFS: [&str; 8] = [
    "bfs of",
    "source",
    "reached",
    "depth",
    "sum of distances",
    "time",
    "reads",
    "bytes read",
];
const CC: [&str; 6] = [
    "cc of",
    "components",
    "largest",
    "time",
    "reads",
    "bytes read",
];

/// Stands where a value is not known.
const UNKNOWN: &str = "–";

fn known(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

fn known_bytes(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| bytes(value as f64))
}

fn iops(row: &Iops) -> [String; 12] {
    let nanoseconds = |value: u64| seconds(value as f64 * 1e-9);
    let limit = row.limit.as_ref().map_or_else(
        || UNKNOWN.to_owned(),
        |limit| format!("{} ({})", count(limit.iops), limit.by),
    );
    [
        bytes(row.block_bytes as f64),
        count(row.iops),
        format!("{}/s", bytes(row.bandwidth_bytes_per_s)),
        limit,
        row.threads.to_string(),
        format!("{} × {}", row.queues, row.depth),
        row.in_flight.to_string(),
        nanoseconds(row.latency_ns.p50),
        nanoseconds(row.latency_ns.p90),
        nanoseconds(row.latency_ns.p99),
        nanoseconds(row.latency_ns.p999),
        row.commands.to_string(),
    ]
}

fn cache(row: &Cache) -> [String; 9] {
    let registers = |registers: u32| registers.to_string();
    [
        row.name(),
        format!("{}/s", count(row.per_second)),
        bytes(row.array_bytes as f64),
        row.cache_lines.to_string(),
        row.threads.to_string(),
        row.registers.map_or_else(|| "–".to_owned(), registers),
        row.operations.to_string(),
        seconds(row.seconds),
        known(row.reads),
    ]
}

fn rw(row: &Rw) -> [String; 9] {
    [
        row.operations.to_string(),
        format!("{}/s", count(row.per_second)),
        row.words.to_string(),
        row.threads.to_string(),
        seconds(row.seconds),
        seconds(row.flush_seconds),
        known(row.reads),
        known(row.writes),
        known_bytes(row.bytes_moved),
    ]
}

fn bfs(row: &Bfs) -> [String; 8] {
    [
        row.graph.clone(),
        row.source.to_string(),
        row.reached.to_string(),
        row.depth.to_string(),
        row.distance_sum.to_string(),
        seconds(row.seconds),
        known(row.reads),
        known_bytes(row.bytes_read),
    ]
}

fn cc(row: &Cc) -> [String; 6] {
    [
        row.graph.clone(),
        row.components.to_string(),
        row.largest.to_string(),
        seconds(row.seconds),
        known(row.reads),
        known_bytes(row.bytes_read),
    ]
}

/// A table, or nothing if there are no rows. All columns but the first hold numbers.
fn table<const N: usize>(header: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_header(header)
        .add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if table.is_empty() {
        String::new()
    } else {
        table.to_string()
    }
}
