//! What a file may look like: size, module doc, marks, white space, foreign names.

use super::Problem;
use super::source::Source;

/// Lines, tests apart, from which a file is too long for a reader.
const LONG: usize = 500;
/// Lines, tests apart, from which it must be split.
const TOO_LONG: usize = 800;
/// Code that marks work not done or debugging left in. Clippy has lints for it, but does not see
/// what is compiled for the GPU only.
const CODE_MARKS: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "allow(dead_code"];
/// Comments that do the same; split so that this file passes.
const TEXT_MARKS: [&str; 3] = [
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("TO", "DO"),
];
/// Names of places on the machines where the project was written, which mean nothing here.
const FOREIGN: [&str; 2] = [concat!("/wor", "k/"), concat!("/tmp/", "target")];

/// The rules that look at one Rust file.
pub fn check(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    let lines = source.product_lines();
    if lines > TOO_LONG {
        let text = format!("{lines} lines without tests; split it, {TOO_LONG} is the limit");
        problems.push(Problem::new(&source.path, text));
    }
    if !source.text.starts_with("//!") {
        problems.push(Problem::new(
            &source.path,
            "no module doc: begin with `//!`",
        ));
    }
    for mark in CODE_MARKS {
        let found = source.words(mark).map(|at| marked(source, at, mark));
        problems.extend(found);
    }
    for mark in TEXT_MARKS {
        let found = source
            .text
            .match_indices(mark)
            .map(|(at, _)| marked(source, at, mark));
        problems.extend(found);
    }
    for (index, line) in source.text.lines().enumerate() {
        let place = || format!("{}:{}", source.path, index + 1);
        if line.ends_with([' ', '\t', '\r']) {
            problems.push(Problem::new(place(), "white space at the end of the line"));
        }
    }
    // In the code only: text that a program writes or reads may have tabs.
    let tabs = source.code.match_indices('\t');
    problems.extend(tabs.map(|(at, _)| Problem::new(source.place(at), "a tab")));
    problems
}

/// A warning for a file that is long but within the limit.
pub fn long_file(source: &Source) -> Option<Problem> {
    let lines = source.product_lines();
    let long = lines > LONG && lines <= TOO_LONG;
    long.then(|| {
        Problem::new(
            &source.path,
            format!("{lines} lines without tests, above {LONG}"),
        )
    })
}

/// Any text file that names a foreign place.
pub fn foreign_names(texts: &[(String, String)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in texts {
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = FOREIGN.iter().find(|name| line.contains(*name)) {
                let text = format!("names {name}, a place on one machine");
                problems.push(Problem::new(format!("{path}:{}", index + 1), text));
            }
        }
    }
    problems
}

fn marked(source: &Source, offset: usize, mark: &str) -> Problem {
    Problem::new(
        source.place(offset),
        format!("`{mark}` must not be left in"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        check(&Source::new("host/src/a.rs", text))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_clean_file_passes() {
        assert!(problems("//! A file.\n\nfn a() { b(\"todo!\") }\n").is_empty());
    }

    #[test]
    fn each_rule_can_fail() {
        let with = |line: &str| problems(&format!("//! A file.\n{line}\n"));
        for mark in [
            "todo!()",
            "unimplemented!()",
            "dbg!(x)",
            "#[allow(dead_code)]",
        ] {
            assert_eq!(with(mark).len(), 1, "{mark}");
        }
        for mark in TEXT_MARKS {
            assert_eq!(with(&format!("// {mark} later")).len(), 1, "{mark}");
        }
        assert!(with("fn a() {} ")[0].starts_with("host/src/a.rs:2: white space"));
        assert!(with("\tfn a() {}")[0].contains("tab"));
        assert!(problems("// A file.\n")[0].contains("module doc"));
    }

    #[test]
    fn length_counts_without_tests() {
        let lines = |count: usize| format!("//! A file.\n{}", "a\n".repeat(count - 1));
        let source = |text: &str| Source::new("a.rs", text);
        assert!(long_file(&source(&lines(LONG))).is_none());
        assert!(long_file(&source(&lines(LONG + 1))).is_some());
        assert!(check(&source(&lines(TOO_LONG))).is_empty());
        assert_eq!(check(&source(&lines(TOO_LONG + 1))).len(), 1);
        let tests = format!(
            "{}#[cfg(test)]\nmod t {{\n{}}}\n",
            lines(9),
            "b\n".repeat(TOO_LONG)
        );
        assert!(check(&source(&tests)).is_empty());
    }

    #[test]
    fn foreign_places_are_found_in_any_text() {
        for name in FOREIGN {
            let texts = [("README.md".to_owned(), format!("fine\nsee {name}x\n"))];
            assert!(
                foreign_names(&texts)[0]
                    .to_string()
                    .starts_with("README.md:2:")
            );
        }
    }
}
