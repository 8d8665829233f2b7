//! PTX text as functions, basic blocks and instructions.
//!
//! Reads what LLVM prints, not all of PTX: one directive, label or run of instructions a line,
//! bodies between braces in the first column, call sequences and asm blocks in indented ones.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// True if it has a guard (`@%p1`), so that the next one may be reached without it.
    pub guarded: bool,
    /// The operation with all its qualifiers: `atom.relaxed.gpu.global.add.u64`.
    pub opcode: String,
    /// The rest.
    pub operands: String,
}

/// Instructions without a branch into or out of their middle.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Label, empty for the first block and after a guarded branch.
    pub label: String,
    /// In order.
    pub instructions: Vec<Instruction>,
    /// Indices of the blocks that may follow.
    pub successors: Vec<usize>,
    /// True if the function may return at the end of it.
    pub returns: bool,
}

/// A function, kernel or not.
#[derive(Clone, Debug)]
pub struct Function {
    /// Symbol.
    pub name: String,
    /// True for a kernel.
    pub entry: bool,
    /// In the order of the text; the first is where it begins.
    pub blocks: Vec<Block>,
}

impl Function {
    /// All instructions in the order of the text.
    pub fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.blocks.iter().flat_map(|block| &block.instructions)
    }

    /// The names given, and the registers that hold an address derived from one of them, as far
    /// as moves and additions spread it.
    pub fn spread<'a>(&'a self, names: BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let moves: Vec<_> = self.instructions().filter(|i| moves_address(i)).collect();
        derived(names, &moves)
    }
}

/// The names given, and the registers whose values `instructions` derive from them, in whatever
/// order these are executed.
pub fn derived<'a>(
    names: BTreeSet<&'a str>,
    instructions: &[&'a Instruction],
) -> BTreeSet<&'a str> {
    let mut all = names;
    loop {
        let before = all.len();
        for instruction in instructions {
            let mut operands = words(&instruction.operands);
            let Some(result) = operands.next() else {
                continue;
            };
            if operands.any(|operand| all.contains(operand)) {
                all.insert(result);
            }
        }
        if all.len() == before {
            return all;
        }
    }
}

fn moves_address(instruction: &Instruction) -> bool {
    ["mov", "add", "or", "cvta", "selp", "mad"].contains(&operation(instruction))
}

/// A module.
#[derive(Clone, Debug)]
pub struct Listing {
    functions: BTreeMap<String, Function>,
}

impl Listing {
    /// Reads a module.
    ///
    /// # Errors
    /// The text is not PTX as LLVM prints it.
    pub fn parse(text: &str) -> Result<Self> {
        let mut functions = BTreeMap::new();
        let mut lines = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        while let Some(line) = lines.next() {
            let Some(entry) = declared(line) else {
                continue;
            };
            let mut signature = line.to_owned();
            let mut last = line;
            // A declaration without a body ends with a semicolon.
            while last.trim() != "{" && !last.trim_end().ends_with(';') {
                last = lines.next().context("the text ends within a signature")?;
                signature += last;
            }
            if last.trim() != "{" {
                continue;
            }
            let name = symbol(&signature)?;
            let body: Vec<&str> = lines
                .by_ref()
                .take_while(|line| line.trim_end() != "}")
                .collect();
            let blocks = blocks(&body).with_context(|| format!("in {name}"))?;
            functions.insert(
                name.clone(),
                Function {
                    name,
                    entry,
                    blocks,
                },
            );
        }
        Ok(Self { functions })
    }

    /// The kernels, by name.
    pub fn kernels(&self) -> impl Iterator<Item = &Function> {
        self.functions.values().filter(|function| function.entry)
    }

    /// A kernel.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn kernel(&self, name: &str) -> Result<&Function> {
        let kernel = self.functions.get(name).filter(|function| function.entry);
        kernel.with_context(|| format!("the PTX has no kernel `{name}`"))
    }

    /// The kernel and every function that it may call, by name or by an address that it takes,
    /// each once.
    pub fn reachable<'a>(&'a self, kernel: &'a Function) -> Vec<&'a Function> {
        let mut seen = BTreeSet::from([kernel.name.as_str()]);
        let mut all = vec![kernel];
        let mut next = 0;
        while next < all.len() {
            let instructions = all[next].instructions();
            for name in instructions.flat_map(|instruction| words(&instruction.operands)) {
                if let Some(function) = self.functions.get(name).filter(|_| seen.insert(name)) {
                    all.push(function);
                }
            }
            next += 1;
        }
        all
    }
}

/// The names and registers among operands.
pub fn words(operands: &str) -> impl Iterator<Item = &str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_$%".contains(c);
    operands
        .split(move |c| !inside(c))
        .filter(|word| !word.is_empty())
}

/// The register between the brackets of a memory operand.
pub fn address(instruction: &Instruction) -> &str {
    let inside = instruction
        .operands
        .split_once('[')
        .map_or("", |(_, after)| after);
    words(inside).next().unwrap_or_default()
}

/// Whether a line begins a function, and if so, a kernel.
fn declared(line: &str) -> Option<bool> {
    let mut words = line
        .split_whitespace()
        .filter(|word| ![".visible", ".weak", ".extern"].contains(word));
    match words.next() {
        Some(".entry") => Some(true),
        Some(".func") => Some(false),
        _ => None,
    }
}

/// The name in `.entry name(…)` or `.func (.param .b64 result) name(…)`.
fn symbol(signature: &str) -> Result<String> {
    let (_, after) = signature
        .split_once(".entry")
        .or_else(|| signature.split_once(".func"))
        .context("a function without keyword")?;
    let after = after.trim_start();
    let after = match after.strip_prefix('(') {
        Some(result) => result.split_once(')').context("a result without end")?.1,
        None => after,
    };
    words(after)
        .next()
        .map(str::to_owned)
        .context("a function without name")
}

fn blocks(body: &[&str]) -> Result<Vec<Block>> {
    let mut blocks = vec![Block::default()];
    let mut tables: BTreeMap<String, String> = BTreeMap::new();
    for statement in statements(body) {
        if let Some((label, targets)) = statement.split_once(": .branchtargets") {
            tables.insert(label.trim().to_owned(), targets.to_owned());
        } else if let Some(label) = statement.strip_suffix(':') {
            blocks.push(Block {
                label: label.to_owned(),
                ..Block::default()
            });
        } else if let Some(instruction) = instruction(&statement) {
            let ends = ["bra", "brx", "ret", "exit", "trap"].contains(&operation(&instruction));
            if let Some(block) = blocks.last_mut() {
                block.instructions.push(instruction);
            }
            if ends {
                blocks.push(Block::default());
            }
        }
    }
    connect(&mut blocks, &tables)?;
    Ok(blocks)
}

/// Statements without their semicolons; a label keeps its colon.
fn statements(body: &[&str]) -> Vec<String> {
    let mut statements = Vec::new();
    for line in body {
        let line = line.trim();
        if line.ends_with(':') {
            statements.push(line.to_owned());
            continue;
        }
        let pieces = line
            .split(';')
            .map(|piece| piece.trim_matches(|c: char| c == '{' || c == '}' || c.is_whitespace()));
        statements.extend(pieces.filter(|piece| !piece.is_empty()).map(str::to_owned));
    }
    statements
}

/// None for directives.
fn instruction(statement: &str) -> Option<Instruction> {
    let (guarded, rest) = match statement.strip_prefix('@') {
        Some(guarded) => (
            true,
            guarded.split_once(char::is_whitespace)?.1.trim_start(),
        ),
        None => (false, statement),
    };
    let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_instruction = opcode.starts_with(|c: char| c.is_ascii_lowercase());
    is_instruction.then(|| Instruction {
        guarded,
        opcode: opcode.to_owned(),
        operands: operands.trim().to_owned(),
    })
}

/// The opcode without its qualifiers.
pub fn operation(instruction: &Instruction) -> &str {
    instruction.opcode.split('.').next().unwrap_or_default()
}

fn connect(blocks: &mut [Block], tables: &BTreeMap<String, String>) -> Result<()> {
    let labels: BTreeMap<String, usize> = blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| !block.label.is_empty())
        .map(|(at, block)| (block.label.clone(), at))
        .collect();
    let count = blocks.len();
    for (at, block) in blocks.iter_mut().enumerate() {
        let last = block.instructions.last();
        let (mut targets, mut falls) = (String::new(), true);
        if let Some(last) = last {
            match operation(last) {
                "bra" => (targets, falls) = (last.operands.clone(), last.guarded),
                "brx" => {
                    let table = words(&last.operands).find_map(|word| tables.get(word));
                    targets = table.context("a branch through an unknown table")?.clone();
                    falls = last.guarded;
                }
                "ret" => (block.returns, falls) = (true, last.guarded),
                "exit" | "trap" => falls = last.guarded,
                _ => {}
            }
        }
        for target in words(&targets) {
            match labels.get(target) {
                Some(&to) => block.successors.push(to),
                None => bail!("a branch to `{target}`, which is not there"),
            }
        }
        if falls && at + 1 < count {
            block.successors.push(at + 1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
.version 8.2
.func other
()
.noreturn;
.func  (.param .b64 func_retval0) helper(
	.param .b64 helper_param_0
)
{
	trap; exit;
}
.visible .entry k(
	.param .u64 k_param_0
)
.maxntid 32, 1, 1
{
	.reg .pred 	%p<2>;
	@%p1 bra 	$L__BB0_2;
	{ // callseq 0, 0
	.param .b64 param0;
	st.param.b64 	[param0], %rd1;
	call.uni (retval0), helper, (param0);
	} // callseq 0
	brx.idx 	%r1, $L_table;
$L_table: .branchtargets $L__BB0_2, $L__BB0_3;
$L__BB0_2:
	// begin inline asm
	{ .reg .pred q; setp.ne.u32 q, %r1, 0; @q vote.sync.any.pred q, q, -1; }
	// end inline asm
	ret;
$L__BB0_3:
	bra.uni 	$L__BB0_2;
}
";

    #[test]
    fn functions_blocks_and_edges_are_those_of_the_text() {
        let listing = Listing::parse(TEXT).unwrap();
        let kernel = listing.kernel("k").unwrap();
        let names: Vec<_> = listing
            .reachable(kernel)
            .iter()
            .map(|f| f.name.clone())
            .collect();
        assert_eq!(names, ["k", "helper"]);
        let by_address = TEXT.replace(
            "call.uni (retval0), helper, (",
            "mov.b64 %rd2, helper; call %rd2, (",
        );
        let listing_by_address = Listing::parse(&by_address).unwrap();
        let kernel_by_address = listing_by_address.kernel("k").unwrap();
        assert_eq!(listing_by_address.reachable(kernel_by_address).len(), 2);
        assert!(listing.kernel("helper").is_err() && listing.kernel("other").is_err());

        let at = |label: &str| kernel.blocks.iter().position(|b| b.label == label).unwrap();
        let (second, third) = (at("$L__BB0_2"), at("$L__BB0_3"));
        assert_eq!(kernel.blocks[0].successors, [second, 1]);
        assert_eq!(kernel.blocks[1].successors, [second, third]);
        assert_eq!(kernel.blocks[third].successors, [second]);
        assert!(kernel.blocks[second].returns && kernel.blocks[second].successors.is_empty());
        let opcodes: Vec<_> = kernel.blocks[second]
            .instructions
            .iter()
            .map(|i| i.opcode.as_str())
            .collect();
        assert_eq!(opcodes, ["setp.ne.u32", "vote.sync.any.pred", "ret"]);
    }

    #[test]
    fn a_branch_to_nowhere_is_an_error() {
        let broken = TEXT.replace("bra.uni \t$L__BB0_2", "bra.uni \t$L__BB0_9");
        let error = format!("{:#}", Listing::parse(&broken).unwrap_err());
        assert!(
            error.contains("in k") && error.contains("$L__BB0_9"),
            "{error}"
        );
    }
}
