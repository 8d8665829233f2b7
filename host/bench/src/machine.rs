//! Facts about the machine a result comes from; nothing that names it or its user.

use std::fs;
use std::thread;

use serde::Serialize;

/// The machine of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Model of the CPU.
    pub cpu: Option<String>,
    /// CPU cores this process may use.
    pub cores: usize,
    /// Memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// The GPU that ran the kernels.
    pub gpu: Option<String>,
    /// Version of the GPU's driver.
    pub driver: Option<String>,
    /// Name and release of the operating system's kernel.
    pub os: Option<String>,
}

impl Machine {
    /// This machine, as /proc describes it; `gpu` and `driver` are for whoever opened a GPU.
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let os = [
            read("/proc/sys/kernel/ostype"),
            read("/proc/sys/kernel/osrelease"),
        ]
        .map(|text| text.trim().to_owned());
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").map(str::to_owned),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal").and_then(kib),
            gpu: None,
            driver: None,
            os: Some(os.join(" ")).filter(|text| !text.trim().is_empty()),
        }
    }
}

/// The value of the first line `name : value`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

/// A size as /proc/meminfo writes it, in bytes: proc_meminfo(5) calls kB what are KiB.
pub(crate) fn kib(value: &str) -> Option<u64> {
    value
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 85\nmodel name\t: A CPU @ 2: fast\nMemTotal:     8 kB\n";
        assert_eq!(field(text, "model name"), Some("A CPU @ 2: fast"));
        assert_eq!(field(text, "MemTotal").and_then(kib), Some(8192));
        assert_eq!(field(text, "name"), None);
        assert_eq!(kib("8"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = Machine::this();
        assert!(machine.cores > 0);
        assert!(machine.memory_bytes.unwrap() > 1 << 20);
        assert!(machine.os.unwrap().starts_with("Linux "));
    }
}
