//! A Rust file, with code told apart from comments and literals, and tests from the rest.

use std::ops::Range;

/// A Rust file.
pub struct Source {
    /// Relative to the root.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// The text with every byte of a comment or of a literal's contents turned into a space:
    /// offsets and lines are those of `text`.
    pub code: String,
    /// Byte ranges of items under `#[cfg(test)]`; everything in a test file.
    tests: Vec<Range<usize>>,
    /// Byte ranges of items under `#[cfg(not(target_arch = "nvptx64"))]`.
    host: Vec<Range<usize>>,
}

impl Source {
    /// Splits `text`.
    pub fn new(path: &str, text: &str) -> Self {
        let code = code_of(text);
        let tests = if is_test_file(path) {
            Vec::from_iter(Some(0..text.len()))
        } else {
            items(&code, text, is_test)
        };
        let host = items(&code, text, is_host);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
            tests,
            host,
        }
    }

    /// Whether a byte belongs to an item that is not compiled for the GPU.
    pub fn is_host_only(&self, offset: usize) -> bool {
        self.host.iter().any(|range| range.contains(&offset))
    }

    /// Paths, without `.rs`, of the modules in other files that are not compiled for the GPU.
    pub fn host_modules(&self) -> Vec<String> {
        let folder = match self.path.rsplit_once('/') {
            Some((folder, "lib.rs" | "mod.rs")) => folder,
            _ => self.path.trim_end_matches(".rs"),
        };
        let declared = self.words("mod").filter(|at| self.is_host_only(*at));
        declared
            .filter_map(|at| self.code[at + "mod".len()..].split_once(';'))
            .map(|(name, _)| name.trim())
            .filter(|name| name.chars().all(is_word_part))
            .map(|name| format!("{folder}/{name}"))
            .collect()
    }

    /// Whether a byte belongs to a test.
    pub fn in_test(&self, offset: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&offset))
    }

    /// `path:line` of a byte.
    pub fn place(&self, offset: usize) -> String {
        let newlines = self.text.as_bytes()[..offset]
            .iter()
            .filter(|byte| **byte == b'\n');
        format!("{}:{}", self.path, newlines.count() + 1)
    }

    /// How many lines are not tests.
    pub fn product_lines(&self) -> usize {
        let starts = std::iter::once(0).chain(self.text.match_indices('\n').map(|(at, _)| at + 1));
        starts
            .filter(|start| *start < self.text.len() && !self.in_test(*start))
            .count()
    }

    /// Offsets in the code at which `word` stands as a word of its own.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let ends_open = word.ends_with(is_word_part);
        self.code
            .match_indices(word)
            .map(|(at, _)| at)
            .filter(move |at| {
                let before = self.code[..*at].ends_with(is_word_part);
                let after = ends_open && self.code[at + word.len()..].starts_with(is_word_part);
                !before && !after
            })
    }
}

fn is_word_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Integration tests, benches and files that hold a `tests` module.
fn is_test_file(path: &str) -> bool {
    path.split('/')
        .any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
}

/// Ranges of the items under a `#[cfg(…)]` whose condition `wanted` accepts.
fn items(code: &str, text: &str, wanted: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    for (start, _) in code.match_indices("#[cfg(") {
        let Some(length) = code[start..].find(']') else {
            continue;
        };
        // From the text: in the code, the strings of the condition are blank.
        if wanted(&text[start..start + length]) {
            items.push(start..item_end(code, start + length + 1));
        }
    }
    items
}

fn is_test(condition: &str) -> bool {
    ["(test)", "(test,", "(all(test,"]
        .iter()
        .any(|test| condition.contains(test))
        && !condition.contains("not(test)")
}

fn is_host(condition: &str) -> bool {
    condition.starts_with("#[cfg(not(target_arch = \"nvptx64\"")
}

/// Where the item ends whose attributes end at `from`: its `;`, or the brace that closes it.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b';' if depth == 0 => return offset + 1,
            b'{' | b'(' | b'[' => depth += 1,
            b'}' if depth <= 1 => return offset + 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

/// The text with comments and the contents of literals blanked.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (end, blank) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => (line_end(bytes, at), true),
            b'/' if bytes[at..].starts_with(b"/*") => (block_end(bytes, at), true),
            b'"' => (string_end(bytes, at), true),
            b'r' if raw_string_end(bytes, at).is_some() => {
                (raw_string_end(bytes, at).unwrap_or(at + 1), true)
            }
            b'\'' => char_end(text, at).map_or((at + 1, false), |end| (end, true)),
            _ => (at + 1, false),
        };
        if blank {
            let contents = code[at..end].iter_mut().filter(|byte| **byte != b'\n');
            contents.for_each(|byte| *byte = b' ');
        }
        at = end;
    }
    // Whole characters were blanked, so what is left is still UTF-8.
    String::from_utf8_lossy(&code).into_owned()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |length| at + length)
}

/// The end of a block comment; they nest.
fn block_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start + 2, 1);
    while depth > 0 && at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a raw string that begins at `start` with its `r`; none if none does.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let before = start.checked_sub(1).map(|before| bytes[before]);
    let prefix = before == Some(b'b') || before == Some(b'c');
    if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !prefix {
        return None;
    }
    let hashes = bytes[start + 1..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    let quote = start + 1 + hashes;
    if bytes.get(quote) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let found = bytes[quote + 1..]
        .windows(close.len())
        .position(|window| window == close);
    Some(found.map_or(bytes.len(), |length| quote + 1 + length + close.len()))
}

/// The end of a character literal that begins at `start`; none if a lifetime does.
fn char_end(text: &str, start: usize) -> Option<usize> {
    let mut characters = text[start + 1..].char_indices();
    match characters.next()? {
        // The escaped character may itself be a quote.
        (_, '\\') => {
            let (escaped, _) = characters.next()?;
            let rest = start + 1 + escaped + 1;
            text[rest..].find('\'').map(|length| rest + length + 1)
        }
        _ => characters
            .next()
            .filter(|(_, c)| *c == '\'')
            .map(|(at, _)| start + 1 + at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let text =
            "a // x\n/* b /* c */ d */ e \"f\\\"g\" h r#\"i\"j\"# k 'l' m '\\'' n 'o: p b\"é\" q";
        let code = code_of(text);
        assert_eq!(code.len(), text.len());
        let words: Vec<_> = code.split_whitespace().collect();
        assert_eq!(words, ["a", "e", "h", "k", "m", "n", "'o:", "p", "b", "q"]);
    }

    #[test]
    fn raw_identifiers_are_code() {
        assert_eq!(code_of("r#type for \"x\""), "r#type for    ");
        assert_eq!(code_of("br\"x\";").trim(), "b    ;");
    }

    #[test]
    fn words_have_borders() {
        let source = Source::new("a.rs", "let x = y; letx; _let; let");
        assert_eq!(source.words("let").collect::<Vec<_>>(), [0, 23]);
        let source = Source::new("a.rs", "std::fmt; mystd::x");
        assert_eq!(source.words("std::").collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn test_items_end_where_they_end() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() { \"}\" }\n}\nfn c() {}\n\
                    #[cfg(test)]\nuse x;\n#[cfg(not(test))]\nfn d() {}\n";
        let source = Source::new("device/a.rs", text);
        let at = |needle: &str| source.in_test(text.find(needle).unwrap());
        assert!(!at("fn a") && at("fn b") && !at("fn c") && at("use x") && !at("fn d"));
        assert_eq!(source.product_lines(), 4);
        assert_eq!(source.place(text.find("fn c").unwrap()), "device/a.rs:6");
    }

    #[test]
    fn host_items_and_modules_are_known() {
        let text = "#[cfg(not(target_arch = \"nvptx64\"))]\npub mod media;\nmod ring;\n\
                    #[cfg(not(target_arch = \"nvptx64\"))]\nstruct A([u8; 4], B);\nmod last;\n";
        let source = Source::new("device/x/src/lib.rs", text);
        assert_eq!(source.host_modules(), ["device/x/src/media"]);
        assert!(source.is_host_only(text.find("B)").unwrap()));
        assert!(!source.is_host_only(text.find("mod last").unwrap()));
        let source = Source::new("device/x/src/a.rs", text);
        assert_eq!(source.host_modules(), ["device/x/src/a/media"]);
    }

    #[test]
    fn test_files_are_tests_throughout() {
        for path in [
            "tests/loom/src/lib.rs",
            "device/x/tests/ring.rs",
            "host/src/tests.rs",
        ] {
            assert!(Source::new(path, "fn a() {}").in_test(0), "{path}");
        }
        assert!(!Source::new("xtask/src/test.rs", "fn a() {}").in_test(0));
    }
}
