//! `cargo xtask ci`: what CI runs, in CI's order, so that a red CI is reproduced by one line.
//!
//! It stops at the first red step and names it. A step whose tool this machine lacks is skipped
//! aloud and listed again at the end. The last line is the tests' `N passed, N failed`.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::toolchain::Toolchain;
use crate::{fuzz, qemu, repo, setup};

/// One thing that must be green.
struct Step {
    name: &'static str,
    /// Arguments of cargo.
    cargo: &'static [&'static str],
    needs: Needs,
}

/// What a step cannot do without.
#[derive(Clone, Copy)]
enum Needs {
    Cargo,
    Tool(&'static str),
    Cpp,
    Ptxas,
    Qemu,
}

impl Needs {
    /// The missing tool, if it is missing.
    fn missing(self, toolchain: &Toolchain) -> Option<&'static str> {
        match self {
            Self::Cargo => None,
            Self::Tool(tool) => (!toolchain.has(tool)).then_some(tool),
            Self::Cpp => (!fuzz::has_cpp()).then_some("C++ compiler (c++)"),
            Self::Ptxas => toolchain.ptxas.is_none().then_some("ptxas"),
            Self::Qemu => qemu::find().is_none().then_some("QEMU"),
        }
    }
}

const STEPS: [Step; 13] = [
    Step {
        name: "fmt",
        cargo: &["fmt", "--all", "--check"],
        needs: Needs::Tool("cargo-fmt"),
    },
    Step {
        name: "clippy",
        cargo: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        needs: Needs::Tool("cargo-clippy"),
    },
    Step {
        name: "tidy",
        cargo: &["xtask", "tidy"],
        needs: Needs::Cargo,
    },
    Step {
        name: "doc",
        cargo: &["doc", "--workspace", "--no-deps"],
        needs: Needs::Cargo,
    },
    Step {
        name: "build --ptx",
        cargo: &["xtask", "build", "--ptx"],
        needs: Needs::Cargo,
    },
    Step {
        name: "test",
        cargo: &["xtask", "test"],
        needs: Needs::Cargo,
    },
    Step {
        name: "test qemu",
        cargo: &["xtask", "test", "qemu"],
        needs: Needs::Qemu,
    },
    Step {
        name: "test mutants",
        cargo: &["xtask", "test", "mutants"],
        needs: Needs::Cargo,
    },
    Step {
        name: "test examples",
        cargo: &["xtask", "test", "examples"],
        needs: Needs::Cargo,
    },
    Step {
        name: "test fuzz",
        cargo: &["xtask", "test", "fuzz", "10"],
        needs: Needs::Cpp,
    },
    Step {
        name: "bench",
        cargo: &["xtask", "bench"],
        needs: Needs::Cargo,
    },
    Step {
        name: "doctor --accept",
        cargo: &["xtask", "doctor", "--accept"],
        needs: Needs::Cargo,
    },
    Step {
        name: "bench registers",
        cargo: &["xtask", "bench", "registers"],
        needs: Needs::Ptxas,
    },
];

/// Runs the steps.
///
/// # Errors
/// The first step that is red.
pub fn run() -> Result<()> {
    setup::run()?;
    let toolchain = setup::ready()?;
    let (mut skipped, mut summary) = (Vec::new(), None);
    for step in &STEPS {
        println!("\n==> {}", step.name);
        if let Some(tool) = step.needs.missing(&toolchain) {
            println!("==> {} SKIPPED: no {tool} on this machine", step.name);
            skipped.push(step.name);
            continue;
        }
        let begun = Instant::now();
        let mut cargo = toolchain.cargo();
        // Documentation that does not build cleanly is red; other steps ignore the variable.
        cargo.args(step.cargo).env("RUSTDOCFLAGS", "-Dwarnings");
        let green = repo::stream(&mut cargo, |line| {
            let line = line.trim_end();
            if step.name == "test" && is_summary(line) {
                summary = Some(line.to_owned());
            }
        })?;
        println!("==> {}: {:.1} s", step.name, begun.elapsed().as_secs_f64());
        if !green {
            print_summary(summary.as_deref());
            bail!("ci: step `{}` is red", step.name);
        }
    }
    if !skipped.is_empty() {
        println!("\n==> skipped on this machine: {}", skipped.join(", "));
    }
    print_summary(summary.as_deref());
    Ok(())
}

fn print_summary(summary: Option<&str>) {
    if let Some(summary) = summary {
        println!("{summary}");
    }
}

/// Whether a line is the one that `cargo xtask test` ends with.
fn is_summary(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    matches!(words[..], [passed, "passed,", failed, "failed"]
        if passed.parse::<u64>().is_ok() && failed.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Totals;

    #[test]
    fn the_summary_of_the_tests_is_recognised() {
        assert!(is_summary(
            &Totals {
                passed: 12,
                failed: 3
            }
            .to_string()
        ));
        assert!(!is_summary("test result: ok. 12 passed; 3 failed"));
        assert!(!is_summary("some passed, 3 failed"));
    }

    #[test]
    fn the_test_step_is_the_readme_command() {
        let step = STEPS.iter().find(|step| step.name == "test").unwrap();
        assert_eq!(step.cargo, ["xtask", "test"]);
    }
}
