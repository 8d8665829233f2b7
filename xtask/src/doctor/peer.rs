//! Shorter ways between a GPU and an SSD, which warpstore does not take yet.
//!
//! Each finding says what of it this machine has, and that nobody has tried it with warpstore.
//! No session chooses one of them: data and rings lie in host or GPU memory that an emulated SSD
//! reaches, and a real one's doorbells are rung by the CPU.

use std::fs;
use std::path::Path;

use super::{Finding, Level, entries, name, read};

/// PCI vendor of NVIDIA.
const NVIDIA: &str = "0x10de";
/// PCI classes of GPUs (VGA, 3D) and of NVMe controllers, without the programming interface.
const GPU: [&str; 2] = ["0x0300", "0x0302"];
const NVME: [&str; 1] = ["0x0108"];
const UNSUPPORTED: &str = "not supported by warpstore yet, untested";

/// One finding for each way.
pub fn ways(system: &Path) -> Vec<Finding> {
    let note = |subject, text| Finding::new(Level::Note, subject, text);
    vec![
        note("doorbells", doorbells(system)),
        note("GPU rings", rings(system)),
        note("P2P", peers(system)),
    ]
}

/// A GPU that stores to an SSD's doorbells itself, by `cuMemHostRegister(IOMEMORY)` of its BAR.
fn doorbells(system: &Path) -> String {
    let version = read(system, "proc/driver/nvidia/version");
    let parameters = read(system, "proc/driver/nvidia/params");
    let has = if version.is_empty() {
        "there is no NVIDIA kernel module"
    } else if !version.contains("Open Kernel Module") {
        "the kernel module is not the open one, which newer kernels need for it"
    } else if parameters.contains("PeerMappingOverride=1") {
        "the open kernel module allows it to every user"
    } else {
        "the open kernel module allows it to root, or with \
         NVreg_RegistryDwords=\"PeerMappingOverride=1\""
    };
    format!("a GPU that rings an SSD without the CPU: {UNSUPPORTED}; {has}")
}

/// Rings and data in GPU memory that a real SSD reaches, by gdrdrv's mapping and VFIO.
fn rings(system: &Path) -> String {
    let has = if system.join("dev/gdrdrv").exists() {
        "/dev/gdrdrv is there"
    } else {
        "/dev/gdrdrv is not there (NVIDIA's gdrcopy)"
    };
    format!("rings and data of a real SSD in GPU memory: {UNSUPPORTED}; {has}")
}

/// How near the SSDs are to a GPU.
fn peers(system: &Path) -> String {
    let (gpus, ssds) = (functions(system, &GPU), functions(system, &NVME));
    let gpus: Vec<_> = gpus
        .into_iter()
        .filter(|gpu| gpu.vendor == NVIDIA)
        .collect();
    let pairs = gpus
        .iter()
        .flat_map(|gpu| ssds.iter().map(move |ssd| (gpu, ssd)));
    let nearest = pairs.max_by_key(|(gpu, ssd)| gpu.shared(ssd));
    let has = match nearest {
        None => "there is no NVIDIA GPU beside an SSD".to_owned(),
        Some((gpu, ssd)) => {
            let way = match gpu.shared(ssd) {
                0 => "are on different root complexes",
                1 => "meet at the root complex",
                _ => "are behind one switch",
            };
            let redirected = if entries(&system.join("sys/kernel/iommu_groups")).is_empty() {
                ""
            } else {
                "; the IOMMU is on, and ACS (`lspci -vvv`) may send their traffic by the root complex"
            };
            format!("{} and {} {way}{redirected}", gpu.address, ssd.address)
        }
    };
    format!("traffic from SSD to GPU past host memory: {UNSUPPORTED}; {has}")
}

/// A function on the PCI bus.
struct Function {
    address: String,
    vendor: String,
    /// The root complex and the bridges above it, topmost first.
    above: Vec<String>,
}

impl Function {
    /// How many of the things above both are the same: 0 none, 1 the root complex alone.
    fn shared(&self, other: &Self) -> usize {
        let pairs = self.above.iter().zip(&other.above);
        pairs.take_while(|(ours, theirs)| ours == theirs).count()
    }
}

/// The functions of these classes.
fn functions(system: &Path, classes: &[&str]) -> Vec<Function> {
    let devices = entries(&system.join("sys/bus/pci/devices"));
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    devices
        .iter()
        .filter(|device| {
            let class = text(device.join("class"));
            classes.iter().any(|wanted| class.starts_with(wanted))
        })
        .filter_map(|device| {
            // /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0: the folders are the bridges.
            let place = fs::canonicalize(device).ok()?;
            let above = place.ancestors().skip(1).map(name);
            let mut above: Vec<_> = above.take_while(|name| name.contains(':')).collect();
            above.reverse();
            Some(Function {
                address: name(device),
                vendor: text(device.join("vendor")).trim().to_owned(),
                above,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::fake::system;
    use super::*;

    /// A function below `bridges`.
    fn function(root: &Path, bridges: &str, address: &str, class: &str, vendor: &str) {
        let place = root.join("sys/devices").join(bridges).join(address);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("class"), class).unwrap();
        fs::write(place.join("vendor"), vendor).unwrap();
        let bus = root.join("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        symlink(place, bus.join(address)).unwrap();
    }

    #[test]
    fn every_way_says_that_it_is_not_supported_and_what_is_there() {
        let bare = system(&[]);
        for finding in ways(bare.path()) {
            assert_eq!(finding.level, Level::Note);
            assert!(finding.text.contains(UNSUPPORTED), "{finding}");
        }
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159";
        let found = system(&[("proc/driver/nvidia/version", version), ("dev/gdrdrv", "")]);
        assert!(doorbells(found.path()).contains("to root"));
        assert!(rings(found.path()).contains("/dev/gdrdrv is there"));
        let allowed = system(&[
            ("proc/driver/nvidia/version", version),
            (
                "proc/driver/nvidia/params",
                "RegistryDwords: \"PeerMappingOverride=1\"\n",
            ),
        ]);
        assert!(doorbells(allowed.path()).contains("every user"));
        let closed = system(&[("proc/driver/nvidia/version", "NVRM version: 535\n")]);
        assert!(doorbells(closed.path()).contains("not the open one"));
    }

    #[test]
    fn the_nearest_ssd_of_a_gpu_is_named() {
        let near = |bridges: &str| {
            let system = system(&[]);
            let root = system.path();
            let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
            function(root, switch, "0000:02:00.0", "0x030200", "0x10de");
            function(root, "pci0000:80", "0000:81:00.0", "0x010802", "0x144d");
            function(root, "pci0000:00", "0000:00:05.0", "0x030000", "0x8086");
            function(root, bridges, "0000:03:00.0", "0x010802", "0x144d");
            peers(root)
        };
        let text = near("pci0000:00/0000:00:01.0/0000:01:01.0");
        assert!(
            text.contains("0000:02:00.0 and 0000:03:00.0 are behind one switch"),
            "{text}"
        );
        assert!(near("pci0000:00/0000:00:02.0").contains("meet at the root complex"));
        assert!(near("pci0000:40").contains("different root complexes"));
    }

    #[test]
    fn an_iommu_is_mentioned_where_there_is_one() {
        let system = system(&[("sys/kernel/iommu_groups/1/type", "DMA")]);
        function(
            system.path(),
            "pci0000:00",
            "0000:02:00.0",
            "0x030200",
            "0x10de",
        );
        function(
            system.path(),
            "pci0000:00",
            "0000:03:00.0",
            "0x010802",
            "0x144d",
        );
        assert!(peers(system.path()).contains("ACS"));
    }
}
