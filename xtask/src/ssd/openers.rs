//! Processes that have a controller or one of its block devices open.
//!
//! Who opens a disk without claiming it (a virtual machine, a database on the raw disk) shows
//! nowhere else.

use std::fs;
use std::io;
use std::path::Path;
use std::process;

use super::blocks::block_devices;
use super::{Controller, about, entries_if_any, name, text};

/// The processes, in words; this one does not count.
///
/// # Errors
/// A process cannot be looked at, which takes root.
pub fn openers(system: &Path, controller: &Controller) -> io::Result<Vec<String>> {
    let mut nodes = block_devices(system, controller)?;
    // The character devices of namespaces and of the controller itself.
    let generic = nodes.iter().filter_map(|block| block.strip_prefix("nvme"));
    let generic: Vec<_> = generic.map(|numbers| format!("ng{numbers}")).collect();
    nodes.extend(generic);
    nodes.extend(
        controller
            .identity
            .as_ref()
            .map(|identity| identity.name.clone()),
    );
    let mut openers = Vec::new();
    for folder in entries_if_any(&system.join("proc"))? {
        let is_other = name(&folder)
            .parse()
            .is_ok_and(|pid: u32| pid != process::id());
        if is_other && let Some(node) = opened(&folder, &nodes)? {
            let what = text(&folder.join("comm")).unwrap_or_default();
            openers.push(format!(
                "process {} ({what}), which has {node} open",
                name(&folder)
            ));
        }
    }
    Ok(openers)
}

/// The first of the nodes that a process has open.
fn opened(process: &Path, nodes: &[String]) -> io::Result<Option<String>> {
    for descriptor in entries_if_any(&process.join("fd"))? {
        match fs::read_link(&descriptor) {
            Ok(target) if nodes.contains(&name(&target)) => return Ok(Some(name(&target))),
            Ok(_) => {}
            // It, or the process, has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(about(&descriptor, &error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::NVME;
    use super::super::fake::System;
    use super::*;

    #[test]
    fn whoever_has_a_node_open_is_named_and_this_process_is_not() {
        let system = System::with_driver(NVME);
        let found = || openers(system.root(), &system.controller()).unwrap();
        let open = |pid: u32, target: &str| {
            let folder = system.root().join(format!("proc/{pid}/fd"));
            fs::create_dir_all(&folder).unwrap();
            symlink(target, folder.join("3")).unwrap();
        };
        open(process::id(), "/dev/nvme0n1");
        open(7, "/dev/nvme0n10");
        open(8, "socket:[1]");
        assert_eq!(found(), [""; 0]);
        system.file("proc/9/comm", "qemu-system-x86\n");
        for (pid, node) in [(9, "nvme0n1"), (10, "ng0n1"), (11, "nvme0")] {
            open(pid, &format!("/dev/{node}"));
            assert!(
                found()
                    .iter()
                    .any(|text| text.contains(&format!("{node} open"))),
                "{node}: {:?}",
                found()
            );
        }
        assert!(
            found().contains(&"process 9 (qemu-system-x86), which has nvme0n1 open".to_owned())
        );
    }

    #[test]
    fn a_descriptor_that_is_no_link_is_an_error() {
        let system = System::with_driver(NVME);
        system.file("proc/9/fd/3", "");
        assert!(openers(system.root(), &system.controller()).is_err());
    }
}
