//! NVMe controllers, and whether each is free to be taken from the kernel.
//!
//! A controller is in use when any of its block devices or their partitions is mounted, is swap
//! space or has a holder (device mapper, RAID, LVM, encryption). This report is advice: what
//! opens a controller makes its own check.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Finding, Level, entries, name, read};

/// PCI class of an NVMe I/O controller: mass storage, non-volatile memory, NVM Express.
const CLASS: &str = "0x010802";

/// One finding per controller on the PCI bus.
pub fn controllers(system: &Path) -> Vec<Finding> {
    let devices = entries(&system.join("sys/bus/pci/devices"));
    let is_nvme = |device: &PathBuf| {
        fs::read_to_string(device.join("class")).is_ok_and(|class| class.trim() == CLASS)
    };
    let found: Vec<_> = devices
        .into_iter()
        .filter(is_nvme)
        .map(|d| finding(system, &d))
        .collect();
    if found.is_empty() {
        return vec![Finding::new(
            Level::Note,
            "NVMe",
            "no controller; SSDs are emulated",
        )];
    }
    found
}

fn finding(system: &Path, device: &Path) -> Finding {
    let address = name(device);
    let group = link(&device.join("iommu_group")).unwrap_or_else(|| "none".to_owned());
    let about = format!("{address}{}, IOMMU group {group}", identity(device));
    match link(&device.join("driver")).as_deref() {
        Some("vfio-pci") => Finding::new(
            Level::Ok,
            "NVMe",
            format!("{about}: bound to vfio-pci; needs access to /dev/vfio/{group}"),
        ),
        Some("nvme") => {
            let uses = uses(system, device);
            if !uses.is_empty() {
                let text = format!("{about}: in use by {}; leave it alone", uses.join(", "));
                return Finding::new(Level::Note, "NVMe", text);
            }
            Finding::new(
                Level::Ok,
                "NVMe",
                format!(
                    "{about}: free. To take it (data on it may be lost): \
                     `driverctl --nosave set-override {address} vfio-pci`"
                ),
            )
        }
        Some(driver) => Finding::new(
            Level::Note,
            "NVMe",
            format!("{about}: held by driver {driver}"),
        ),
        None => Finding::new(
            Level::Note,
            "NVMe",
            format!(
                "{about}: no driver. To use it: `driverctl --nosave set-override {address} \
                 vfio-pci`"
            ),
        ),
    }
}

/// Model and serial number, which only the kernel's own driver reports.
fn identity(device: &Path) -> String {
    let Some(controller) = entries(&device.join("nvme")).into_iter().next() else {
        return String::new();
    };
    let field = |file: &str| fs::read_to_string(controller.join(file)).unwrap_or_default();
    format!(
        " ({}, serial {})",
        field("model").trim(),
        field("serial").trim()
    )
}

/// What uses the controller's block devices: mount points, swap, holders.
fn uses(system: &Path, device: &Path) -> Vec<String> {
    let (mounts, swaps) = (
        read(system, "proc/self/mountinfo"),
        read(system, "proc/swaps"),
    );
    let mut uses = Vec::new();
    for block in block_devices(system, device) {
        let folder = system.join("sys/class/block").join(&block);
        let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
        let node = format!("/dev/{block}");
        uses.extend(
            mounts
                .lines()
                .filter_map(|line| mounted(line, number.trim(), &node)),
        );
        if swaps
            .lines()
            .any(|line| line.split_whitespace().next() == Some(&node))
        {
            uses.push(format!("swap on {block}"));
        }
        uses.extend(
            entries(&folder.join("holders"))
                .iter()
                .map(|holder| name(holder)),
        );
    }
    uses
}

/// The controller's namespaces and their partitions, as `/sys/class/block` names them.
fn block_devices(system: &Path, device: &Path) -> Vec<String> {
    let controllers = entries(&device.join("nvme"));
    let children = controllers
        .iter()
        .flat_map(|controller| entries(controller));
    let namespaces: Vec<_> = children
        .filter_map(|child| namespace(&name(&child)))
        .collect();
    let blocks = entries(&system.join("sys/class/block"));
    let belongs = |block: &String| {
        namespaces.iter().any(|namespace| {
            block == namespace
                || block
                    .strip_prefix(namespace)
                    .is_some_and(|p| p.starts_with('p'))
        })
    };
    blocks
        .iter()
        .map(|block| name(block))
        .filter(belongs)
        .collect()
}

/// The block device of a controller's child: `nvme0n1` is one; with native multipath the child
/// is the path `nvme0c1n1` of it.
fn namespace(child: &str) -> Option<String> {
    let (instance, namespace) = child.strip_prefix("nvme")?.split_once('n')?;
    let subsystem = instance
        .split_once('c')
        .map_or(instance, |(subsystem, _)| subsystem);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (number(subsystem) && number(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

/// The mount point in a line of mountinfo that mounts this block device. Some file systems
/// (btrfs) show a number of their own, so the source's name counts too.
fn mounted(line: &str, number: &str, node: &str) -> Option<String> {
    let mut fields = line.split(' ');
    let (device, mount_point) = (fields.nth(2)?, fields.nth(1)?);
    let (_, after) = line.split_once(" - ")?;
    let source = after.split(' ').nth(1)?;
    (device == number || source == node).then(|| mount_point.to_owned())
}

/// The last part of where a symbolic link points to.
fn link(path: &Path) -> Option<String> {
    fs::read_link(path).ok().map(|target| name(&target))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const BUS: &str = "sys/bus/pci/devices";

    struct System(tempfile::TempDir);

    impl System {
        /// A system with one controller, driven by `driver`, with one partitioned namespace.
        fn with_driver(driver: &str) -> Self {
            let system = Self(tempfile::tempdir().unwrap());
            let device = format!("{BUS}/0000:01:00.0");
            system.file(&format!("{device}/class"), "0x010802\n");
            system.file(&format!("{BUS}/0000:02:00.0/class"), "0x030000\n");
            system.file(&format!("{device}/nvme/nvme0/model"), "Optane P5800X  \n");
            system.file(&format!("{device}/nvme/nvme0/serial"), "S123\n");
            system.file(&format!("{device}/nvme/nvme0/nvme0c0n1/size"), "0\n");
            system.file("sys/class/block/nvme0n1/dev", "259:0\n");
            system.file("sys/class/block/nvme0n1p2/dev", "259:2\n");
            system.file("sys/class/block/nvme0n10/dev", "259:9\n");
            let device = system.0.path().join(device);
            symlink(format!("../drivers/{driver}"), device.join("driver")).unwrap();
            symlink("../iommu_groups/42", device.join("iommu_group")).unwrap();
            system
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn only_finding(&self) -> Finding {
            let mut findings = controllers(self.0.path());
            assert_eq!(findings.len(), 1);
            findings.remove(0)
        }
    }

    #[test]
    fn a_free_controller_is_named_with_what_to_do() {
        let system = System::with_driver("nvme");
        system.file(
            "proc/self/mountinfo",
            "36 35 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n",
        );
        let finding = system.only_finding();
        assert_eq!(finding.level, Level::Ok);
        for word in [
            "0000:01:00.0",
            "Optane P5800X, serial S123",
            "group 42",
            "free",
        ] {
            assert!(finding.text.contains(word), "{word} in {}", finding.text);
        }
    }

    #[test]
    fn a_mounted_partition_is_a_use_by_number_and_by_name() {
        for line in [
            "36 35 259:2 / /data rw shared:1 - ext4 /dev/root rw\n",
            "36 35 0:30 / /data rw shared:1 - btrfs /dev/nvme0n1p2 rw\n",
        ] {
            let system = System::with_driver("nvme");
            system.file("proc/self/mountinfo", line);
            let finding = system.only_finding();
            assert_eq!(finding.level, Level::Note);
            assert!(
                finding.text.contains("in use by /data;"),
                "{}",
                finding.text
            );
        }
    }

    #[test]
    fn swap_and_holders_are_uses_and_other_namespaces_are_not() {
        let system = System::with_driver("nvme");
        system.file(
            "proc/swaps",
            "Filename Type\n/dev/nvme0n1p2 partition 1 0 -2\n",
        );
        system.file("sys/class/block/nvme0n1/holders/dm-3/dev", "254:3");
        system.file("sys/class/block/nvme0n10/holders/md0/dev", "9:0");
        let text = system.only_finding().text;
        assert!(
            text.contains("in use by dm-3, swap on nvme0n1p2;"),
            "{text}"
        );
    }

    #[test]
    fn the_bound_driver_decides() {
        assert_eq!(
            System::with_driver("vfio-pci").only_finding().level,
            Level::Ok
        );
        let other = System::with_driver("uio_pci_generic").only_finding();
        assert!(other.text.contains("held by driver uio_pci_generic"));
    }

    #[test]
    fn a_machine_without_controllers_says_so() {
        let system = tempfile::tempdir().unwrap();
        assert!(controllers(system.path())[0].text.contains("emulated"));
    }

    #[test]
    fn multipath_children_name_their_head() {
        assert_eq!(namespace("nvme3n2").as_deref(), Some("nvme3n2"));
        assert_eq!(namespace("nvme0c3n1").as_deref(), Some("nvme0n1"));
        assert_eq!(namespace("ng0n1"), None);
        assert_eq!(namespace("nvme0"), None);
    }
}
