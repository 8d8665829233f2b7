//! From the compiler's text to what a driver is given: checks, and launch bounds.

use std::path::PathBuf;

use crate::{Arch, BuildError, PtxVersion};

/// Begins the comment in which `#[kernel]` says a kernel's bounds. rustc has no attribute for
/// them, but comments in module assembly survive to its output.
const MARKER: &str = "// @warpstore.kernel ";

/// A compiled kernel crate.
#[derive(Clone, Debug)]
pub struct Ptx {
    /// File that holds the text.
    pub path: PathBuf,
    /// PTX for all kernels.
    pub text: String,
    /// The kernels, in the order of the text.
    pub kernels: Vec<KernelInfo>,
    /// Files it was made from: sources, manifests, lock files.
    pub sources: Vec<PathBuf>,
}

/// An entry of the PTX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// Name by which the driver finds it.
    pub name: String,
    /// Largest block, in threads. None for an entry that was not made by `#[kernel]`.
    pub max_threads: Option<u32>,
    /// How many blocks a multiprocessor shall hold at least.
    pub min_blocks: Option<u32>,
    /// Most registers of a thread.
    pub max_registers: Option<u32>,
    /// Parameters, in order; the first is the status slot.
    pub params: Vec<Param>,
}

/// A kernel's parameter as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Size in bytes.
    pub bytes: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// Checks that the text is for `arch` and `version`, and writes launch bounds into it.
pub fn finish(
    text: &str,
    arch: Arch,
    version: PtxVersion,
) -> Result<(String, Vec<KernelInfo>), BuildError> {
    expect_header(text, ".version", &version.to_string())?;
    expect_header(text, ".target", &format!("sm_{}", arch.number()))?;
    let mut marked = markers(text)?;
    let mut finished = String::with_capacity(text.len());
    let mut kernels = Vec::new();
    let mut rest = text;
    while let Some((before, entry, after)) = next_entry(rest)? {
        let found = marked.iter().position(|kernel| kernel.name == entry.name);
        let bounds = found.map(|at| marked.swap_remove(at)).unwrap_or_default();
        let kernel = KernelInfo {
            name: entry.name,
            params: entry.params,
            ..bounds
        };
        finished += before;
        finished += &directives(&kernel);
        kernels.push(kernel);
        rest = after;
    }
    finished += rest;
    match marked.first() {
        Some(kernel) => Err(BuildError::Malformed(format!(
            "kernel `{}` has no entry",
            kernel.name
        ))),
        None => Ok((finished, kernels)),
    }
}

/// A flag that reached the compiler from elsewhere shows here, as another target.
fn expect_header(text: &str, directive: &str, wanted: &str) -> Result<(), BuildError> {
    let found = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(directive))
        .map(str::trim);
    let matches = found.is_some_and(|found| found.split(',').next() == Some(wanted));
    if matches {
        return Ok(());
    }
    let found = found.unwrap_or("nothing");
    Err(BuildError::Malformed(format!(
        "{directive} is {found} in place of {wanted}"
    )))
}

fn markers(text: &str) -> Result<Vec<KernelInfo>, BuildError> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(MARKER))
        .map(marker)
        .collect()
}

/// Reads `NAME max_threads=N [min_blocks=N] [max_registers=N]`.
fn marker(marker: &str) -> Result<KernelInfo, BuildError> {
    let broken = || BuildError::Malformed(format!("marker `{marker}` is not one of this version"));
    let mut words = marker.split_whitespace();
    let name = words.next().ok_or_else(broken)?.to_owned();
    let mut kernel = KernelInfo {
        name,
        ..KernelInfo::default()
    };
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(broken)?;
        let value = Some(value.parse().map_err(|_| broken())?);
        match key {
            "max_threads" => kernel.max_threads = value,
            "min_blocks" => kernel.min_blocks = value,
            "max_registers" => kernel.max_registers = value,
            _ => return Err(broken()),
        }
    }
    Ok(kernel)
}

struct Entry {
    name: String,
    params: Vec<Param>,
}

/// Splits before the brace that opens the next entry's body.
fn next_entry(text: &str) -> Result<Option<(&str, Entry, &str)>, BuildError> {
    const ENTRY: &str = ".entry ";
    let Some(at) = text.find(ENTRY) else {
        return Ok(None);
    };
    let broken = || BuildError::Malformed("an .entry without parameters or body".to_owned());
    let signature = &text[at + ENTRY.len()..];
    let open = signature.find('(').ok_or_else(broken)?;
    let close = signature.find(')').ok_or_else(broken)?;
    let body = signature.find('{').ok_or_else(broken)?;
    if !(open < close && close < body) {
        return Err(broken());
    }
    let params = signature[open + 1..close]
        .split(',')
        .map(str::trim)
        .filter(|p| !p.is_empty());
    let entry = Entry {
        name: signature[..open].trim().to_owned(),
        params: params.map(param).collect::<Result<_, _>>()?,
    };
    let split = at + ENTRY.len() + body;
    Ok(Some((&text[..split], entry, &text[split..])))
}

/// Reads `.param .u64 .ptr .align 1 name` or `.param .align 16 .b8 name[16]`.
fn param(text: &str) -> Result<Param, BuildError> {
    let broken = || BuildError::Malformed(format!("parameter `{text}`"));
    let words: Vec<&str> = text.split_whitespace().collect();
    let [".param", ty, rest @ ..] = &*words else {
        return Err(broken());
    };
    if let (".align", [align, ".b8", array]) = (*ty, rest) {
        let size = array
            .split_once('[')
            .and_then(|(_, size)| size.strip_suffix(']'));
        let bytes = size.and_then(|size| size.parse().ok()).ok_or_else(broken)?;
        return Ok(Param {
            bytes,
            align: align.parse().map_err(|_| broken())?,
        });
    }
    // A scalar is aligned to its size. What follows `.ptr` is about the memory behind it.
    let bits: u32 = ty
        .get(2..)
        .and_then(|bits| bits.parse().ok())
        .ok_or_else(broken)?;
    Ok(Param {
        bytes: bits / 8,
        align: bits / 8,
    })
}

fn directives(kernel: &KernelInfo) -> String {
    let mut text = String::new();
    if let Some(threads) = kernel.max_threads {
        text += &format!(".maxntid {threads}, 1, 1\n");
    }
    if let Some(blocks) = kernel.min_blocks {
        text += &format!(".minnctapersm {blocks}\n");
    }
    if let Some(registers) = kernel.max_registers {
        text += &format!(".maxnreg {registers}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
.version 8.2
.target sm_80
.address_size 64

// @warpstore.kernel scale max_threads=256 min_blocks=2
	// .globl	scale
.visible .entry scale(
	.param .align 8 .b8 scale_param_0[16],
	.param .u64 .ptr .align 1 scale_param_1,
	.param .f32 scale_param_2
)
{
	ret;
}
.visible .entry bare()
{
	ret;
}
";
    const VERSION: PtxVersion = PtxVersion { major: 8, minor: 2 };

    #[test]
    fn bounds_stand_between_signature_and_body() {
        let (text, kernels) = finish(TEXT, Arch::Compute80, VERSION).unwrap();
        assert!(
            text.contains("scale_param_2\n)\n.maxntid 256, 1, 1\n.minnctapersm 2\n{"),
            "{text}"
        );
        assert!(text.contains(".entry bare()\n{"), "{text}");
        let scale = &kernels[0];
        assert_eq!((scale.max_threads, scale.min_blocks), (Some(256), Some(2)));
        let params = scale.params.iter().map(|param| (param.bytes, param.align));
        assert_eq!(params.collect::<Vec<_>>(), [(16, 8), (8, 8), (4, 4)]);
        assert_eq!(
            (kernels[1].name.as_str(), kernels[1].max_threads),
            ("bare", None)
        );
    }

    #[test]
    fn another_target_or_version_is_refused() {
        let error = finish(TEXT, Arch::Compute90, VERSION)
            .unwrap_err()
            .to_string();
        assert!(error.contains("sm_80 in place of sm_90"), "{error}");
        let newer = PtxVersion { major: 8, minor: 6 };
        assert!(finish(TEXT, Arch::Compute80, newer).is_err());
        let debug = TEXT.replace("sm_80", "sm_80, debug");
        assert!(finish(&debug, Arch::Compute80, VERSION).is_ok());
    }

    #[test]
    fn a_marker_without_entry_is_an_error() {
        let orphan = format!("{TEXT}// @warpstore.kernel gone max_threads=1\n");
        let error = finish(&orphan, Arch::Compute80, VERSION)
            .unwrap_err()
            .to_string();
        assert!(error.contains("`gone`"), "{error}");
    }
}
