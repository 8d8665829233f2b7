//! Lines and numbers of the text formats.

use std::io::{self, BufRead, Read};

use super::error::{Fault, Place, Reason};

/// Longest line: enough for any comment, and a bound on what a file without line ends can take.
const LINE_LIMIT: usize = 64 << 10;
/// Longest piece of a file quoted in a message, in characters.
const QUOTE_LIMIT: usize = 40;

/// The lines of a text file, with their numbers.
pub(super) struct Lines<R> {
    reader: R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            number: 0,
            line: Vec::new(),
        }
    }

    /// The line last read.
    pub(super) fn place(&self) -> Place {
        Place::Line(self.number)
    }

    /// The next line, its end included, or `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<(Place, &[u8])>, Fault> {
        self.line.clear();
        let place = Place::Line(self.number + 1);
        let mut bounded = self.reader.by_ref().take(LINE_LIMIT as u64 + 1);
        match bounded.read_until(b'\n', &mut self.line) {
            Err(error) => return Err(place.fault(read_error(error))),
            Ok(0) => return Ok(None),
            Ok(_) if self.line.len() > LINE_LIMIT => {
                return Err(place.fault(Reason::LongLine { limit: LINE_LIMIT }));
            }
            Ok(_) => self.number += 1,
        }
        Ok(Some((place, &self.line)))
    }

    /// The next line that is neither blank nor a comment, which begins with one of `comments`.
    pub(super) fn next_data(&mut self, comments: &[u8]) -> Result<Option<(Place, &[u8])>, Fault> {
        loop {
            let Some((_, line)) = self.next()? else {
                return Ok(None);
            };
            let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
            if first.is_some_and(|byte| !comments.contains(byte)) {
                return Ok(Some((self.place(), &self.line)));
            }
        }
    }
}

/// flate2 tells a stream that ends early from one that is damaged by the kind of its error.
fn read_error(error: io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Reason::TruncatedGzip,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Reason::DamagedGzip(error),
        _ => Reason::Read(error),
    }
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// A vertex id.
pub(super) fn vertex(word: &[u8]) -> Result<u32, Reason> {
    match number(word, "vertex number") {
        Ok(value) => u32::try_from(value).map_err(|_| Reason::HugeVertex(quote(word))),
        Err(Reason::HugeNumber(word)) => Err(Reason::HugeVertex(word)),
        Err(reason) => Err(reason),
    }
}

/// An unsigned number; `what` names it in the message.
pub(super) fn number(word: &[u8], what: &'static str) -> Result<u64, Reason> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Reason::NotANumber(quote(word), what));
    }
    if digits.len() < word.len() {
        return Err(Reason::Negative(quote(word)));
    }
    digits
        .iter()
        .try_fold(0u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
        .ok_or_else(|| Reason::HugeNumber(quote(word)))
}

/// Checks an edge's weight, which no experiment uses.
pub(super) fn weight(word: &[u8]) -> Result<(), Reason> {
    let value = std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    value
        .map(|_| ())
        .ok_or_else(|| Reason::NotANumber(quote(word), "weight"))
}

/// A piece of the file, fit for a message: short and printable.
pub(super) fn quote(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let mut quoted: String = text
        .chars()
        .take(QUOTE_LIMIT)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(QUOTE_LIMIT).is_some() {
        quoted.push('…');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unsigned_decimal() {
        assert_eq!(number(b"007", "n").unwrap(), 7);
        assert_eq!(vertex(b"4294967295").unwrap(), u32::MAX);
        assert!(matches!(vertex(b"4294967296"), Err(Reason::HugeVertex(_))));
        assert!(matches!(
            vertex(b"99999999999999999999999"),
            Err(Reason::HugeVertex(_))
        ));
        assert!(matches!(vertex(b"-3"), Err(Reason::Negative(_))));
        for word in ["", "-", "x", "1.0", "+1", "1,2", "0x10", "\u{661}"] {
            assert!(
                matches!(vertex(word.as_bytes()), Err(Reason::NotANumber(..))),
                "{word}"
            );
        }
    }

    #[test]
    fn a_file_without_line_ends_is_not_read_into_memory() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(b'1')));
        assert!(matches!(
            lines.next(),
            Err(Fault {
                place: Place::Line(1),
                reason: Reason::LongLine { .. }
            })
        ));
    }

    #[test]
    fn quotes_are_short_and_printable() {
        assert_eq!(quote(b"\x00\x1b[31m\n"), "\\0\\u{1b}[31m");
        assert_eq!(quote(&[b'a'; 100]).chars().count(), QUOTE_LIMIT + 1);
    }
}
