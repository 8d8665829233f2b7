//! What the documents quote from files must stand there word for word.
//!
//! A fenced block says what it quotes after its language: `rust examples/x/src/lib.rs`.

use super::{Problem, Tree};

/// Checks every document.
pub fn check(tree: &Tree) -> Vec<Problem> {
    let documents = tree.texts.iter().filter(|(path, _)| path.ends_with(".md"));
    documents
        .flat_map(|(path, text)| {
            let wrong = blocks(text).filter(|block| !tree.quotes(block));
            wrong.map(move |block| {
                let place = format!("{path}:{}", block.line);
                Problem::new(place, format!("this does not stand in {}", block.file))
            })
        })
        .collect()
}

impl Tree {
    fn quotes(&self, block: &Block<'_>) -> bool {
        let file = self.text(block.file);
        file.is_some_and(|text| text.contains(&block.text))
    }
}

/// A fenced block that names a file.
struct Block<'a> {
    /// Line of its fence, from 1 on.
    line: usize,
    file: &'a str,
    text: String,
}

fn blocks(document: &str) -> impl Iterator<Item = Block<'_>> {
    let mut lines = (1..).zip(document.lines());
    std::iter::from_fn(move || {
        loop {
            let (line, fence) = lines.find(|(_, text)| text.starts_with("```"))?;
            let body = lines.by_ref().map(|(_, text)| text);
            let body = body.take_while(|text| !text.starts_with("```"));
            let text: String = body.flat_map(|text| [text, "\n"]).collect();
            if let Some((_, file)) = fence.split_once(' ') {
                return Some(Block { line, file, text });
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(document: &str) -> Vec<String> {
        let own = |(path, text): (&str, &str)| (path.to_owned(), text.to_owned());
        let source = ("x/a.rs", "fn a() {}\n\nfn b() {}\n");
        let tree = Tree::of([source, ("docs/d.md", document)].map(own).into());
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_quoted_must_stand_in_the_file() {
        assert!(problems("```rust x/a.rs\nfn b() {}\n```\n").is_empty());
        assert_eq!(
            problems("# D\n\n```rust\nfn c() {}\n```\n\n```rust x/a.rs\nfn c() {}\n```\n"),
            ["docs/d.md:7: this does not stand in x/a.rs"]
        );
        assert_eq!(problems("```rust x/gone.rs\nfn b() {}\n```\n").len(), 1);
        assert_eq!(
            problems("```rust x/a.rs\nfn a() {}\nfn b() {}\n```").len(),
            1
        );
    }
}
