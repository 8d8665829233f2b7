//! What uses a controller's block devices: mounts, swap, RAID, LVM, exports.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::binding::Bus;
use super::blocks::{block_devices, namespaces};
use super::{Controller, about, entries, entries_if_any, name, text, text_if_any};

/// `O_EXCL` of Linux: on a block device it fails if anybody has claimed it.
const EXCLUSIVE: i32 = 0o200;

/// What uses the controller, in words; what cannot be looked at counts.
pub fn uses(system: &Path, controller: &Controller) -> Vec<String> {
    let mut uses = Vec::new();
    let mut add = |found: io::Result<Vec<String>>| match found {
        Ok(found) => uses.extend(found),
        Err(error) => uses.push(format!("something unknown ({error})")),
    };
    add(other_ways(system, controller));
    let blocks = match block_devices(system, controller) {
        Ok(blocks) => blocks,
        Err(error) => {
            add(Err(error));
            return uses;
        }
    };
    for block in &blocks {
        add(mounts(system, block));
        add(swaps(system, block));
        add(holders(system, block));
        add(btrfs(system, block));
        add(exports(system, block));
        add(loops(system, block));
    }
    uses
}

/// Claims the controller's namespaces, so that nobody can begin to use them meanwhile; an error if
/// somebody has, or if a node is something else than the namespace: a file of that name, say, which
/// a copy to a disk that was away has left.
pub fn claim(
    system: &Path,
    bus: &impl Bus,
    controller: &Controller,
) -> io::Result<Vec<(String, File)>> {
    let mut claimed = Vec::new();
    for block in namespaces(system, controller)? {
        let node = system.join("dev").join(&block);
        let mut options = OpenOptions::new();
        let opened = options.read(true).custom_flags(EXCLUSIVE).open(&node);
        let opened = opened.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                io::Error::other(format!("{}: somebody has claimed it", node.display()))
            }
            _ => about(&node, &error),
        })?;
        let number = bus.number(&block, &opened).map_err(|e| about(&node, &e))?;
        if number != text(&system.join("sys/class/block").join(&block).join("dev"))? {
            let text = format!("{} is another device, {number}", node.display());
            return Err(io::Error::other(text));
        }
        claimed.push((block, opened));
    }
    Ok(claimed)
}

/// Other controllers of the same subsystem, through which the kernel reaches the same namespaces.
fn other_ways(system: &Path, controller: &Controller) -> io::Result<Vec<String>> {
    let Some(identity) = &controller.identity else {
        return Ok(Vec::new());
    };
    let mut ways = Vec::new();
    for subsystem in entries_if_any(&system.join("sys/class/nvme-subsystem"))? {
        let members: Vec<_> = entries(&subsystem)?.iter().map(|path| name(path)).collect();
        if members.contains(&identity.name) {
            let is_controller = |member: &&String| {
                member.strip_prefix("nvme").is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                })
            };
            let others = members.iter().filter(is_controller);
            let others = others.filter(|member| **member != identity.name);
            ways.extend(others.map(|other| format!("{other}, another way to its namespaces")));
        }
    }
    Ok(ways)
}

/// Mount points, as this process and as the first one sees them.
fn mounts(system: &Path, block: &str) -> io::Result<Vec<String>> {
    let number = text(&system.join("sys/class/block").join(block).join("dev"))?;
    let node = format!("/dev/{block}");
    let mut mounts = Vec::new();
    for process in ["self", "1"] {
        let table = text(&system.join("proc").join(process).join("mountinfo"))?;
        let mounted = table
            .lines()
            .filter_map(|line| mounted(line, &number, &node));
        mounts.extend(mounted.map(|point| format!("a file system at {point}")));
    }
    mounts.sort();
    mounts.dedup();
    Ok(mounts)
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

fn swaps(system: &Path, block: &str) -> io::Result<Vec<String>> {
    let (table, node) = (text(&system.join("proc/swaps"))?, format!("/dev/{block}"));
    let is_it = |line: &&str| line.split_whitespace().next() == Some(&node);
    let found = table.lines().filter(is_it);
    Ok(found.map(|_| format!("swap on {block}")).collect())
}

/// Device mapper, RAID, LVM, encryption, multipath.
fn holders(system: &Path, block: &str) -> io::Result<Vec<String>> {
    let holders = entries(&system.join("sys/class/block").join(block).join("holders"))?;
    Ok(holders
        .iter()
        .map(|holder| format!("{} on {block}", name(holder)))
        .collect())
}

/// A mounted btrfs names one of its devices in mountinfo, and all of them here.
fn btrfs(system: &Path, block: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for volume in entries_if_any(&system.join("sys/fs/btrfs"))? {
        if volume.join("devices").join(block).try_exists()? {
            found.push(format!("btrfs {}", name(&volume)));
        }
    }
    Ok(found)
}

/// Namespaces that an NVMe target of the kernel exports.
fn exports(system: &Path, block: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for subsystem in entries_if_any(&system.join("sys/kernel/config/nvmet/subsystems"))? {
        for namespace in entries_if_any(&subsystem.join("namespaces"))? {
            let path = text(&namespace.join("device_path"))?;
            if leads_to(system, &path, block)? {
                found.push(format!("the NVMe target {}", name(&subsystem)));
            }
        }
    }
    Ok(found)
}

/// Whether a path that somebody gave to the kernel is the block device, by whatever link.
fn leads_to(system: &Path, path: &str, block: &str) -> io::Result<bool> {
    let place = system.join(path.trim_start_matches('/'));
    match fs::canonicalize(&place) {
        Ok(found) => Ok(found == fs::canonicalize(system.join("dev").join(block))?),
        // Not set yet, or gone since: then the kernel's text is all there is.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.ends_with(block)),
        Err(error) => Err(about(&place, &error)),
    }
}

/// Loop devices over the block device.
fn loops(system: &Path, block: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for device in entries(&system.join("sys/class/block"))? {
        let backing = device.join("loop/backing_file");
        // The path is that of the process which made it: below a root of its own, perhaps.
        if let Some(path) = text_if_any(&backing)?
            && path.ends_with(&format!("/{block}"))
        {
            found.push(format!("{} over {block}", name(&device)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::DEVICES;
    use super::super::fake::System;
    use super::*;

    fn found(system: &System) -> Vec<String> {
        uses(system.root(), &system.controller())
    }

    #[test]
    fn an_idle_disk_has_no_use_and_can_be_claimed() {
        let system = System::partitioned();
        system.file(
            "proc/self/mountinfo",
            "36 35 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n",
        );
        assert_eq!(found(&system), [""; 0]);
        let claimed = claim(system.root(), &system, &system.controller()).unwrap();
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].0, "nvme0n1");
    }

    #[test]
    fn a_mounted_partition_is_a_use_by_number_and_by_name_for_anybody() {
        for process in ["self", "1"] {
            for line in [
                "36 35 259:2 / /data rw shared:1 - ext4 /dev/root rw\n",
                "36 35 0:30 / /data rw shared:1 - btrfs /dev/nvme0n1p2 rw\n",
            ] {
                let system = System::partitioned();
                system.file(&format!("proc/{process}/mountinfo"), line);
                assert_eq!(found(&system), ["a file system at /data"]);
            }
        }
    }

    #[test]
    fn each_other_use_is_found() {
        let cases: [(&str, &str, &str); 6] = [
            (
                "proc/swaps",
                "/dev/nvme0n1p2 partition 1 0 -2\n",
                "swap on nvme0n1p2",
            ),
            (
                "sys/class/block/nvme0n1/holders/dm-3/dev",
                "254:3",
                "dm-3 on nvme0n1",
            ),
            (
                "sys/class/block/nvme0n1p2/holders/md0/dev",
                "9:0",
                "md0 on nvme0n1p2",
            ),
            (
                "sys/fs/btrfs/af-9/devices/nvme0n1p2/size",
                "1",
                "btrfs af-9",
            ),
            (
                "sys/kernel/config/nvmet/subsystems/out/namespaces/1/device_path",
                "/dev/nvme0n1\n",
                "the NVMe target out",
            ),
            (
                "sys/class/block/loop4/loop/backing_file",
                "/dev/nvme0n1\n",
                "loop4 over nvme0n1",
            ),
        ];
        for (path, content, expected) in cases {
            let system = System::partitioned();
            system.file(path, content);
            assert_eq!(found(&system), [expected], "{path}");
        }
    }

    #[test]
    fn an_exported_disk_is_found_by_whatever_name() {
        let system = System::partitioned();
        system.folder("dev/disk/by-id");
        let link = system.root().join("dev/disk/by-id/nvme-S123");
        symlink("../../nvme0n1", link).unwrap();
        let target = "sys/kernel/config/nvmet/subsystems/out/namespaces/1/device_path";
        system.file(target, "/dev/disk/by-id/nvme-S123\n");
        assert_eq!(found(&system), ["the NVMe target out"]);
        system.file(target, "/dev/sda\n");
        assert_eq!(found(&system), [""; 0]);
    }

    #[test]
    fn uses_of_other_disks_do_not_count() {
        let system = System::partitioned();
        system.file("sys/class/block/nvme0n10/holders/md0/dev", "9:0");
        system.file("proc/swaps", "/dev/nvme0n10 partition 1 0 -2\n");
        assert_eq!(found(&system), [""; 0]);
    }

    #[test]
    fn another_controller_of_the_subsystem_is_a_use() {
        let system = System::partitioned();
        let subsystem = "sys/class/nvme-subsystem/nvme-subsys0";
        system.folder(&format!("{subsystem}/nvme0n1"));
        for name in ["nvme0", "nvme5"] {
            let place = system.root().join(subsystem).join(name);
            symlink("../somewhere", place).unwrap();
        }
        assert_eq!(found(&system), ["nvme5, another way to its namespaces"]);
    }

    #[test]
    fn what_cannot_be_read_is_a_use() {
        for path in [
            "proc/self/mountinfo",
            "proc/1/mountinfo",
            "proc/swaps",
            "sys/class/block/nvme0n1/dev",
            "sys/class/block/nvme0n1p2/holders",
            "sys/class/block/nvme0n1",
            "sys/class/block",
        ] {
            let system = System::partitioned();
            system.remove(path);
            let found = found(&system);
            assert!(
                found
                    .iter()
                    .any(|found| found.starts_with("something unknown")),
                "{path}: {found:?}"
            );
        }
        let system = System::partitioned();
        system.remove("dev/nvme0n1");
        assert!(claim(system.root(), &system, &system.controller()).is_err());
    }

    #[test]
    fn a_namespace_that_is_no_block_device_is_a_use() {
        let system = System::partitioned();
        let children = format!("{DEVICES}/0000:01:00.0/nvme/nvme0");
        system.folder(&format!("{children}/ng0n1"));
        assert_eq!(found(&system), [""; 0]);
        system.folder(&format!("{children}/ng0n2"));
        assert!(found(&system)[0].contains("nvme0n2 is no block device"));
    }

    #[test]
    fn a_controller_without_namespaces_has_no_use() {
        let system = System::partitioned();
        system.remove(&format!("{DEVICES}/0000:01:00.0/nvme/nvme0/nvme0c0n1"));
        assert_eq!(found(&system), [""; 0]);
        assert!(
            claim(system.root(), &system, &system.controller())
                .unwrap()
                .is_empty()
        );
    }
}
