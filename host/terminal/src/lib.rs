//! What warpstore's programs share on a terminal: values of options, wrong command lines in one
//! sentence, errors on one line, progress.

mod progress;
mod usage;
mod value;

pub use progress::Progress;
pub use usage::UsageError;
pub use value::{number, power_of_two, seconds, size, within};

/// An error and its causes on one line. A cause that a message above it quotes, in front of its
/// advice, is not said again.
pub fn told(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told.push_str(": ");
            told.push_str(&cause);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_are_told_once() {
        let error = Err::<(), _>(std::io::Error::other("disk full"));
        let error = error.context("cannot write out.json").unwrap_err();
        assert_eq!(told(&error), "cannot write out.json: disk full");
        let quoting = error.context("cannot write out.json: disk full; free some space");
        assert_eq!(
            told(&quoting),
            "cannot write out.json: disk full; free some space"
        );
    }
}
