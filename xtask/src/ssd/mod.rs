//! NVMe controllers as the kernel shows them, and whether one may be taken from it.
//!
//! Everything is read below a `system` root, so that tests can make one. An answer that cannot
//! be read counts as a use: what is not known to be free is not touched.

pub mod bind;
mod binding;
mod blocks;
mod openers;
mod records;
mod signature;
mod uses;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use uses::uses;

/// PCI class of an NVMe I/O controller: mass storage, non-volatile memory, NVM Express.
const CLASS: &str = "0x010802";
/// Where sysfs lists PCI functions.
const DEVICES: &str = "sys/bus/pci/devices";
/// The driver that gives functions to processes.
pub const VFIO: &str = "vfio-pci";
/// The kernel's own driver.
pub const NVME: &str = "nvme";

/// A controller on the PCI bus.
#[derive(Debug, PartialEq, Eq)]
pub struct Controller {
    /// PCI address, as `0000:01:00.0`.
    pub address: String,
    /// Its driver, if it has one.
    pub driver: Option<String>,
    /// Its IOMMU group, if there is an IOMMU.
    pub group: Option<String>,
    /// What the kernel's driver says it is; none without that driver.
    pub identity: Option<Identity>,
}

/// What only the kernel's own driver reports.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kernel's name, as `nvme0`.
    pub name: String,
    /// Model, without the blanks around it.
    pub model: String,
    /// Serial number, without the blanks around it.
    pub serial: String,
}

/// All controllers, by address.
pub fn controllers(system: &Path) -> Vec<Controller> {
    let devices = entries(&system.join(DEVICES)).unwrap_or_default();
    let is_nvme = |device: &PathBuf| text(&device.join("class")).is_ok_and(|class| class == CLASS);
    devices
        .into_iter()
        .filter(is_nvme)
        .map(|device| Controller {
            address: name(&device),
            driver: link(&device.join("driver")),
            group: link(&device.join("iommu_group")),
            identity: identity(&device),
        })
        .collect()
}

impl Controller {
    /// Whether this is the one meant by an address or a serial number.
    pub fn is(&self, wanted: &str) -> bool {
        self.address == wanted || self.serial().is_some_and(|serial| serial == wanted)
    }

    /// The serial number, where the kernel's driver reports one.
    pub fn serial(&self) -> Option<&str> {
        let identity = self.identity.as_ref()?;
        (!identity.serial.is_empty()).then_some(identity.serial.as_str())
    }

    /// Address and, where they are known, model and serial number.
    pub fn shown(&self) -> String {
        match &self.identity {
            Some(Identity { model, serial, .. }) => {
                format!("{} ({model}, serial {serial})", self.address)
            }
            None => self.address.clone(),
        }
    }

    /// Members of its IOMMU group that a driver of the kernel uses, but for bridges: these cannot
    /// be reached through VFIO's group and keep it from being used. Address and driver of each.
    pub fn group_mates(&self, system: &Path) -> io::Result<Vec<(String, String)>> {
        let folder = system.join(DEVICES).join(&self.address);
        let mut mates = Vec::new();
        for member in entries(&folder.join("iommu_group/devices"))? {
            let mate = name(&member);
            let device = system.join(DEVICES).join(&mate);
            let driver = link(&device.join("driver"));
            let harmless = driver.as_deref().is_none_or(|driver| {
                [VFIO, "pci-stub"].contains(&driver)
                    || text(&device.join("class")).is_ok_and(|class| class.starts_with("0x0604"))
            });
            if mate != self.address && !harmless {
                mates.push((mate, driver.unwrap_or_default()));
            }
        }
        Ok(mates)
    }
}

fn identity(device: &Path) -> Option<Identity> {
    let folder = entries(&device.join("nvme")).ok()?.into_iter().next()?;
    let field = |file: &str| text(&folder.join(file)).unwrap_or_default();
    Some(Identity {
        name: name(&folder),
        model: field("model"),
        serial: field("serial"),
    })
}

/// The text of a file, without the blanks around it.
fn text(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path).map_err(|error| about(path, &error))?;
    Ok(text.trim().to_owned())
}

/// The text of a file that need not be there.
fn text_if_any(path: &Path) -> io::Result<Option<String>> {
    match text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Entries of a folder, sorted.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let listing = fs::read_dir(folder).map_err(|error| about(folder, &error))?;
    let mut entries = listing
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// Entries of a folder that need not be there. One that is there and cannot be read is an error.
fn entries_if_any(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match entries(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The last part of a path.
fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The last part of where a symbolic link points to.
fn link(path: &Path) -> Option<String> {
    fs::read_link(path).ok().map(|target| name(&target))
}

#[cfg(test)]
pub mod fake {
    //! A made-up system.

    use std::os::unix::fs::symlink;

    use super::binding::Bus;
    use super::*;

    /// Address and serial number of the one SSD of [`System`].
    pub const SSD: &str = "0000:01:00.0";
    pub const SERIAL: &str = "S123";
    /// Bytes of its namespace.
    pub const BYTES: u64 = 8 << 20;

    /// A root with what the tests need below it.
    pub struct System(tempfile::TempDir);

    /// Files for nodes, which are the devices that sysfs says.
    impl Bus for System {
        fn number(&self, name: &str, _: &fs::File) -> io::Result<String> {
            text(&self.root().join("sys/class/block").join(name).join("dev"))
        }

        fn driver(&self, _: &str) -> Option<String> {
            unreachable!("nobody moves this one")
        }

        fn write(&self, _: &str, _: &str) -> io::Result<()> {
            unreachable!("nobody moves this one")
        }
    }

    impl System {
        /// A controller of the kernel's driver whose namespace has a partition.
        pub fn partitioned() -> Self {
            let system = Self::with_driver(NVME);
            system.block("nvme0n1p2", "259:2", 1 << 20);
            system
        }

        /// One controller, driven by `driver`, with one namespace and nothing on it, and a GPU.
        pub fn with_driver(driver: &str) -> Self {
            let system = Self(tempfile::tempdir().unwrap());
            system.function(SSD, CLASS, driver, "42");
            system.function("0000:02:00.0", "0x030000", "nvidia", "43");
            let device = format!("{DEVICES}/{SSD}");
            system.file(&format!("{device}/nvme/nvme0/model"), "Optane P5800X  \n");
            system.file(&format!("{device}/nvme/nvme0/serial"), "S123            \n");
            system.file(&format!("{device}/nvme/nvme0/nvme0c0n1/size"), "0\n");
            system.block("nvme0n1", "259:0", BYTES);
            system.block("nvme0n10", "259:9", 1 << 20);
            system.file("proc/self/mountinfo", "");
            system.file("proc/1/mountinfo", "");
            system.file("proc/swaps", "Filename Type\n");
            system.folder("sys/bus/pci/drivers/vfio-pci");
            system
        }

        pub fn root(&self) -> &Path {
            self.0.path()
        }

        pub fn file(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub fn folder(&self, path: &str) {
            fs::create_dir_all(self.root().join(path)).unwrap();
        }

        pub fn remove(&self, path: &str) {
            let path = self.root().join(path);
            if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }

        /// A block device: its folder in sysfs and a node full of zeroes.
        pub fn block(&self, name: &str, number: &str, bytes: u64) {
            let folder = format!("sys/class/block/{name}");
            self.file(&format!("{folder}/dev"), &format!("{number}\n"));
            self.file(&format!("{folder}/size"), &format!("{}\n", bytes / 512));
            self.folder(&format!("{folder}/holders"));
            self.folder("dev");
            let node = fs::File::create(self.root().join("dev").join(name));
            node.unwrap().set_len(bytes).unwrap();
        }

        /// A function on the bus, alone in its group.
        pub fn function(&self, address: &str, class: &str, driver: &str, group: &str) {
            let device = format!("{DEVICES}/{address}");
            self.file(&format!("{device}/class"), &format!("{class}\n"));
            let members = format!("sys/kernel/iommu_groups/{group}");
            self.folder(&format!("{members}/devices/{address}"));
            let device = self.root().join(device);
            symlink(format!("../drivers/{driver}"), device.join("driver")).unwrap();
            symlink(self.root().join(members), device.join("iommu_group")).unwrap();
        }

        pub fn controller(&self) -> Controller {
            let mut found = controllers(self.root());
            assert_eq!(found.len(), 1);
            found.remove(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::{SERIAL, SSD, System};
    use super::*;

    #[test]
    fn a_controller_is_found_by_address_and_by_serial() {
        let controller = System::with_driver(NVME).controller();
        assert!(controller.is(SSD) && controller.is(SERIAL));
        assert!(!controller.is("") && !controller.is("0000:02:00.0"));
        assert_eq!(
            controller.shown(),
            "0000:01:00.0 (Optane P5800X, serial S123)"
        );
        assert_eq!(controller.group.as_deref(), Some("42"));
    }

    #[test]
    fn mates_count_if_a_driver_uses_them() {
        let system = System::with_driver(NVME);
        let mates = || system.controller().group_mates(system.root()).unwrap();
        assert!(mates().is_empty());
        system.function("0000:00:01.0", "0x060400", "pcieport", "42");
        system.function("0000:01:00.1", "0x020000", VFIO, "42");
        assert!(mates().is_empty());
        system.function("0000:01:00.2", "0x020000", "e1000", "42");
        assert_eq!(mates(), [("0000:01:00.2".into(), "e1000".into())]);
        system.remove("sys/kernel/iommu_groups/42/devices");
        assert!(system.controller().group_mates(system.root()).is_err());
    }
}
