//! `cargo xtask test mutants`: plants each known bug and checks that a test notices.
//!
//! tests/mutants.toml lists them. Each is one textual replacement in one file and the cargo
//! arguments of the test that must turn red. The work is done in a copy of the repository under
//! `target/mutants`, so the working tree is never touched:
//!
//! 1. every distinct test runs once unmutated and must pass, or its verdicts mean nothing;
//! 2. per mutant: replace, compile (a mutant that does not compile is an error of the list),
//!    run, restore.
//!
//! Caught means that a test failed. A crash without a failed test and a test that reaches the
//! time limit are not caught: such a test would not tell anybody what is wrong.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::test::Totals;
use crate::toolchain::Toolchain;
use crate::{repo, setup};

const LIST: &str = "tests/mutants.toml";
/// How long one test may run; compiling is not counted.
const LIMIT: Duration = Duration::from_secs(300);

/// The file `tests/mutants.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    mutant: Vec<Mutant>,
}

/// A known bug and the test that must notice it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// What is broken.
    pub name: String,
    /// The rule of docs/memory-model.md that the bug breaks.
    pub rule: String,
    /// Relative to the root.
    pub file: PathBuf,
    /// Occurs in the file exactly once.
    pub find: String,
    /// What takes its place.
    pub replace: String,
    /// Arguments of `cargo test`.
    pub test: Vec<String>,
}

/// How a test run ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Verdict {
    Passed,
    Failed,
    Crashed,
    NothingRan,
    TimedOut,
}

/// Runs the mutants whose name contains one of `names`, all if there are none.
///
/// # Errors
/// A mutant survived, the list is wrong, or a test is not green to begin with.
pub fn run(names: &[String]) -> Result<()> {
    let text = fs::read_to_string(repo::root().join(LIST)).with_context(|| LIST.to_owned())?;
    let mut mutants = parse(&text)?;
    if mutants.is_empty() {
        println!("0 mutants: {LIST} lists none, so nothing was shown");
        return Ok(());
    }
    if !names.is_empty() {
        mutants.retain(|mutant| names.iter().any(|name| mutant.name.contains(name)));
        ensure!(
            !mutants.is_empty(),
            "no mutant of {LIST} is named like {}",
            names.join(", ")
        );
    }
    let toolchain = setup::ready()?;
    let tree = Tree::copied()?;
    let mut green: Vec<&[String]> = Vec::new();
    for mutant in &mutants {
        if !green.contains(&mutant.test.as_slice()) {
            let test = mutant.test.join(" ");
            println!("unmutated: cargo test {test}");
            let verdict = tree.test(&toolchain, &mutant.test, "unmutated")?;
            ensure!(
                verdict == Verdict::Passed,
                "`cargo test {test}` unmutated: {verdict:?}"
            );
            green.push(&mutant.test);
        }
    }
    let width = mutants
        .iter()
        .map(|mutant| mutant.name.len())
        .max()
        .unwrap_or(0);
    let mut survivors = 0;
    println!("{:width$}  {:8}  result", "mutant", "rule");
    for mutant in &mutants {
        let verdict = tree.with(mutant, || tree.test(&toolchain, &mutant.test, &mutant.name))?;
        survivors += usize::from(verdict != Verdict::Failed);
        println!(
            "{:width$}  {:8}  {}",
            mutant.name,
            mutant.rule,
            described(verdict)
        );
    }
    println!("{} mutants, {survivors} not caught", mutants.len());
    ensure!(survivors == 0, "{survivors} mutants were not caught");
    Ok(())
}

fn described(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Failed => "caught",
        Verdict::Passed => "NOT CAUGHT: every test passed",
        Verdict::Crashed => "NOT CAUGHT: the test crashed without a failed test",
        Verdict::NothingRan => "NOT CAUGHT: no test ran",
        Verdict::TimedOut => "NOT CAUGHT: the test reached its time limit",
    }
}

fn parse(text: &str) -> Result<Vec<Mutant>> {
    let list: List = toml::from_str(text).with_context(|| format!("{LIST} is malformed"))?;
    for (index, mutant) in list.mutant.iter().enumerate() {
        let twin = list.mutant[..index]
            .iter()
            .any(|other| other.name == mutant.name);
        ensure!(!twin, "{LIST}: two mutants are named {}", mutant.name);
        ensure!(
            !mutant.test.is_empty(),
            "{LIST}: mutant {} names no test",
            mutant.name
        );
    }
    Ok(list.mutant)
}

/// `text` with the one occurrence of `find` replaced.
fn mutated(text: &str, find: &str, replace: &str) -> Result<String> {
    ensure!(find != replace, "`find` and `replace` are the same");
    match text.matches(find).count() {
        1 => Ok(text.replacen(find, replace, 1)),
        count => bail!("`find` must occur once, but occurs {count} times: {find:?}"),
    }
}

/// The copy of the repository that the mutants are planted in.
pub struct Tree {
    folder: PathBuf,
    builds: PathBuf,
    logs: PathBuf,
}

impl Tree {
    /// Brings the copy up to date. Files that did not change keep their time stamps, so that
    /// cargo rebuilds only what differs; a mutation left by an interrupted run is undone.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn copied() -> Result<Self> {
        let home = repo::target().join("mutants");
        let (folder, logs) = (home.join("tree"), home.join("logs"));
        fs::create_dir_all(&logs)?;
        copy(&repo::root(), &folder, &repo::files()?)?;
        Ok(Self {
            folder,
            builds: home.join("target"),
            logs,
        })
    }

    /// The copy.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where cargo builds it.
    pub fn builds(&self) -> &Path {
        &self.builds
    }

    /// Runs `check` with the mutation in place, and takes it out again.
    ///
    /// # Errors
    /// The mutation does not fit its file, or what `check` says.
    pub fn with<T>(&self, mutant: &Mutant, check: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = self.folder.join(&mutant.file);
        let about = || format!("mutant {}, file {}", mutant.name, mutant.file.display());
        let original = fs::read_to_string(&path).with_context(about)?;
        let planted = mutated(&original, &mutant.find, &mutant.replace).with_context(about)?;
        fs::write(&path, planted).with_context(about)?;
        let verdict = check();
        fs::write(&path, original).with_context(about)?;
        verdict.with_context(about)
    }

    /// Compiles, then runs one test, its output going to a log named after `what`.
    fn test(&self, toolchain: &Toolchain, test: &[String], what: &str) -> Result<Verdict> {
        let log = self.logs.join(format!("{what}.log"));
        let cargo = || -> Result<Command> {
            let mut cargo = toolchain.cargo();
            cargo
                .current_dir(&self.folder)
                .env("CARGO_TARGET_DIR", &self.builds);
            let output = File::options().create(true).append(true).open(&log)?;
            cargo
                .stderr(output.try_clone()?)
                .stdout(output)
                .stdin(Stdio::null());
            cargo.arg("test");
            Ok(cargo)
        };
        File::create(&log).with_context(|| log.display().to_string())?;
        let (for_cargo, _) = split(test);
        let built = cargo()?.args(for_cargo).arg("--no-run").status()?;
        ensure!(
            built.success(),
            "{what} does not compile; see {}",
            log.display()
        );
        run_within(cargo()?.arg("--no-fail-fast").args(test), LIMIT, &log)
    }
}

/// What is meant for cargo and what, after `--`, for the test program.
fn split(test: &[String]) -> (&[String], &[String]) {
    test.split_at(
        test.iter()
            .position(|arg| arg == "--")
            .unwrap_or(test.len()),
    )
}

/// Runs a command whose output goes to `log` and judges it by the summaries found there.
fn run_within(command: &mut Command, limit: Duration, log: &Path) -> Result<Verdict> {
    // Its own process group: cargo's children, which hold the CPU, end with it.
    let mut child = command
        .process_group(0)
        .spawn()
        .context("cannot start the test")?;
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            repo::run(repo::command("kill").args(["-KILL", "--", &format!("-{}", child.id())]))?;
            child.wait()?;
            return Ok(Verdict::TimedOut);
        }
        thread::sleep(Duration::from_millis(20));
    };
    let mut output = Vec::new();
    File::open(log)?.read_to_end(&mut output)?;
    let mut totals = Totals::default();
    String::from_utf8_lossy(&output)
        .lines()
        .for_each(|line| totals.add(line));
    Ok(match (status.success(), totals) {
        (true, Totals { passed: 0, .. }) => Verdict::NothingRan,
        (true, _) => Verdict::Passed,
        (false, Totals { failed: 0, .. }) => Verdict::Crashed,
        (false, _) => Verdict::Failed,
    })
}

/// Makes `to` hold exactly `files` of `from`, writing only what differs.
fn copy(from: &Path, to: &Path, files: &[PathBuf]) -> Result<()> {
    for file in files {
        let (source, copy) = (from.join(file), to.join(file));
        let bytes = fs::read(&source).with_context(|| source.display().to_string())?;
        if fs::read(&copy).is_ok_and(|old| old == bytes) {
            continue;
        }
        fs::create_dir_all(copy.parent().context("a file has a folder")?)?;
        fs::write(&copy, bytes).with_context(|| copy.display().to_string())?;
    }
    remove_others(to, Path::new(""), files)
}

fn remove_others(tree: &Path, folder: &Path, files: &[PathBuf]) -> Result<()> {
    for entry in fs::read_dir(tree.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(tree, &path, files)?;
        } else if files.binary_search(&path).is_err() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_in_the_repository_applies_to_its_files() {
        let root = repo::root();
        for mutant in parse(&fs::read_to_string(root.join(LIST)).unwrap()).unwrap() {
            let text = fs::read_to_string(root.join(&mutant.file)).unwrap();
            mutated(&text, &mutant.find, &mutant.replace).expect(&mutant.name);
        }
    }

    #[test]
    fn a_replacement_must_fit_exactly_once() {
        assert_eq!(mutated("a b c", "b", "x").unwrap(), "a x c");
        assert!(
            mutated("a b b", "b", "x")
                .unwrap_err()
                .to_string()
                .contains("2 times")
        );
        assert!(mutated("a", "b", "x").is_err());
        assert!(mutated("a", "a", "a").is_err());
    }

    #[test]
    fn malformed_lists_are_refused() {
        let entry = |name: &str, test: &str| {
            format!(
                "[[mutant]]\nname = \"{name}\"\nrule = \"SQ-1\"\nfile = \"f\"\nfind = \"a\"\n\
                 replace = \"b\"\ntest = {test}\n"
            )
        };
        assert!(parse("").unwrap().is_empty());
        assert_eq!(parse(&entry("m", "[\"-p\", \"x\"]")).unwrap().len(), 1);
        assert!(parse(&entry("m", "[]")).is_err());
        assert!(parse(&entry("m", "[\"x\"]").repeat(2)).is_err());
        assert!(parse(&format!("{}speed = 1", entry("m", "[\"x\"]"))).is_err());
    }

    #[test]
    fn only_a_failed_test_counts_as_caught() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let verdict = |script: &str, limit| {
            let output = File::create(&log).unwrap();
            run_within(
                repo::command("sh").args(["-c", script]).stdout(output),
                limit,
                &log,
            )
            .unwrap()
        };
        let long = Duration::from_secs(60);
        let ok = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let red = "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'";
        assert_eq!(verdict(ok, long), Verdict::Passed);
        assert_eq!(verdict(&format!("{red}; exit 101"), long), Verdict::Failed);
        assert_eq!(verdict(&format!("{ok}; exit 101"), long), Verdict::Crashed);
        assert_eq!(verdict("true", long), Verdict::NothingRan);
        assert_eq!(
            verdict("sleep 600 | cat", Duration::from_millis(50)),
            Verdict::TimedOut
        );
    }

    #[test]
    fn the_copy_is_exact_and_leaves_equal_files_alone() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = [PathBuf::from("a/kept"), PathBuf::from("b")];
        fs::create_dir(from.path().join("a")).unwrap();
        fs::write(from.path().join("a/kept"), "same").unwrap();
        fs::write(from.path().join("b"), "old").unwrap();
        copy(from.path(), to.path(), &files).unwrap();
        let time = |file: &str| {
            fs::metadata(to.path().join(file))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = time("a/kept");
        fs::write(to.path().join("b"), "mutated").unwrap();
        fs::write(to.path().join("stray"), "").unwrap();
        copy(from.path(), to.path(), &files).unwrap();
        assert_eq!(time("a/kept"), before);
        assert_eq!(fs::read_to_string(to.path().join("b")).unwrap(), "old");
        assert!(!to.path().join("stray").exists());
    }

    #[test]
    fn a_mutation_is_taken_out_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "a").unwrap();
        let tree = Tree {
            folder: folder.path().to_owned(),
            builds: PathBuf::new(),
            logs: PathBuf::new(),
        };
        let mutant = Mutant {
            name: "m".into(),
            rule: "SQ-1".into(),
            file: "f".into(),
            find: "a".into(),
            replace: "b".into(),
            test: vec!["x".into()],
        };
        let read = || fs::read_to_string(folder.path().join("f")).unwrap();
        let verdict = tree.with(&mutant, || {
            assert_eq!(read(), "b");
            Ok(Verdict::Failed)
        });
        assert_eq!(verdict.unwrap(), Verdict::Failed);
        assert_eq!(read(), "a");
        assert!(tree.with::<()>(&mutant, || bail!("no compiler")).is_err());
        assert_eq!(read(), "a");
    }
}
