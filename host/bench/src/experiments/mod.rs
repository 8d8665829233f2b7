//! The experiments: each builds a session, runs its kernels, verifies and reports.

mod cache;
mod crowd;
mod graphs;
mod iops;
mod plan;
mod rw;
mod volume;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use warpstore_graph::{Budget, Graph};
use warpstore_volume::Description;

use crate::exit::Failure;
use crate::machine::Machine;
use crate::options::{Experiment, Options};
use crate::report::{self, Failed, Outcome, Report, SCHEMA};
use plan::Plan;
pub(crate) use plan::passing_faults;
use warpstore_terminal::Progress;

/// The graph of the main job.
const SHIPPED_GRAPH: &str = "tests/data/email-enron.el.gz";

/// What an experiment brings home.
pub(crate) struct Finding {
    /// What is reported.
    pub outcome: Outcome,
    /// How the result differs from the plain implementation's, if it does.
    pub wrong: Option<String>,
    /// What there is to say about where the figures come from.
    pub remarks: Vec<String>,
}

/// A difference between the commands that the SSDs failed and those that were seen to fail.
pub(crate) fn uncounted(experiment: &str, failed: Option<Failed>) -> Option<String> {
    let Failed { injected, seen } = failed?;
    (injected != seen).then(|| {
        format!("{experiment}: the SSDs failed {injected} commands, {seen} were seen to fail")
    })
}

/// Runs what the options ask for.
///
/// # Errors
/// A wrong combination, a file or machine that is not as it must be, or a wrong result.
pub fn run(options: &Options) -> Result<(), Failure> {
    if let (Some(members), Some(array)) = (&options.volume, &options.array) {
        let (options, graph) = volume::read(options, members, array)?;
        return run_on(&options, || Ok(graph));
    }
    run_on(options, || graph_of(options))
}

/// The same with a graph, if there is need of one.
fn run_on(
    options: &Options,
    graph: impl FnOnce() -> Result<NamedGraph, Failure>,
) -> Result<(), Failure> {
    let plan = Plan::make(options)?;
    let mut findings = Vec::new();
    match options.experiment {
        Some(Experiment::Iops) => findings.push(iops::run(&plan)?),
        Some(Experiment::Cache) => findings.extend(cache::run(&plan)?),
        Some(Experiment::Rw) => findings.push(rw::run(&plan)?),
        Some(Experiment::Crowd) => findings.push(crowd::run(&plan)?),
        Some(Experiment::Bfs) => findings.push(graphs::bfs(&plan, &graph()?)?),
        Some(Experiment::Cc) => findings.push(graphs::cc(&plan, &graph()?)?),
        None => {
            findings.push(iops::run(&plan)?);
            let graph = graph()?;
            findings.push(graphs::bfs(&plan, &graph)?);
            findings.push(graphs::cc(&plan, &graph)?);
        }
    }
    conclude(options, &plan, findings)
}

/// A graph and what it is called.
pub(crate) struct NamedGraph {
    pub name: String,
    pub file: PathBuf,
    pub graph: Graph,
    /// The volume that it was read from, if it was.
    pub volume: Option<Description>,
}

/// Reads the graph that the options name, or the shipped one.
fn graph_of(options: &Options) -> Result<NamedGraph, Failure> {
    let file = options.graph.clone().unwrap_or_else(shipped_graph);
    let progress = Progress::begin(format!("read {}", file.display()), 0);
    let graph = warpstore_graph::open(&file, Budget::of_machine()).map_err(anyhow::Error::from)?;
    progress.end(&format!(
        "{} vertices, {} edges",
        graph.vertices(),
        graph.edges().len()
    ));
    let name = file
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into());
    Ok(NamedGraph {
        name,
        file,
        graph,
        volume: None,
    })
}

/// The shipped graph: below the working directory, where a copy of the binary runs beside a
/// checkout, else where the source was when the binary was built.
fn shipped_graph() -> PathBuf {
    let here = PathBuf::from(SHIPPED_GRAPH);
    if here.exists() {
        return here;
    }
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(SHIPPED_GRAPH)
}

/// Prints, writes and draws; then says whether everything was right.
fn conclude(options: &Options, plan: &Plan, findings: Vec<Finding>) -> Result<(), Failure> {
    let wrong: Vec<String> = findings
        .iter()
        .filter_map(|finding| finding.wrong.clone())
        .collect();
    let mut modelled = plan.modelled();
    for remark in findings.iter().flat_map(|finding| &finding.remarks) {
        if !modelled.contains(remark) {
            modelled.push(remark.clone());
        }
    }
    let report = Report {
        schema: SCHEMA,
        experiment: options
            .experiment
            .map_or_else(|| "main".into(), |name| name.to_string()),
        runner: plan.runner,
        ssd: options.ssd.to_string(),
        machine: Machine {
            gpu: plan.gpu.clone(),
            driver: plan.driver.clone(),
            ..Machine::this()
        },
        verified: wrong.is_empty() && plan.verifiable(),
        modelled,
        configuration: plan.described(),
        results: findings
            .into_iter()
            .map(|finding| finding.outcome)
            .collect(),
    };
    // Whoever closed stdout does not want to read on.
    let _ = std::io::stdout().write_all(report::render(&report).as_bytes());
    let files = Files::of(options, &report.experiment)?;
    report::save_json(&files.json, &report).map_err(anyhow::Error::from)?;
    let mut written = files.json.display().to_string();
    if let Some(plot) = &files.plot {
        let drawing = report::draw(&report)
            .map_err(|error| anyhow::anyhow!("{error}"))
            .context("cannot draw the results")?;
        report::save(plot, drawing.as_bytes()).map_err(anyhow::Error::from)?;
        written.push_str(&format!(" and {}", plot.display()));
    }
    let _ = writeln!(std::io::stdout(), "\nresults: {written}");
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::Verification(wrong.join("; "))),
    }
}

/// Where the results go.
struct Files {
    json: PathBuf,
    plot: Option<PathBuf>,
}

impl Files {
    /// What the options say; else a folder beside the binary, and the plot beside the JSON file.
    fn of(options: &Options, experiment: &str) -> Result<Self, Failure> {
        let json = match &options.json {
            Some(file) => file.clone(),
            None => {
                let binary = std::env::current_exe().context("cannot find the binary's folder")?;
                let folder = binary.with_file_name("results");
                std::fs::create_dir_all(&folder)
                    .with_context(|| format!("cannot make {}; use --json", folder.display()))?;
                folder.join(format!("{experiment}.json"))
            }
        };
        let beside = || match json.extension() {
            // Nothing lies beside a device or a pipe.
            _ if json.exists() && !json.is_file() => None,
            // Never the same file twice.
            Some(extension) if extension == "svg" => Some(json.with_extension("plot.svg")),
            _ => Some(json.with_extension("svg")),
        };
        let plot = options.plot.clone().or_else(beside);
        Ok(Self { json, plot })
    }
}
