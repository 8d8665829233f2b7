//! Which commands exist in the code: none that formats, erases or re-programs an SSD.
//!
//! Opcodes are named in `nvme-wire` alone and listed here, so that a new one is a decision. Tests
//! may make up what they like: only emulated controllers see it.

use super::Problem;
use super::source::Source;

/// Where opcodes are named: file, type, and the values that may have a name.
const SETS: [(&str, &str, &[u8]); 2] = [
    (
        "device/nvme-wire/src/admin.rs",
        "AdminOpcode(u8)",
        &[
            0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x7c,
        ],
    ),
    (
        "device/nvme-wire/src/sqe.rs",
        "IoOpcode(u8)",
        &[0x00, 0x01, 0x02],
    ),
];

/// What must not stand in product code outside `nvme-wire`, and what it would make.
const RAW: [(&str, &str); 3] = [
    ("AdminOpcode(0", "an admin command without a name"),
    ("IoOpcode(0", "an I/O command without a name"),
    ("cdw0", "a command by hand; use the constructors of Sqe"),
];

/// Checks every file.
pub fn check(sources: &[Source]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, set, allowed) in SETS {
        let source = sources.iter().find(|source| source.path == path);
        problems.extend(
            source
                .into_iter()
                .flat_map(|source| named(source, set, allowed)),
        );
    }
    let products = sources.iter().filter(|source| {
        !source.path.starts_with("device/nvme-wire/") && !source.path.starts_with("xtask/")
    });
    for source in products {
        for (text, makes) in RAW {
            let found = source.code.match_indices(text);
            let found = found.filter(|(at, _)| !source.in_test(*at));
            problems.extend(
                found.map(|(at, _)| {
                    Problem::new(source.place(at), format!("`{text}` makes {makes}"))
                }),
            );
        }
    }
    problems
}

/// Opcodes in the set that are not allowed; the set itself, if it is not found.
fn named(source: &Source, set: &str, allowed: &[u8]) -> Vec<Problem> {
    let body = source.code.find(set).and_then(|at| {
        let body = &source.code[at..];
        body.find('}').map(|end| (at, &body[..end]))
    });
    let Some((at, body)) = body else {
        let text = format!("`{set}` is not here: tell xtask/src/tidy/opcodes.rs where it is");
        return vec![Problem::new(&source.path, text)];
    };
    let values = body.match_indices("= 0x").filter_map(|(offset, sign)| {
        let digits = body[offset + sign.len()..].split(',').next()?;
        let allowed =
            u8::from_str_radix(digits.trim(), 16).is_ok_and(|value| allowed.contains(&value));
        (!allowed).then(|| (at + offset, digits.trim()))
    });
    values
        .map(|(at, digits)| {
            let text = format!(
                "opcode 0x{digits} has a name: commands that format, erase or re-program an SSD do not \
                 exist here; list a harmless one in xtask/src/tidy/opcodes.rs"
            );
            Problem::new(source.place(at), text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let found = check(&[Source::new(path, text)]);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_opcode_that_destroys_cannot_be_named() {
        let with = |value: &str| {
            let text = format!(
                "open_set! {{\n AdminOpcode(u8) {{\n IDENTIFY = 0x06,\n NEW = {value},\n }}\n}}\n"
            );
            problems("device/nvme-wire/src/admin.rs", &text)
        };
        assert!(with("0x0c").is_empty());
        // Firmware Commit, Firmware Image Download, Format NVM, Sanitize.
        for value in ["0x10", "0x11", "0x80", "0x84"] {
            let found = with(value);
            assert_eq!(found.len(), 1, "{value}");
            assert!(
                found[0].contains(&format!("admin.rs:4: opcode {value}")),
                "{found:?}"
            );
        }
        assert_eq!(
            problems("device/nvme-wire/src/sqe.rs", "").len(),
            1,
            "moved away"
        );
    }

    #[test]
    fn commands_are_made_by_name() {
        for text in [
            "let a = AdminOpcode(0x80);\n",
            "let a = Sqe { cdw0: 0x84, ..b };\n",
        ] {
            assert_eq!(problems("host/src/ssd.rs", text).len(), 1, "{text}");
            assert!(problems("host/tests/threads.rs", text).is_empty());
            assert!(problems("device/nvme-wire/src/cqe.rs", text).is_empty());
        }
        assert!(problems("host/src/ssd.rs", "match AdminOpcode(sqe.opcode()) {}\n").is_empty());
    }
}
