//! Which charts show a report.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::chart::{Axes, Bar, DrawError, Panel, Series, bars, lines};
use super::units::{bytes, count, seconds};
use super::{Access, Cache, Iops, Outcome, Pattern, Report};

const PANEL_SIZE: (u32, u32) = (960, 420);

/// One panel of the figure, ready to be drawn.
type Draw<'a> = Box<dyn Fn(&Panel<'_>) -> Result<(), DrawError> + 'a>;

/// Draws the report as an SVG file: for iops the rate and the latency percentiles, for cache
/// the rates of hits and misses, for the others the time of each run. Runs that differ in nothing shown are one bar with a whisker.
///
/// # Errors
/// What plotters says, if it fails.
pub fn draw(report: &Report) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let panels = panels(report);
    let mut svg = String::new();
    {
        let height = PANEL_SIZE.1 * panels.len().max(1) as u32;
        let root = SVGBackend::with_string(&mut svg, (PANEL_SIZE.0, height)).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, draw) in root
            .split_evenly((panels.len().max(1), 1))
            .iter()
            .zip(&panels)
        {
            draw(area)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn panels(report: &Report) -> Vec<Draw<'_>> {
    let origin = format!("{}, runner {}", report.ssd, report.runner);
    let rows: Vec<&Iops> = report
        .results
        .iter()
        .filter_map(|outcome| {
            if let Outcome::Iops(row) = outcome {
                Some(row)
            } else {
                None
            }
        })
        .collect();
    let mut panels: Vec<Draw<'_>> = Vec::new();
    if !rows.is_empty() {
        panels.push(rates(&rows, format!("Random reads: {origin}")));
        panels.push(latencies(&rows, format!("Latency: {origin}")));
    }
    for access in [Access::Hit, Access::Miss] {
        for pattern in [Pattern::Sequential, Pattern::Scattered] {
            let rates = cache_rates(report, access, pattern);
            if !rates.is_empty() {
                let title = format!("Cache {access}, {pattern}: {origin}");
                panels.push(element_rates(rates, title));
            }
        }
    }
    let times = times(report);
    if !times.is_empty() {
        let title = format!("Kernel time: {origin}");
        panels.push(Box::new(move |panel| {
            bars(
                panel,
                &Axes {
                    title: &title,
                    x: "experiment and data",
                    y: "kernel time",
                    y_label: seconds,
                },
                &times,
            )
        }));
    }
    panels
}

/// A bar for each mode.
fn cache_rates(report: &Report, access: Access, pattern: Pattern) -> Vec<Bar> {
    let bar = |row: &Cache| Bar {
        label: row.mode(),
        values: row
            .runs
            .iter()
            .map(|seconds| row.operations as f64 / seconds)
            .collect(),
    };
    let rows = report.results.iter().filter_map(|outcome| match outcome {
        Outcome::Cache(row) if (row.access, row.pattern) == (access, pattern) => Some(row),
        _ => None,
    });
    rows.map(bar).collect()
}

fn element_rates<'a>(rates: Vec<Bar>, title: String) -> Draw<'a> {
    Box::new(move |panel| {
        bars(
            panel,
            &Axes {
                title: &title,
                x: "cache mode",
                y: "elements per second",
                y_label: count,
            },
            &rates,
        )
    })
}

/// A line for each block size if the commands in flight vary, else a bar for each.
fn rates<'a>(rows: &[&'a Iops], title: String) -> Draw<'a> {
    let mut by_block: BTreeMap<u64, Vec<(f64, &Iops)>> = BTreeMap::new();
    for row in rows {
        by_block
            .entry(row.block_bytes)
            .or_default()
            .push((f64::from(row.in_flight), *row));
    }
    let is_sweep = rows.iter().any(|row| row.in_flight != rows[0].in_flight);
    if is_sweep {
        let series: Vec<Series> = by_block
            .into_iter()
            .map(|(block, mut points)| {
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Series {
                    label: bytes(block as f64),
                    points: points.into_iter().map(|(x, row)| (x, row.iops)).collect(),
                }
            })
            .collect();
        return Box::new(move |panel| {
            lines(
                panel,
                &Axes {
                    title: &title,
                    x: "commands in flight",
                    y: "IOPS",
                    y_label: count,
                },
                &series,
                &|x| format!("{x:.0}"),
            )
        });
    }
    let series: Vec<Bar> = by_block
        .into_iter()
        .map(|(block, points)| Bar {
            label: bytes(block as f64),
            values: points
                .into_iter()
                .flat_map(|(_, row)| row.runs.clone())
                .collect(),
        })
        .collect();
    Box::new(move |panel| {
        bars(
            panel,
            &Axes {
                title: &title,
                x: "bytes of a command",
                y: "IOPS",
                y_label: count,
            },
            &series,
        )
    })
}

/// Latency over percentiles, stretched by nines: 90 %, 99 %, 99.9 % are equally far apart.
fn latencies<'a>(rows: &[&'a Iops], title: String) -> Draw<'a> {
    let nines = |quantile: f64| -(1.0 - quantile).log10();
    let series: Vec<Series> = rows
        .iter()
        .map(|row| {
            let latency = row.latency_ns;
            let points = [
                (0.5, latency.p50),
                (0.9, latency.p90),
                (0.99, latency.p99),
                (0.999, latency.p999),
            ];
            Series {
                label: format!(
                    "{}, {} in flight",
                    bytes(row.block_bytes as f64),
                    row.in_flight
                ),
                points: points
                    .into_iter()
                    .map(|(quantile, ns)| (nines(quantile), ns as f64 / 1e3))
                    .collect(),
            }
        })
        .collect();
    let percentile = |x: &f64| match x.fract() {
        0.0 => format!("{} %", 100.0 - 10f64.powf(2.0 - x)),
        _ => String::new(),
    };
    Box::new(move |panel| {
        lines(
            panel,
            &Axes {
                title: &title,
                x: "commands at least as fast",
                y: "latency [µs]",
                y_label: count,
            },
            &series,
            &percentile,
        )
    })
}

fn times(report: &Report) -> Vec<Bar> {
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for outcome in &report.results {
        let (label, seconds) = match outcome {
            Outcome::Bfs(row) => (format!("bfs {}", row.graph), row.seconds),
            Outcome::Cc(row) => (format!("cc {}", row.graph), row.seconds),
            Outcome::Rw(row) => (format!("rw {} words", row.words), row.seconds),
            Outcome::Crowd(row) => (format!("crowd of {}", row.threads), row.seconds),
            Outcome::Iops(_) | Outcome::Cache(_) => continue,
        };
        times.entry(label).or_default().push(seconds);
    }
    times
        .into_iter()
        .map(|(label, values)| Bar { label, values })
        .collect()
}
