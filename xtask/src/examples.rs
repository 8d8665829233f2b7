//! `cargo xtask test examples`: the projects under `examples/`, used as their owners would.
//!
//! They are no members of the workspace, so that they show what a project of a user's needs. Each
//! has its own lock file, which follows warpstore's dependencies as a user's would; only the target
//! folder is shared, to compile other people's crates once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{doctor, repo, setup};

/// What is done with a project, as arguments of cargo before and after its options.
const USES: [(&[&str], &[&str]); 2] = [
    (&["test", "--workspace"], &[]),
    (&["run"], &["--", "--runner", "threads"]),
];

/// Tests and runs each project, on host threads and, if there is one, on a GPU.
///
/// # Errors
/// One of them does not build, fails a test, or computes something wrong.
pub fn run() -> Result<()> {
    let toolchain = setup::ready()?;
    let has_gpu = doctor::has_gpu();
    let projects = projects(&repo::root().join("examples"))?;
    ensure!(!projects.is_empty(), "there is no project under examples/");
    for project in &projects {
        let use_it = |(first, last): (&[&str], &[&str])| {
            let mut cargo = toolchain.cargo();
            cargo.current_dir(project).args(first);
            cargo.arg("--release").args(last);
            repo::run(cargo.env("CARGO_TARGET_DIR", repo::target()))
        };
        println!("example: {}", project.display());
        USES.into_iter().try_for_each(use_it)?;
        if has_gpu {
            use_it((&["run"], &["--", "--runner", "cuda"]))?;
        } else {
            println!("SKIPPED: no GPU on this machine, so the example ran on host threads only");
        }
    }
    println!("{} examples passed", projects.len());
    Ok(())
}

/// The folders that hold a workspace of their own.
fn projects(examples: &Path) -> Result<Vec<PathBuf>> {
    let about = || format!("cannot list {}", examples.display());
    let mut projects = Vec::new();
    for entry in fs::read_dir(examples).with_context(about)? {
        let folder = entry.with_context(about)?.path();
        if folder.join("Cargo.toml").is_file() {
            projects.push(folder);
        }
    }
    projects.sort();
    Ok(projects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projects_of_the_repository_are_found() {
        let found = projects(&repo::root().join("examples")).unwrap();
        assert!(
            found
                .iter()
                .any(|folder| folder.ends_with("embedding-gather"))
        );
        assert!(projects(&repo::root().join("no-examples")).is_err());
    }
}
