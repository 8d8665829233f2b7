//! Is there a way through a kernel that costs neither a call nor the stack?
//!
//! Blocks that call are cold: a miss, an error. What is left when they are taken away must
//! still lead from the kernel's begin to a return, past a store of what was read (a loop of no
//! turns does not count), and must not touch local memory: a frame may exist, but only what is
//! cold may use it.

use std::collections::BTreeSet;

use crate::listing::{Block, Function, Instruction, address, operation};

/// Breaches on the hit path of a kernel; empty if there are none.
pub fn breaches(kernel: &Function) -> Vec<String> {
    let hot = blocks_without(calls, kernel);
    let instructions = || hot.iter().flat_map(|&at| &kernel.blocks[at].instructions);
    if !instructions().any(has_effect) {
        return vec![format!(
            "{}: stores nothing without a call before or after",
            kernel.name
        )];
    }
    let stack = kernel.spread(BTreeSet::from(["%SP", "%SPL"]));
    instructions()
        .filter(|instruction| touches_stack(instruction, &stack))
        .map(
            |Instruction {
                 opcode, operands, ..
             }| format!("`{opcode} {operands}`"),
        )
        .map(|text| format!("{}: local memory on the hit path: {text}", kernel.name))
        .collect()
}

/// Whether others see what the instruction does.
fn has_effect(instruction: &Instruction) -> bool {
    let mut qualifiers = instruction.opcode.split('.');
    ["st", "atom", "red"].contains(&operation(instruction))
        && !qualifiers.any(|space| ["param", "local", "shared"].contains(&space))
}

/// Whether the block calls a function.
pub(crate) fn calls(block: &Block) -> bool {
    block
        .instructions
        .iter()
        .any(|instruction| instruction.opcode.starts_with("call"))
}

/// Blocks on some way from the begin to a return on which no block is `avoided`.
pub(crate) fn blocks_without(
    avoided: impl Fn(&Block) -> bool,
    kernel: &Function,
) -> BTreeSet<usize> {
    let open = |at: usize| !avoided(&kernel.blocks[at]);
    let reached = closure(
        |at| open(at) && at == 0,
        kernel,
        |from, to| kernel.blocks[from].successors.contains(&to) && open(to),
    );
    let returning = closure(
        |at| open(at) && kernel.blocks[at].returns,
        kernel,
        |from, to| kernel.blocks[to].successors.contains(&from) && open(to),
    );
    reached.intersection(&returning).copied().collect()
}

/// The blocks that `first` chooses and all that `follows` leads to from them.
fn closure(
    first: impl Fn(usize) -> bool,
    kernel: &Function,
    follows: impl Fn(usize, usize) -> bool,
) -> BTreeSet<usize> {
    let all = 0..kernel.blocks.len();
    let mut found: BTreeSet<usize> = all.clone().filter(|&at| first(at)).collect();
    let mut queue: Vec<usize> = found.iter().copied().collect();
    while let Some(from) = queue.pop() {
        let next = all.clone().filter(|&to| follows(from, to));
        queue.extend(next.filter(|&to| found.insert(to)));
    }
    found
}

fn touches_stack(instruction: &Instruction, stack: &BTreeSet<&str>) -> bool {
    let accesses = ["ld", "st", "atom", "red"].contains(&operation(instruction));
    let local = instruction
        .opcode
        .split('.')
        .any(|qualifier| qualifier == "local");
    accesses && (local || stack.contains(address(instruction)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::Listing;

    fn breaches_of(body: &str) -> Vec<String> {
        let text = format!(".visible .entry k(\n)\n{{\n{body}}}\n");
        breaches(Listing::parse(&text).unwrap().kernel("k").unwrap())
    }

    const MISS_IS_COLD: &str = "\
	mov.b64 	%SPL, __local_depot0;
	cvta.local.u64 	%SP, %SPL;
	add.u64 	%rd1, %SP, 8;
	@%p1 bra 	$HIT;
	st.b64 	[%rd1], %rd2;
	call.uni 	fetch, (param0);
$HIT:
	st.global.b64 	[%rd3], %rd4;
	ret;
";

    #[test]
    fn a_frame_that_only_the_miss_uses_is_no_breach() {
        assert_eq!(breaches_of(MISS_IS_COLD), [""; 0]);
    }

    #[test]
    fn a_call_before_every_return_is_one() {
        let body = MISS_IS_COLD
            .replace("@%p1 bra", "bra")
            .replace("$HIT:", "$HIT:\n call f;");
        assert!(breaches_of(&body)[0].contains("without a call"));
    }

    #[test]
    fn returning_without_having_done_anything_is_no_hit() {
        let body = MISS_IS_COLD.replace("$HIT:", "$HIT:\n @%p2 ret;\n call f;");
        assert!(breaches_of(&body)[0].contains("without a call"));
    }

    #[test]
    fn so_is_the_stack_under_another_name() {
        let body = MISS_IS_COLD
            .replace("[%rd3]", "[%rd1]")
            .replace("st.global", "st");
        assert!(breaches_of(&body)[0].contains("local memory"));
        let local = MISS_IS_COLD.replace("st.global", "st.local.b64 [%rd9], 1; st.global");
        assert!(breaches_of(&local)[0].contains("local memory"));
    }
}
