//! What the machine has that is no SSD: driver, GPUs, memory, IOMMU.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Finding, Level, entries, name, read};
use crate::repo;

/// How much locked memory rings, staging buffers and pinned media want as a minimum.
const MEMLOCK_WANTED: u64 = 1 << 30;

/// The CUDA driver library, and the kernel module beneath it.
pub fn driver(system: &Path) -> Finding {
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
pub fn gpus(system: &Path) -> Vec<Finding> {
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
pub fn memlock(system: &Path) -> Finding {
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
pub fn huge_pages(system: &Path) -> Finding {
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
pub fn iommu(system: &Path) -> Finding {
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
    use super::super::fake::system;
    use super::*;

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
}
