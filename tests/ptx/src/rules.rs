//! Rules that every kernel keeps, whatever it does.

use std::collections::BTreeSet;

use crate::listing::{Function, Instruction, Listing, address, operation};

/// Breaches of the rules by a kernel and what it calls; empty if there are none.
///
/// - No panic and no print: neither the functions of core that panic or format, nor `vprintf`.
/// - Every atomic names its order and scope: without, the order is lost and the CPU and the
///   controller are not covered.
/// - No `ld.global.nc` but of the module's own constants: the read-only cache does not see what
///   others write.
pub fn breaches(listing: &Listing, kernel: &Function) -> Vec<String> {
    let mut breaches = Vec::new();
    for function in listing.reachable(kernel) {
        if function.name.contains("panicking") || function.name.contains("4core3fmt") {
            breaches.push(format!("{} panics: reaches {}", kernel.name, function.name));
        }
        let constants = function.spread(symbols(function));
        for instruction in function.instructions() {
            if let Some(problem) = problem(instruction, &constants) {
                let Instruction {
                    opcode, operands, ..
                } = instruction;
                breaches.push(format!(
                    "{}: {problem}: `{opcode} {operands}`",
                    function.name
                ));
            }
        }
    }
    breaches
}

/// Names of the module's variables whose address the function takes.
fn symbols(function: &Function) -> BTreeSet<&str> {
    let moves = function
        .instructions()
        .filter(|instruction| operation(instruction) == "mov");
    let sources = moves.filter_map(|instruction| instruction.operands.split_once(", "));
    let is_symbol =
        |source: &str| source.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    sources
        .map(|(_, source)| source)
        .filter(|source| is_symbol(source))
        .collect()
}

fn problem(instruction: &Instruction, constants: &BTreeSet<&str>) -> Option<&'static str> {
    let qualifiers: Vec<&str> = instruction.opcode.split('.').collect();
    let has = |names: &[&str]| names.iter().any(|name| qualifiers.contains(name));
    let operation = operation(instruction);
    if ["atom", "red"].contains(&operation) {
        let scoped = has(&["gpu", "sys", "cta"]);
        let ordered = has(&["relaxed", "acquire", "release", "acq_rel"]);
        return (!scoped || !ordered).then_some("an atomic without order or scope");
    }
    if operation == "ld" && has(&["nc"]) && !constants.contains(address(instruction)) {
        return Some("a load through the read-only cache");
    }
    if operation == "call" && instruction.operands.contains("vprintf") {
        return Some("a print");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<&'static str> {
        let (opcode, operands) = line.split_once(' ').unwrap();
        let (opcode, operands) = (opcode.to_owned(), operands.to_owned());
        let instruction = Instruction {
            guarded: false,
            opcode,
            operands,
        };
        problem(&instruction, &BTreeSet::from(["%rd7"]))
    }

    #[test]
    fn each_rule_has_a_line_that_breaks_it_and_one_that_keeps_it() {
        assert!(of("atom.global.add.u32 %r1, [%rd1], 1").is_some());
        assert!(of("atom.gpu.global.add.u32 %r1, [%rd1], 1").is_some());
        assert!(of("atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1").is_none());
        assert!(of("redux.sync.add.s32 %r1, %r2, %r3").is_none());
        assert!(of("ld.global.nc.b32 %r1, [%rd1]").is_some());
        assert!(of("ld.global.nc.b32 %r1, [%rd7+4]").is_none());
        assert!(of("ld.relaxed.gpu.global.u32 %r1, [%rd1]").is_none());
        assert!(of("call.uni (retval0), vprintf, (param0)").is_some());
        assert!(of("call.uni (retval0), fetch, (param0)").is_none());
    }

    #[test]
    fn addresses_of_constants_are_followed() {
        let text = "\
.visible .entry k(
)
{
	mov.b64 	%rd1, table;
	mov.u32 	%r2, %tid.x;
	add.s64 	%rd2, %rd1, %rd9;
	ld.global.nc.b32 	%r1, [%rd2];
	ld.global.nc.b32 	%r1, [%rd9];
	ret;
}
";
        let listing = Listing::parse(text).unwrap();
        let breaches = breaches(&listing, listing.kernel("k").unwrap());
        assert_eq!(
            breaches,
            ["k: a load through the read-only cache: `ld.global.nc.b32 %r1, [%rd9]`"]
        );
    }
}
