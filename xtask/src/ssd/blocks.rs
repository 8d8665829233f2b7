//! Which block devices a controller has.

use std::io;
use std::path::Path;

use super::{Controller, DEVICES, entries, entries_if_any, name};

/// The controller's namespaces and their partitions, as `/sys/class/block` names them.
pub fn block_devices(system: &Path, controller: &Controller) -> io::Result<Vec<String>> {
    let namespaces = namespaces(system, controller)?;
    let belongs = |block: &String| {
        namespaces.iter().any(|namespace| {
            block == namespace
                || block
                    .strip_prefix(namespace)
                    .is_some_and(|p| p.starts_with('p'))
        })
    };
    let blocks = entries(&system.join("sys/class/block"))?;
    let blocks: Vec<_> = blocks
        .iter()
        .map(|block| name(block))
        .filter(belongs)
        .collect();
    match namespaces
        .iter()
        .find(|namespace| !blocks.contains(namespace))
    {
        Some(missing) => Err(io::Error::other(format!(
            "{missing} is not in /sys/class/block"
        ))),
        None => Ok(blocks),
    }
}

/// The block devices of the controller's namespaces.
pub fn namespaces(system: &Path, controller: &Controller) -> io::Result<Vec<String>> {
    let mut namespaces = Vec::new();
    let device = system.join(DEVICES).join(&controller.address);
    for instance in entries_if_any(&device.join("nvme"))? {
        let children: Vec<_> = entries(&instance)?
            .iter()
            .map(|child| name(child))
            .collect();
        namespaces.extend(children.iter().filter_map(|child| namespace(child)));
        // A namespace that is no block device has a character device alone.
        let generic = children.iter().filter_map(|child| child.strip_prefix("ng"));
        let missing = generic
            .filter_map(|numbers| namespace(&format!("nvme{numbers}")))
            .find(|block| !namespaces.contains(block));
        if let Some(block) = missing {
            return Err(io::Error::other(format!("{block} is no block device")));
        }
    }
    namespaces.sort();
    namespaces.dedup();
    Ok(namespaces)
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

/// Partitions of a namespace that the kernel knows, whatever the disk says by now.
pub fn partitions(system: &Path, namespace: &str) -> io::Result<Vec<String>> {
    let blocks = entries(&system.join("sys/class/block"))?;
    let blocks = blocks.iter().map(|block| name(block));
    Ok(blocks
        .filter(|block| {
            let rest = block.strip_prefix(namespace);
            rest.is_some_and(|rest| rest.starts_with('p'))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipath_children_name_their_head() {
        assert_eq!(namespace("nvme3n2").as_deref(), Some("nvme3n2"));
        assert_eq!(namespace("nvme0c3n1").as_deref(), Some("nvme0n1"));
        assert_eq!(namespace("ng0n1"), None);
        assert_eq!(namespace("nvme0"), None);
    }
}
