//! Ordering rules and their IDs: each is defined once, kept somewhere and tested somewhere.
//!
//! docs/memory-model.md defines a rule in a line that begins with its ID, in bold or as a
//! heading: `**[AB-1] Name.**`. Source code cites it as `[AB-1]` where it keeps it; a test, or a
//! mutant of tests/mutants.toml, names it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Problem, Tree};

const MODEL: &str = "docs/memory-model.md";
const MUTANTS: &str = "tests/mutants.toml";

/// Checks definitions, citations and tests against each other.
pub fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut defined = BTreeSet::new();
    let model = tree.text(MODEL).unwrap_or_default();
    for (id, at) in ids(model) {
        if defines(model, at) && !defined.insert(id) {
            problems.push(Problem::new(MODEL, format!("[{id}] is defined twice")));
        }
    }
    let (cited, tested) = uses(tree);
    for id in &defined {
        if !cited.contains_key(id) {
            let text = format!("[{id}] is cited in no source file: where is it kept?");
            problems.push(Problem::new(MODEL, text));
        }
        if !tested.contains_key(id) {
            let text = format!("[{id}] is named in no test and in no mutant");
            problems.push(Problem::new(MODEL, text));
        }
    }
    for (id, place) in cited
        .iter()
        .chain(&tested)
        .filter(|(id, _)| !defined.contains(*id))
    {
        problems.push(Problem::new(
            place,
            format!("[{id}] is not defined in {MODEL}"),
        ));
    }
    problems
}

/// Whether the bracket at `at` begins its line but for the marks of a list, bold or heading.
fn defines(model: &str, at: usize) -> bool {
    let before = model[..at].rsplit('\n').next().unwrap_or_default();
    let marks = before.trim_start_matches(['-', ' ']);
    marks == "**" || (marks.starts_with('#') && marks.trim_matches(['#', ' ']).is_empty())
}

/// The IDs cited by product code and those named by tests and mutants, each with one place.
fn uses(tree: &Tree) -> (BTreeMap<&str, String>, BTreeMap<&str, String>) {
    let (mut cited, mut tested) = (BTreeMap::new(), BTreeMap::new());
    // tidy's own files speak of IDs that are examples.
    let sources = tree
        .sources
        .iter()
        .filter(|source| !source.path.starts_with("xtask/"));
    for source in sources {
        for (id, at) in ids(&source.text) {
            let map = if source.in_test(at) {
                &mut tested
            } else {
                &mut cited
            };
            map.entry(id).or_insert_with(|| source.place(at));
        }
    }
    for line in tree.text(MUTANTS).unwrap_or_default().lines() {
        let value = line
            .strip_prefix("rule = \"")
            .and_then(|rest| rest.split('"').next());
        if let Some(id) = value {
            tested.entry(id).or_insert_with(|| MUTANTS.to_owned());
        }
    }
    (cited, tested)
}

/// Every `[ID]` in a text with the offset of its bracket; an ID is two to four capital letters,
/// a dash and a number.
fn ids(text: &str) -> Vec<(&str, usize)> {
    let brackets = text.match_indices('[').filter_map(|(at, _)| {
        let (id, _) = text[at + 1..].split_once(']')?;
        let (letters, number) = id.split_once('-')?;
        let capitals = letters.bytes().all(|byte| byte.is_ascii_uppercase());
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        ((2..=4).contains(&letters.len()) && capitals && digits).then_some((id, at))
    });
    brackets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        let tree = Tree::of(files.iter().map(own).collect());
        check(&tree).iter().map(ToString::to_string).collect()
    }

    const DEFINED: (&str, &str) = (
        MODEL,
        "- **[SQ-1] First.** See\n[SQ-1] and **bold** [SQ-1].\n",
    );
    const KEPT: (&str, &str) = ("device/src/a.rs", "// Ordering: [SQ-1].\n");
    const TESTED: (&str, &str) = ("tests/loom/tests/a.rs", "// Shows [SQ-1].\n");

    #[test]
    fn a_rule_that_is_defined_kept_and_tested_passes() {
        assert!(problems(&[DEFINED, KEPT, TESTED]).is_empty());
        assert!(problems(&[DEFINED, KEPT, (MUTANTS, "rule = \"SQ-1\"\n")]).is_empty());
    }

    #[test]
    fn each_gap_is_a_problem() {
        assert!(problems(&[DEFINED, TESTED])[0].contains("cited in no source"));
        assert!(problems(&[DEFINED, KEPT])[0].contains("no test"));
        assert!(problems(&[KEPT])[0].starts_with("device/src/a.rs:1: [SQ-1] is not defined"));
        assert!(problems(&[(MUTANTS, "rule = \"SQ-9\"\n")])[0].contains("not defined"));
        let twice = (MODEL, "**[SQ-1]** a\n### [SQ-1] b\n");
        assert!(problems(&[twice, KEPT, TESTED])[0].contains("twice"));
    }

    #[test]
    fn only_ids_are_ids() {
        let found = ids("[SQ-1] [sq-1] [S-1] [SQ-] [ABCDE-1] [HW-12] [derive]");
        assert_eq!(
            found.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            ["SQ-1", "HW-12"]
        );
    }
}
