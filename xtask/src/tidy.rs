//! `cargo xtask tidy`: the house rules that a compiler does not check.
//!
//! One file per rule; each takes files, or cargo's metadata, and returns problems, so that
//! each has tests which show that it can fail. Only files that git knows, or would offer to
//! add, are looked at.

mod device;
mod edges;
mod opcodes;
mod rules;
mod snippets;
mod source;
mod text;
mod unsafety;

use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::repo;
use source::Source;

/// A broken rule.
#[derive(Debug)]
struct Problem {
    /// File and, where it has one, line.
    place: String,
    text: String,
}

impl Problem {
    fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// The text files of the repository.
struct Tree {
    /// Path and text of every file that is UTF-8.
    texts: Vec<(String, String)>,
    /// The Rust files among them, with comments and literals told apart from code.
    sources: Vec<Source>,
}

impl Tree {
    fn read() -> Result<Self> {
        let root = repo::root();
        let mut texts = Vec::new();
        for file in repo::files()? {
            let bytes = fs::read(root.join(&file)).with_context(|| file.display().to_string())?;
            if let Ok(text) = String::from_utf8(bytes) {
                texts.push((file.to_string_lossy().into_owned(), text));
            }
        }
        Ok(Self::of(texts))
    }

    fn of(texts: Vec<(String, String)>) -> Self {
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let sources = rust.map(|(path, text)| Source::new(path, text)).collect();
        Self { texts, sources }
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.texts
            .iter()
            .find(|(name, _)| name == path)
            .map(|(_, text)| text.as_str())
    }
}

/// Checks everything and prints what is wrong.
///
/// # Errors
/// A rule is broken.
pub fn run() -> Result<()> {
    let tree = Tree::read()?;
    let metadata = repo::stdout_of(
        repo::command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
        ]),
    )?;
    for warning in tree.sources.iter().filter_map(text::long_file) {
        println!("warning: {warning}");
    }
    let mut problems = Vec::new();
    problems.extend(tree.sources.iter().flat_map(text::check));
    problems.extend(device::check(&tree.sources));
    problems.extend(unsafety::check(&tree.sources));
    problems.extend(opcodes::check(&tree.sources));
    problems.extend(text::foreign_names(&tree.texts));
    problems.extend(edges::check(&metadata)?);
    problems.extend(rules::check(&tree));
    problems.extend(snippets::check(&tree));
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("tidy: {} problems", problems.len());
    }
    println!(
        "tidy: {} files, {} of them Rust",
        tree.texts.len(),
        tree.sources.len()
    );
    Ok(())
}
