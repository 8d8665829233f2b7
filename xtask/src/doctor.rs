//! `cargo xtask doctor`: what this machine offers, and what to do about the rest.
//!
//! Each finding is one line: `ok`, `note` (works without, or to be known) or `missing` (needed
//! to run at all). It only looks; nothing is changed, fetched or opened for writing.

mod nvme;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::toolchain::Toolchain;
use crate::{ptxas, qemu, repo};

/// How much locked memory rings, staging buffers and pinned media want as a minimum.
const MEMLOCK_WANTED: u64 = 1 << 30;

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    Note,
    Missing,
}

/// One line of the report.
#[derive(Debug)]
struct Finding {
    level: Level,
    subject: &'static str,
    /// What was found and, where something is to be done, what.
    text: String,
}

impl Finding {
    fn new(level: Level, subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            level,
            subject,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Missing => "missing",
        };
        write!(f, "{level:8} {:12} {}", self.subject, self.text)
    }
}

/// Prints the report.
///
/// # Errors
/// Something is missing without which not even the emulated SSD on host threads runs.
pub fn run() -> Result<()> {
    let system = Path::new("/");
    let mut findings = toolchain();
    findings.push(driver(system));
    findings.extend(gpus(system));
    findings.push(memlock(system));
    findings.push(huge_pages(system));
    findings.push(iommu(system));
    findings.extend(nvme::controllers(system));
    for finding in &findings {
        println!("{finding}");
    }
    let missing = findings
        .iter()
        .filter(|finding| finding.level == Level::Missing)
        .count();
    if missing > 0 {
        bail!("{missing} needed things are missing; `cargo xtask setup` gets what it can");
    }
    Ok(())
}

/// The compiler against the pinned one, the library's sources, ptxas, QEMU.
fn toolchain() -> Vec<Finding> {
    let pinned = fs::read_to_string(repo::root().join("rust-toolchain.toml")).unwrap_or_default();
    let version = repo::stdout_of(repo::command("rustc").arg("--version")).unwrap_or_default();
    let rust_src = match Toolchain::find().map(|toolchain| toolchain.rust_src()) {
        Ok(Some(library)) => Finding::new(Level::Ok, "rust-src", library.display().to_string()),
        _ => Finding::new(Level::Missing, "rust-src", "none; run `cargo xtask setup`"),
    };
    let ptxas = match ptxas::find() {
        Some(path) => Finding::new(Level::Ok, "ptxas", path.display().to_string()),
        None => Finding::new(
            Level::Note,
            "ptxas",
            "none of a usable release; its checks are skipped. `cargo xtask setup` fetches one",
        ),
    };
    let qemu = match qemu::find() {
        Some(path) => Finding::new(Level::Ok, "QEMU", path.display().to_string()),
        None => Finding::new(
            Level::Note,
            "QEMU",
            "none; tests against its controller are skipped. `cargo xtask setup` fetches it",
        ),
    };
    vec![compiler(&pinned, &version), rust_src, ptxas, qemu]
}

/// Compares `rustc --version` with the channel in the text of rust-toolchain.toml.
fn compiler(pinned: &str, version: &str) -> Finding {
    let channel = toml::from_str::<toml::Table>(pinned).ok();
    let channel = channel
        .as_ref()
        .and_then(|table| table.get("toolchain")?.get("channel")?.as_str())
        .unwrap_or("unknown");
    let version = version.trim();
    match version.split(' ').nth(1) {
        None => Finding::new(
            Level::Missing,
            "compiler",
            "no rustc; see https://rustup.rs",
        ),
        Some(number) if number == channel => Finding::new(Level::Ok, "compiler", version),
        Some(_) => Finding::new(
            Level::Note,
            "compiler",
            format!("{version}, but {channel} is what the project is tested with"),
        ),
    }
}

/// Text of a file below the system's root, empty if it cannot be read.
fn read(system: &Path, path: &str) -> String {
    fs::read_to_string(system.join(path)).unwrap_or_default()
}

/// Entries of a folder below the system's root, sorted; none if it is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).into_iter().flatten();
    let mut entries: Vec<_> = listing
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .collect();
    entries.sort();
    entries
}

/// The name of the file that a path ends in.
fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The CUDA driver library, and the kernel module beneath it.
fn driver(system: &Path) -> Finding {
    let folders = [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib64",
        "usr/lib/wsl/lib",
        "usr/lib",
    ];
    let usual = folders
        .iter()
        .map(|folder| system.join(folder).join("libcuda.so.1"));
    let cached = repo::stdout_of(repo::command("ldconfig").arg("-p")).unwrap_or_default();
    let library = usual
        .into_iter()
        .find(|path| path.exists())
        .or_else(|| in_cache(&cached, system));
    let module = read(system, "proc/driver/nvidia/version");
    let module = module.lines().next().unwrap_or_default();
    match (library, module.is_empty()) {
        (Some(path), false) => Finding::new(
            Level::Ok,
            "CUDA driver",
            format!("{}; {module}", path.display()),
        ),
        (Some(path), true) => Finding::new(
            Level::Note,
            "CUDA driver",
            format!(
                "{}, but the kernel module is not loaded: `modprobe nvidia`",
                path.display()
            ),
        ),
        (None, false) => Finding::new(
            Level::Note,
            "CUDA driver",
            "kernel module without libcuda.so.1: install the driver's user-space part \
             (in a container: start it with the NVIDIA runtime)",
        ),
        (None, true) => Finding::new(
            Level::Note,
            "CUDA driver",
            "none; kernels run on host threads",
        ),
    }
}

/// libcuda as the linker's cache knows it. The cache is the running system's, so it says
/// nothing about any other root.
fn in_cache(cache: &str, system: &Path) -> Option<PathBuf> {
    let mut lines = cache
        .lines()
        .filter(|line| line.trim_start().starts_with("libcuda.so.1 "));
    let path = lines.next()?.rsplit("=> ").next()?.trim();
    (system == Path::new("/")).then(|| PathBuf::from(path))
}

/// Whether there is a GPU.
pub fn has_gpu() -> bool {
    let found = gpus(Path::new("/"));
    found.iter().any(|finding| finding.level == Level::Ok)
}

/// One finding per GPU that the kernel module drives.
fn gpus(system: &Path) -> Vec<Finding> {
    let folders = entries(&system.join("proc/driver/nvidia/gpus"));
    let found: Vec<_> = folders
        .iter()
        .map(|folder| {
            let text = fs::read_to_string(folder.join("information")).unwrap_or_default();
            let model = text.lines().find_map(|line| line.strip_prefix("Model:"));
            let model = model.unwrap_or("unknown model").trim();
            Finding::new(Level::Ok, "GPU", format!("{model} at {}", name(folder)))
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    // Sandboxes may hide the kernel's files and still lend a GPU.
    let mut query = repo::command("nvidia-smi");
    let listed = repo::stdout_of(
        query
            .arg("--query-gpu=name,memory.total")
            .arg("--format=csv,noheader"),
    );
    match listed {
        Ok(lines) if system == Path::new("/") && !lines.trim().is_empty() => lines
            .lines()
            .map(|gpu| Finding::new(Level::Ok, "GPU", gpu))
            .collect(),
        _ => vec![Finding::new(
            Level::Note,
            "GPU",
            "none; `--runner threads` is what bench uses",
        )],
    }
}

/// How much memory this process may lock.
fn memlock(system: &Path) -> Finding {
    let limits = read(system, "proc/self/limits");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line
        .and_then(|line| line.split_whitespace().next())
        .unwrap_or("unknown");
    match soft.parse::<u64>() {
        Ok(bytes) if bytes < MEMLOCK_WANTED => Finding::new(
            Level::Note,
            "memlock",
            format!(
                "{} KiB; a real SSD pins its buffers: `ulimit -l unlimited`, or memlock in \
                 /etc/security/limits.conf",
                bytes >> 10
            ),
        ),
        Ok(bytes) => Finding::new(Level::Ok, "memlock", format!("{} MiB", bytes >> 20)),
        Err(_) if soft == "unlimited" => Finding::new(Level::Ok, "memlock", soft),
        Err(_) => Finding::new(Level::Note, "memlock", "the limit cannot be read"),
    }
}

/// Huge pages that are reserved and free.
fn huge_pages(system: &Path) -> Finding {
    let meminfo = read(system, "proc/meminfo");
    let value = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let (free, kib) = (value("HugePages_Free:"), value("Hugepagesize:"));
    if free == 0 {
        return Finding::new(
            Level::Note,
            "huge pages",
            "none free; ordinary pages are used. `sysctl vm.nr_hugepages=N` reserves some",
        );
    }
    Finding::new(
        Level::Ok,
        "huge pages",
        format!("{free} free of {} MiB", kib >> 10),
    )
}

/// Whether an IOMMU stands between devices and memory.
fn iommu(system: &Path) -> Finding {
    match entries(&system.join("sys/kernel/iommu_groups")).len() {
        0 => Finding::new(
            Level::Note,
            "IOMMU",
            "off or absent; giving an SSD to user space safely needs one: enable VT-d or AMD-Vi \
             in the firmware, and intel_iommu=on on the kernel's command line",
        ),
        groups => Finding::new(Level::Ok, "IOMMU", format!("{groups} groups")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake system: files by path and text.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let system = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = system.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        system
    }

    #[test]
    fn an_empty_system_lacks_nothing_that_is_needed() {
        let system = system(&[]);
        let root = system.path();
        let findings = [driver(root), memlock(root), huge_pages(root), iommu(root)];
        assert!(
            findings.iter().all(|finding| finding.level == Level::Note),
            "{findings:?}"
        );
        assert_eq!(gpus(root)[0].level, Level::Note);
    }

    #[test]
    fn a_testbed_is_recognised() {
        let limits =
            "Limit Soft Hard Units\nMax locked memory         unlimited   unlimited bytes\n";
        let system = system(&[
            ("usr/lib64/libcuda.so.1", ""),
            (
                "proc/driver/nvidia/version",
                "NVRM version: 580.159.04\nGCC\n",
            ),
            (
                "proc/driver/nvidia/gpus/0000:17:00.0/information",
                "Model: \t NVIDIA H200\nIRQ: 5\n",
            ),
            ("proc/self/limits", limits),
            (
                "proc/meminfo",
                "HugePages_Total: 9\nHugePages_Free:  8\nHugepagesize:  2048 kB\n",
            ),
            ("sys/kernel/iommu_groups/7/type", "DMA"),
        ]);
        let root = system.path();
        let findings = [driver(root), memlock(root), huge_pages(root), iommu(root)];
        assert!(
            findings.iter().all(|finding| finding.level == Level::Ok),
            "{findings:?}"
        );
        assert!(findings[0].text.contains("580.159.04"));
        assert_eq!(findings[2].text, "8 free of 2 MiB");
        assert_eq!(gpus(root)[0].text, "NVIDIA H200 at 0000:17:00.0");
    }

    #[test]
    fn a_small_memlock_limit_says_what_to_do() {
        let system = system(&[(
            "proc/self/limits",
            "Max locked memory  8388608  8388608  bytes\n",
        )]);
        let finding = memlock(system.path());
        assert_eq!(finding.level, Level::Note);
        assert!(finding.text.starts_with("8192 KiB") && finding.text.contains("ulimit"));
    }

    #[test]
    fn half_a_driver_is_not_a_driver() {
        let module_only = system(&[("proc/driver/nvidia/version", "NVRM version: 580\n")]);
        assert!(driver(module_only.path()).text.contains("libcuda.so.1"));
        let library_only = system(&[("usr/lib64/libcuda.so.1", "")]);
        assert!(driver(library_only.path()).text.contains("modprobe"));
    }

    #[test]
    fn the_compiler_is_compared_with_the_pinned_one() {
        let pinned = "[toolchain]\nchannel = \"1.95.0\"\n";
        assert_eq!(
            compiler(pinned, "rustc 1.95.0 (5980 2026)\n").level,
            Level::Ok
        );
        assert_eq!(
            compiler(pinned, "rustc 1.96.0 (ac68 2026)").level,
            Level::Note
        );
        assert_eq!(compiler(pinned, "").level, Level::Missing);
    }
}
