//! Progress, on stderr: a bar on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// One piece of work under way.
pub struct Progress {
    label: String,
    /// Absent where stderr is no terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins `label`, which takes `steps` of something, or of nothing that can be counted if 0.
    pub fn begin(label: impl Into<String>, steps: u64) -> Self {
        Self::begin_on(label.into(), steps, io::stderr().is_terminal())
    }

    fn begin_on(label: String, steps: u64, is_terminal: bool) -> Self {
        if !is_terminal {
            say(&label);
            return Self { label, bar: None };
        }
        let bar = if steps == 0 {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::new(steps)
        };
        let template = if steps == 0 {
            "{spinner} {msg} {elapsed}"
        } else {
            "{msg} {wide_bar} {human_pos}/{human_len} {eta}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(label.clone());
        Self {
            label,
            bar: Some(bar),
        }
    }

    /// `done` of the steps are done.
    pub fn reach(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    /// The work is done, with `outcome` in a few words.
    pub fn end(self, outcome: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        say(&format!("{}: {outcome}", self.label));
    }
}

/// Progress is a courtesy: a closed stderr stops no experiment.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_for_terminals_only() {
        let plain = Progress::begin_on("read".into(), 10, false);
        assert!(plain.bar.is_none());
        plain.reach(10);
        plain.end("10 lines");
        for steps in [0, 10] {
            let shown = Progress::begin_on("read".into(), steps, true);
            shown.reach(5);
            assert_eq!(shown.bar.as_ref().map(ProgressBar::position), Some(5));
            shown.end("5 lines");
        }
    }
}
