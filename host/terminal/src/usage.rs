//! A wrong command line, in one sentence.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What is wrong with a command line: one sentence, one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl UsageError {
    /// The value `value` of `--option` is wrong, because of `reason`.
    pub fn new(
        option: &str,
        value: impl std::fmt::Display,
        reason: impl std::fmt::Display,
    ) -> Self {
        Self(format!("{option} {value}: {reason}"))
    }
}

/// clap explains itself over several lines; the facts it collected make one sentence.
impl From<clap::Error> for UsageError {
    fn from(error: clap::Error) -> Self {
        let option = option(&error, ContextKind::InvalidArg);
        let value = text(&error, ContextKind::InvalidValue);
        let sentence = match error.kind() {
            ErrorKind::InvalidValue if value.is_empty() => format!("{option} needs a value"),
            ErrorKind::InvalidValue => {
                format!(
                    "{option} {value}: it must be one of {}",
                    text(&error, ContextKind::ValidValue)
                )
            }
            ErrorKind::ValueValidation => {
                let reason = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                format!("{option} {value}: {reason}")
            }
            ErrorKind::UnknownArgument => match text(&error, ContextKind::SuggestedArg).as_str() {
                "" => format!("{option} is not an option; --help lists them all"),
                close => format!("{option} is not an option; did you mean {close}?"),
            },
            ErrorKind::ArgumentConflict => match self::option(&error, ContextKind::PriorArg) {
                prior if prior == option => format!("{option} is given twice; give it once"),
                prior => format!("{option} and {prior} say the same thing in two ways; give one"),
            },
            ErrorKind::MissingRequiredArgument => {
                format!("{option} is missing; --help tells what is needed")
            }
            ErrorKind::TooManyValues => format!("{option} takes no value, and {value} is one"),
            ErrorKind::InvalidUtf8 => {
                "a word of the command line is not UTF-8; type it anew".to_owned()
            }
            // The first line of clap's own explanation, for what cannot happen today.
            _ => error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned(),
        };
        Self(sentence)
    }
}

/// The name of an option, without the placeholder of its value; that of a word without an option, as
/// `[EXPERIMENT]` or `<SOURCE>...`, in small letters.
fn option(error: &clap::Error, kind: ContextKind) -> String {
    let text = text(error, kind);
    let name = text.split_whitespace().next().unwrap_or_default();
    match name.strip_prefix(['[', '<']) {
        Some(word) => word.trim_end_matches(['.', ']', '>']).to_lowercase(),
        None => name.to_owned(),
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.escape_debug().to_string(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    }
}
