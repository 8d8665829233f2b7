//! `cargo xtask doctor --accept`: what a person with the hardware runs before believing figures.
//!
//! Every check is an experiment of warpstore-bench that verifies its data, so that this file knows
//! nothing of SSDs: it runs, reads the JSON, and judges. It writes over the SSDs that are given.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::fio::{self, Comparison};
use crate::{bench, repo};

/// Version of the JSON file's form.
const SCHEMA: u32 = 1;
/// What fewer reads a second than fio's are still accepted.
const LEAST_OF_FIO: f64 = 0.9;

/// Arguments of the acceptance test.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Which SSD, as `bench --ssd` takes it; may be given again [default: model:p5800x]
    #[arg(long, value_name = "SSD", requires = "accept")]
    ssd: Vec<String>,
    /// Real SSDs that may be written, as `bench --yes-destroy` takes them: all on them may be lost
    #[arg(long, value_name = "SERIAL,…", requires = "accept")]
    yes_destroy: Option<String>,
    /// What executes the kernels, as `bench --runner` takes it
    #[arg(long, value_name = "RUNNER", requires = "accept")]
    runner: Option<String>,
    /// Repeat the checks for so long, each round over other data, and over more than SSDs cache
    #[arg(long, value_name = "N", requires = "accept", value_parser = clap::value_parser!(u32).range(1..))]
    minutes: Option<u32>,
    /// A block device of the kernel's, of the same kind, that fio reads for comparison
    #[arg(long, value_name = "DEVICE", requires = "accept")]
    block_device: Option<PathBuf>,
    /// Where the results go as JSON [default: target/accept/accept.json]
    #[arg(long, value_name = "FILE", requires = "accept")]
    json: Option<PathBuf>,
}

/// An experiment, what it shows, and its options besides `--ssd` and `--json`.
struct Check {
    name: &'static str,
    shows: &'static str,
    bench: &'static [&'static str],
    /// The same in rounds after the first.
    again: &'static [&'static str],
}

/// The check whose rate is compared with fio's.
const RATED: &str = "ordering, 4 KiB";

/// What later rounds read and write: beyond what SSDs keep in memory of their own.
const SPAN: &str = "1G";
/// Operations of a later soak: one for some hundred words of the span.
const OPS: &str = "262144";

/// The checks of every SSD, in order.
const CHECKS: [Check; 5] = [
    Check {
        name: "checksum soak",
        shows: "every word that was written and added is on the media",
        bench: &["rw"],
        again: &["rw", "--span", SPAN, "--ops", OPS],
    },
    Check {
        name: "checksum soak, 64 KiB",
        shows: "the same again, over other words and by larger commands",
        bench: &["rw", "--line", "65536"],
        again: &["rw", "--line", "65536", "--span", SPAN, "--ops", OPS],
    },
    Check {
        name: "ordering, cached",
        shows: "a graph search that reads each line the moment its completion is seen",
        bench: &["bfs"],
        again: &["bfs"],
    },
    Check {
        name: RATED,
        shows: "the data of a block is there when its completion is",
        bench: &["iops", "--block", "4096"],
        again: &["iops", "--block", "4096", "--span", SPAN],
    },
    Check {
        name: "ordering, 64 KiB",
        shows: "the same where data takes longer than its completion",
        bench: &["iops", "--block", "65536"],
        again: &["iops", "--block", "65536", "--span", SPAN],
    },
];

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Judged {
    ssd: String,
    check: &'static str,
    /// How often it was made.
    rounds: u32,
    verdict: Verdict,
    /// What it shows, or why it failed or was skipped.
    detail: String,
    /// Reads a second, where that was measured.
    iops: Option<f64>,
    /// What is modelled and not measured, as the experiment says.
    modelled: Vec<String>,
    /// The command that repeats it.
    command: String,
}

/// The result.
#[derive(Debug, Serialize)]
struct Acceptance {
    schema: u32,
    experiment: &'static str,
    accepted: bool,
    checks: Vec<Judged>,
}

/// Runs warpstore-bench with these arguments and returns its exit status.
type Bench<'a> = &'a dyn Fn(&[OsString]) -> Result<Option<i32>>;

/// What the checks are made with.
struct Tools<'a> {
    bench: Bench<'a>,
    /// Reads a second of fio.
    compare: &'a dyn Fn() -> Result<Comparison>,
    /// Whether there shall be a round of this number; the first is made anyhow.
    another: &'a dyn Fn(u32) -> bool,
}

/// Runs the test, prints the result and saves it.
///
/// # Errors
/// A check failed, or the result cannot be saved.
pub fn run(args: &Args) -> Result<()> {
    let folder = repo::target().join("accept");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let bench = |words: &[OsString]| {
        let mut command = bench::command(bench::PROGRAM, words)?;
        // The tables are in the reports; progress and errors stay on stderr.
        command.stdout(Stdio::null());
        let status = command.status().context("cannot start cargo")?;
        Ok(status.code())
    };
    let compare = || fio::reads("fio", args.block_device.as_deref());
    let begin = Instant::now();
    let another = |round| {
        let spent = begin.elapsed();
        let minutes = args.minutes.unwrap_or(0);
        let goes_on = spent < Duration::from_secs(60) * minutes;
        if goes_on {
            let spent = spent.as_secs() / 60;
            println!("round {round}, after {spent} of {minutes} minutes");
        }
        goes_on
    };
    let tools = Tools {
        bench: &bench,
        compare: &compare,
        another: &another,
    };
    let acceptance = accept(args, &folder, &tools);
    print!("{acceptance}");
    let json = args.json.clone();
    let json = json.unwrap_or_else(|| folder.join("accept.json"));
    let text = serde_json::to_string_pretty(&acceptance)?;
    fs::write(&json, text + "\n").with_context(|| json.display().to_string())?;
    println!("results: {}", json.display());
    if acceptance.accepted {
        return Ok(());
    }
    bail!("not accepted: a check failed")
}

fn accept(args: &Args, folder: &Path, tools: &Tools<'_>) -> Acceptance {
    let default = ["model:p5800x".to_owned()];
    let ssds: &[String] = if args.ssd.is_empty() {
        &default
    } else {
        &args.ssd
    };
    let given = [
        ("--yes-destroy", &args.yes_destroy),
        ("--runner", &args.runner),
    ];
    let given = given
        .iter()
        .filter_map(|(name, value)| Some([*name, value.as_deref()?]));
    let options: Vec<&str> = given.flatten().collect();
    let json = folder.join("check.json");
    let one =
        |ssd: &str, number: usize, round| judge(ssd, &options, number, round, &json, tools.bench);
    let all = |ssd: &String| {
        (0..CHECKS.len())
            .map(|number| one(ssd, number, 1))
            .collect()
    };
    let mut by_ssd: Vec<Vec<Judged>> = ssds.iter().map(all).collect();
    let mut round = 2;
    while by_ssd.iter().flatten().all(Judged::passed) && (tools.another)(round) {
        for checks in &mut by_ssd {
            for (number, judged) in checks.iter_mut().enumerate() {
                let again = one(&judged.ssd, number, round);
                judged.rounds = round;
                if !again.passed() {
                    *judged = again;
                }
            }
        }
        round += 1;
    }
    for (ssd, checks) in ssds.iter().zip(&mut by_ssd) {
        let measured = checks.iter().find(|judged| judged.check == RATED);
        let ours = measured.and_then(|judged| judged.iops);
        checks.push(judge_rate(ssd, ours, tools.compare));
    }
    let checks: Vec<Judged> = by_ssd.into_iter().flatten().collect();
    Acceptance {
        schema: SCHEMA,
        experiment: "accept",
        accepted: checks
            .iter()
            .all(|judged| judged.verdict != Verdict::Failed),
        checks,
    }
}

impl Judged {
    fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }
}

/// Runs the experiment of check `number`, with random choices that no other round makes, and looks at
/// what it reports.
fn judge(
    ssd: &str,
    options: &[&str],
    number: usize,
    round: u32,
    json: &Path,
    bench: Bench<'_>,
) -> Judged {
    let check = &CHECKS[number];
    let seed = (round as usize - 1) * CHECKS.len() + number + 1;
    let seed = seed.to_string();
    let experiment = if round == 1 { check.bench } else { check.again };
    let words = experiment.iter().copied();
    let words = words.chain(["--seed", &seed, "--ssd", ssd]);
    let words: Vec<&str> = words.chain(options.iter().copied()).collect();
    let mut judged = Judged {
        ssd: ssd.to_owned(),
        check: check.name,
        rounds: round,
        verdict: Verdict::Failed,
        detail: String::new(),
        iops: None,
        modelled: Vec::new(),
        command: format!("cargo xtask bench {}", words.join(" ")),
    };
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    words.extend(["--json".into(), json.into()]);
    match report(&words, json, bench) {
        Ok(report) if report["verified"] == true => {
            judged.verdict = Verdict::Passed;
            judged.detail = check.shows.to_owned();
            judged.iops = report["results"][0]["iops"].as_f64();
            let modelled = report["modelled"].as_array().into_iter().flatten();
            let modelled = modelled.filter_map(|fact| fact.as_str());
            judged.modelled = modelled.map(str::to_owned).collect();
        }
        Ok(_) => judged.detail = "nothing was verified".to_owned(),
        Err(error) => judged.detail = format!("{error:#}"),
    }
    judged
}

/// The report of an experiment that ended well.
fn report(words: &[OsString], json: &Path, bench: Bench<'_>) -> Result<Value> {
    // What an earlier run left must not pass for this one's.
    if json.exists() {
        fs::remove_file(json).with_context(|| json.display().to_string())?;
    }
    match bench(words)? {
        Some(0) => {}
        Some(3) => bail!("the data is wrong"),
        Some(status) => bail!("it ended with exit status {status}; its message is above"),
        None => bail!("it was killed"),
    }
    let text = fs::read_to_string(json).with_context(|| json.display().to_string())?;
    serde_json::from_str(&text).context("its report is no JSON")
}

/// Compares reads a second with what the kernel's driver gets.
fn judge_rate(ssd: &str, ours: Option<f64>, compare: &dyn Fn() -> Result<Comparison>) -> Judged {
    let (verdict, detail) = match (ours, compare()) {
        (None, _) => (
            Verdict::Skipped,
            "there is no figure of ours to compare".to_owned(),
        ),
        (_, Ok(Comparison::Skipped(why))) => (Verdict::Skipped, why),
        (_, Err(error)) => (Verdict::Failed, format!("{error:#}")),
        (Some(ours), Ok(Comparison::Reads(theirs))) => {
            let verdict = if ours >= LEAST_OF_FIO * theirs {
                Verdict::Passed
            } else {
                Verdict::Failed
            };
            (verdict, format!("{ours:.0} reads/s, fio {theirs:.0}"))
        }
    };
    Judged {
        ssd: ssd.to_owned(),
        check: "rate against fio",
        rounds: 1,
        verdict,
        detail,
        iops: ours,
        modelled: Vec::new(),
        command: String::new(),
    }
}

impl fmt::Display for Acceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for judged in &self.checks {
            let verdict = match judged.verdict {
                Verdict::Passed => "passed",
                Verdict::Failed => "FAILED",
                Verdict::Skipped => "skipped",
            };
            let rounds = match judged.rounds {
                1 => String::new(),
                rounds => format!(" ({rounds} rounds)"),
            };
            writeln!(
                f,
                "{verdict:8} {:22} {:24} {}{rounds}",
                judged.ssd, judged.check, judged.detail
            )?;
        }
        let facts = self.checks.iter().flat_map(|judged| &judged.modelled);
        for fact in facts.collect::<BTreeSet<_>>() {
            writeln!(f, "modelled: {fact}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
