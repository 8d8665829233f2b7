//! warpstore's own kernels as PTX, whole or in part.
//!
//! A driver compiles all that it is given, each kernel with its own copy of the cold path: seconds each
//! at the first run on a machine. So a session loads what it launches itself, and whoever wants other
//! kernels of warpstore's asks for them by name.

use warpstore_device::launch::Kernel;
use warpstore_kernels::controller::{nvme_controllers, read_clock};
use warpstore_kernels::flush::{flush_ssds, write_back};

/// All of device/kernels.
const ALL: &str = include_str!(env!("WARPSTORE_PTX"));

/// What sessions launch themselves.
const OF_SESSIONS: [&str; 4] = [
    <nvme_controllers as Kernel>::NAME,
    <read_clock as Kernel>::NAME,
    <write_back as Kernel>::NAME,
    <flush_ssds as Kernel>::NAME,
];

/// The kernels that every session has.
pub(crate) fn of_sessions() -> String {
    part(ALL, &OF_SESSIONS)
}

/// The PTX of those of warpstore's own kernels that have these names, for
/// [`Session::open`](crate::Session::open). A name that there is not is left out; launching it says so.
pub fn kernels_ptx(names: &[&str]) -> String {
    part(ALL, names)
}

/// `ptx` with these entries only, and without the tables of source lines, which name all of them.
fn part(ptx: &str, names: &[&str]) -> String {
    let code = ptx.split("\n\t.section\t").next().unwrap_or_default();
    let mut part = String::with_capacity(code.len());
    let mut skipped = false;
    for line in code.lines() {
        if let Some(entry) = line.strip_prefix(".visible .entry ") {
            skipped = !names.contains(&entry.split('(').next().unwrap_or_default());
        }
        if !(skipped || line.starts_with("\t.loc\t") || line.starts_with("\t.file\t")) {
            part.push_str(line);
            part.push('\n');
        }
        // A function ends with the first brace that is not indented.
        if line == "}" {
            skipped = false;
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(ptx: &str) -> Vec<&str> {
        let lines = ptx.lines().filter_map(|line| line.split_once(".entry "));
        lines
            .map(|(_, rest)| rest.split('(').next().unwrap())
            .collect()
    }

    #[test]
    fn a_part_has_the_kernels_that_were_asked_for() {
        assert!(entries(ALL).len() > OF_SESSIONS.len());
        let mut names = OF_SESSIONS;
        names.sort_unstable();
        assert_eq!(entries(&of_sessions()), names);
        assert_eq!(entries(&kernels_ptx(&["iops", "no_such_kernel"])), ["iops"]);
        // Whole functions are left out, and nothing else.
        let whole = part(ALL, &entries(ALL));
        let braces = |text: &str, brace| text.lines().filter(|line| *line == brace).count();
        for text in [&whole, &of_sessions()] {
            assert_eq!(braces(text, "{"), braces(text, "}"));
        }
        let bodies = entries(ALL).len() - OF_SESSIONS.len();
        assert_eq!(braces(&whole, "}") - bodies, braces(&of_sessions(), "}"));
        assert!(!whole.contains("\t.loc\t") && !whole.contains(".section"));
    }
}
