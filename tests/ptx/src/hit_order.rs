//! Does a hit load the table, then the data, then the table again, with nothing between them but
//! the dependency of each on the one before ([HW-1])?
//!
//! What is left of a kernel without its calls, fences, acquiring loads and atomics must still
//! lead from the begin to a return. There the data's address must come from the table's word,
//! and the address of the second load of the table from the data: then the hardware cannot issue
//! them in another order, and a hit that finds its line marked costs three loads.

use std::collections::BTreeSet;

use crate::hit_path::{blocks_without, calls};
use crate::listing::{Block, Function, Instruction, address, derived, operation, words};

/// A load that orders nothing, of what other lanes write.
const RELAXED: &str = "ld.relaxed.gpu.global.";
/// The same, of a word of the table.
const WORD: &str = "ld.relaxed.gpu.global.u64";

/// Breaches of the order by a kernel that reads through the cache; empty if there are none.
pub fn breaches(kernel: &Function) -> Vec<String> {
    let bare = blocks_without(|block| calls(block) || orders(block), kernel);
    let instructions: Vec<&Instruction> = bare
        .iter()
        .flat_map(|&at| &kernel.blocks[at].instructions)
        .collect();
    let loads = |prefix: &'static str| {
        let matching = move |load: &&Instruction| load.opcode.starts_with(prefix);
        instructions.iter().copied().filter(matching)
    };
    let arithmetic: Vec<_> = instructions
        .iter()
        .copied()
        .filter(|instruction| computes(instruction))
        .collect();
    // Those of `loads` whose address comes from the result of `first`.
    let after = |first: &Instruction, prefix| -> Vec<&Instruction> {
        let reached = derived(results(first), &arithmetic);
        loads(prefix)
            .filter(|load| *load != first && reached.contains(address(load)))
            .collect()
    };
    let first: Vec<_> = loads(WORD).collect();
    let data = first.iter().map(|table| (*table, after(table, RELAXED)));
    let pairs: Vec<_> = data
        .flat_map(|(table, data)| data.into_iter().map(move |data| (table, data)))
        .collect();
    let validated = |(table, data): &(&Instruction, &Instruction)| {
        after(data, WORD).iter().any(|again| again != table)
    };
    let missing = if first.is_empty() {
        "no load of the table"
    } else if pairs.is_empty() {
        "no load of data at an address from the table"
    } else if !pairs.iter().any(validated) {
        "no second load of the table at an address from the data"
    } else {
        return Vec::new();
    };
    vec![format!(
        "{}: {missing} on any way without fence, acquire, atomic and call",
        kernel.name
    )]
}

/// Whether the block orders memory or modifies a word.
fn orders(block: &Block) -> bool {
    block.instructions.iter().any(|instruction| {
        ["atom", "red", "fence", "membar"].contains(&operation(instruction))
            || instruction.opcode.starts_with("ld.acquire")
    })
}

/// Whether the instruction makes a value of its operands alone. A predicate decides, and that is
/// no dependency that the hardware must wait for.
fn computes(instruction: &Instruction) -> bool {
    !["ld", "st", "atom", "red", "setp", "call"].contains(&operation(instruction))
}

/// The registers before the brackets.
fn results(load: &Instruction) -> BTreeSet<&str> {
    let (results, _) = load.operands.split_once('[').unwrap_or_default();
    words(results).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Listing;

    const HIT: &str = "\
	@%p1 bra 	$RELAXED;
	ld.acquire.gpu.global.u64 %rd2, [%rd1];
	fence.acq_rel.gpu;
	bra.uni 	$DATA;
$RELAXED:
	ld.relaxed.gpu.global.u64 %rd2, [%rd1];
$DATA:
	shr.u64 	%rd3, %rd2, 36;
	ld.relaxed.gpu.global.v2.u64 {%rd4, %rd5}, [%rd3];
	or.b64 	%rd6, %rd4, %rd5;
	and.b64 	%rd7, %rd6, %rd8;
	ld.relaxed.gpu.global.u64 %rd9, [%rd7];
	@%p2 bra 	$END;
	atom.relaxed.gpu.global.or.b64 %rd10, [%rd1], 16;
$END:
	ret;
";

    fn breach(from: &str, to: &str) -> String {
        assert!(HIT.contains(from));
        let body = HIT.replace(from, to);
        let text = format!(".visible .entry k(\n)\n{{\n{body}}}\n");
        breaches(Listing::parse(&text).unwrap().kernel("k").unwrap()).concat()
    }

    #[test]
    fn a_hit_of_three_loads_is_no_breach_whatever_lies_beside_it() {
        assert_eq!(breach("", ""), "");
    }

    #[test]
    fn whatever_lies_in_its_way_is_one() {
        let fence = "\tfence.acq_rel.gpu;\n\tor.b64";
        assert!(breach("\tor.b64", fence).contains("no load of the table"));
        assert!(breach("@%p2 bra", "@%p2 add").contains("no load of the table"));
        assert!(breach("@%p1 bra", "@%p1 add").contains("no load of the table"));
        assert!(breach("\tshr", "\tcall.uni f;\n\tshr").contains("no load of the table"));
    }

    #[test]
    fn loads_that_do_not_depend_on_each_other_are_one() {
        assert!(breach("%rd3, %rd2, 36", "%rd3, %rd1, 36").contains("no load of data"));
        assert!(breach("%rd7, %rd6, %rd8", "%rd7, %rd1, %rd8").contains("no second load"));
        let decided = breach("and.b64 	%rd7, %rd6", "setp.ne.b64 	%rd7, %rd6");
        assert!(decided.contains("no second load"));
    }
}
