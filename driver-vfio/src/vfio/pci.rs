//! What sysfs says about a PCI function, before anything of it is opened.

use std::fs;
use std::path::{Path, PathBuf};

use super::config::NVME_CLASS;
use super::error::VfioError;

/// Where sysfs lists PCI functions.
const DEVICES: &str = "sys/bus/pci/devices";
/// The driver that gives functions to processes.
const VFIO: &str = "vfio-pci";
/// The base class and subclass of bridges, which may share a group.
const BRIDGE: &str = "0x0604";
/// Where `cargo xtask bind` leaves, in a file with a controller's address for a name, the serial
/// number that the kernel does not know any more (`xtask/src/ssd/bind.rs`).
const RECORDS: &str = "run/warpstore";

/// Addresses of the NVMe controllers that are bound to vfio-pci, ascending.
pub fn bound_controllers() -> Vec<String> {
    bound(Path::new("/"))
}

fn bound(system: &Path) -> Vec<String> {
    let mut addresses: Vec<_> = names(&system.join(DEVICES))
        .into_iter()
        .filter(|name| {
            let device = system.join(DEVICES).join(name);
            is_nvme(&class(&device)) && link(&device.join("driver")).as_deref() == Some(VFIO)
        })
        .collect();
    addresses.sort();
    addresses
}

/// The PCI address of the controller that is called by its address or, as `cargo xtask bind` has
/// recorded it, by its serial number. Whether it has that number, it must say itself.
///
/// # Errors
/// No controller with that serial number was bound.
pub fn address_of(name: &str) -> Result<String, VfioError> {
    address_on(Path::new("/"), name)
}

fn address_on(system: &Path, name: &str) -> Result<String, VfioError> {
    if is_address(name) {
        return Ok(name.to_owned());
    }
    let bound = bound(system);
    let has_it = |address: &&String| {
        fs::read_to_string(system.join(RECORDS).join(address)).is_ok_and(|text| text.trim() == name)
    };
    let found = bound.iter().find(has_it).cloned();
    found.ok_or_else(|| VfioError::Unknown {
        name: name.to_owned(),
        bound: match bound[..] {
            [] => "none".to_owned(),
            _ => bound.join(", "),
        },
    })
}

/// The folder of the controller at `address`, if VFIO can open it.
pub(super) fn usable(system: &Path, address: &str) -> Result<PathBuf, VfioError> {
    let name = || address.to_owned();
    if !is_address(address) {
        return Err(VfioError::Address(name()));
    }
    let device = system.join(DEVICES).join(address);
    if !device.exists() {
        return Err(VfioError::Absent(name()));
    }
    let class = class(&device);
    if !is_nvme(&class) {
        return Err(VfioError::NotNvme {
            address: name(),
            class,
        });
    }
    let driver = link(&device.join("driver")).unwrap_or_else(|| "no driver".into());
    if driver != VFIO {
        return Err(VfioError::NotBound {
            address: name(),
            driver,
        });
    }
    let folder = device.join("iommu_group");
    let group = link(&folder).ok_or_else(|| VfioError::NoIommu(name()))?;
    if fs::read_to_string(folder.join("name")).is_ok_and(|text| text.trim() == "vfio-noiommu") {
        return Err(VfioError::UnsafeNoIommu(name()));
    }
    let others = in_use(system, &folder, address);
    if !others.is_empty() {
        return Err(VfioError::SharedGroup {
            address: name(),
            group,
            others: others.join(", "),
        });
    }
    Ok(device)
}

/// Members of the group, but for `address` and bridges, that a driver of the kernel uses.
fn in_use(system: &Path, group: &Path, address: &str) -> Vec<String> {
    let others = names(&group.join("devices")).into_iter();
    others
        .filter(|name| name != address)
        .filter_map(|name| {
            let device = system.join(DEVICES).join(&name);
            if class(&device).starts_with(BRIDGE) {
                return None;
            }
            let driver = link(&device.join("driver"))?;
            let harmless = [VFIO, "pci-stub"].contains(&driver.as_str());
            (!harmless).then(|| format!("{name} ({driver})"))
        })
        .collect()
}

/// Whether the text has the form DDDD:BB:DD.F; anything else could name another place in sysfs.
fn is_address(text: &str) -> bool {
    const FORM: &[u8] = b"hhhh:hh:hh.f";
    text.len() == FORM.len()
        && text.bytes().zip(FORM).all(|(byte, form)| match form {
            b'h' => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            b'f' => (b'0'..=b'7').contains(&byte),
            _ => byte == *form,
        })
}

fn is_nvme(class: &str) -> bool {
    let digits = class.strip_prefix("0x").unwrap_or_default();
    u32::from_str_radix(digits, 16) == Ok(NVME_CLASS)
}

/// The class as sysfs writes it.
fn class(device: &Path) -> String {
    let text = fs::read_to_string(device.join("class")).unwrap_or_default();
    text.trim().to_owned()
}

/// The last part of where a symbolic link points to.
fn link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const SSD: &str = "0000:01:00.0";

    /// A system with an SSD, a bridge and a GPU.
    struct System(tempfile::TempDir);

    impl System {
        fn new() -> Self {
            let system = Self(tempfile::tempdir().unwrap());
            system.function(SSD, "0x010802", "vfio-pci", "9");
            system.function("0000:00:01.0", "0x060400", "pcieport", "9");
            system.function("0000:02:00.0", "0x030000", "nvidia", "10");
            system
        }

        fn function(&self, address: &str, class: &str, driver: &str, group: &str) {
            let device = self.0.path().join(DEVICES).join(address);
            let members = self.0.path().join("sys/kernel/iommu_groups").join(group);
            fs::create_dir_all(&device).unwrap();
            fs::create_dir_all(members.join("devices").join(address)).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
            symlink(format!("../drivers/{driver}"), device.join("driver")).unwrap();
            symlink(&members, device.join("iommu_group")).unwrap();
        }

        fn usable(&self, address: &str) -> Result<PathBuf, VfioError> {
            usable(self.0.path(), address)
        }

        fn refusal(&self, address: &str) -> String {
            self.usable(address).unwrap_err().to_string()
        }
    }

    #[test]
    fn a_bound_controller_beside_a_bridge_is_usable() {
        let system = System::new();
        assert!(system.usable(SSD).unwrap().ends_with(SSD));
        assert_eq!(bound(system.0.path()), [SSD]);
    }

    #[test]
    fn a_serial_number_leads_to_the_bound_controller_that_was_recorded_with_it() {
        let system = System::new();
        let find = |name| address_on(system.0.path(), name).map_err(|error| error.to_string());
        let unknown = find("S1").unwrap_err();
        assert!(
            unknown.contains("bound to vfio-pci are: 0000:01:00.0"),
            "{unknown}"
        );
        let records = system.0.path().join(RECORDS);
        fs::create_dir_all(&records).unwrap();
        fs::write(records.join(SSD), "S1\n").unwrap();
        // Of one that has gone back to the kernel.
        fs::write(records.join("0000:09:00.0"), "S2").unwrap();
        assert_eq!(find("S1").as_deref(), Ok(SSD));
        assert!(find("S2").is_err() && find("").is_err());
        assert_eq!(find("0000:07:00.0").as_deref(), Ok("0000:07:00.0"));
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let system = System::new();
        assert!(
            system
                .refusal("0000:03:00.0")
                .contains("no such PCI function")
        );
        assert!(system.refusal("0000:02:00.0").contains("class 0x030000"));
        system.function("0000:04:00.0", "0x010802", "nvme", "11");
        let text = system.refusal("0000:04:00.0");
        assert!(text.contains("cargo xtask bind 0000:04:00.0"), "{text}");
        let device = system.0.path().join(DEVICES).join("0000:05:00.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("class"), "0x010802").unwrap();
        assert!(
            system
                .refusal("0000:05:00.0")
                .contains("bound to no driver")
        );
        symlink("../drivers/vfio-pci", device.join("driver")).unwrap();
        assert!(system.refusal("0000:05:00.0").contains("intel_iommu=on"));
    }

    #[test]
    fn a_group_that_others_use_is_refused_by_name() {
        let system = System::new();
        system.function("0000:01:00.1", "0x020000", "e1000", "9");
        system.function("0000:01:00.2", "0x020000", "vfio-pci", "9");
        let text = system.refusal(SSD);
        assert!(
            text.contains("group 9 also holds 0000:01:00.1 (e1000), which"),
            "{text}"
        );
    }

    #[test]
    fn a_mode_without_an_iommu_is_refused() {
        let system = System::new();
        let group = system.0.path().join("sys/kernel/iommu_groups/9/name");
        fs::write(group, "vfio-noiommu\n").unwrap();
        assert!(system.refusal(SSD).contains("enable_unsafe_noiommu_mode"));
    }

    #[test]
    fn addresses_lead_nowhere_else() {
        for text in [
            "",
            "01:00.0",
            "0000:01:00.8",
            "0000:0g:00.0",
            "../../../..",
            "0000:01:00.0/",
        ] {
            assert!(!is_address(text), "{text}");
        }
        assert!(is_address("10de:af:1f.7"));
    }
}
