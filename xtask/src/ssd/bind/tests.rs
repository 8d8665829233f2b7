//! Taking an SSD and giving it back, in made-up systems.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;

use super::super::DEVICES;
use super::super::fake::{SERIAL, SSD, System};
use super::*;

/// Moves the function of a made-up system as the kernel would.
struct Kernel<'a> {
    system: &'a System,
    writes: RefCell<usize>,
    /// What each node is, if not what sysfs says.
    node: Option<&'static str>,
}

impl<'a> Kernel<'a> {
    fn of(system: &'a System) -> Self {
        Self {
            system,
            writes: RefCell::new(0),
            node: None,
        }
    }

    fn device(&self) -> PathBuf {
        self.system.root().join(DEVICES).join(SSD)
    }
}

impl Bus for Kernel<'_> {
    fn number(&self, name: &str, node: &File) -> io::Result<String> {
        match self.node {
            Some(number) => Ok(number.to_owned()),
            None => self.system.number(name, node),
        }
    }

    fn driver(&self, _: &str) -> Option<String> {
        super::super::link(&self.device().join("driver"))
    }

    fn write(&self, file: &str, content: &str) -> io::Result<()> {
        *self.writes.borrow_mut() += 1;
        let driver = self.device().join("driver");
        match file.rsplit('/').next().unwrap() {
            "driver_override" => fs::write(self.device().join("driver_override"), content),
            "unbind" => fs::remove_file(driver),
            _ => {
                let chosen = text(&self.device().join("driver_override"))?;
                let chosen = if chosen.is_empty() { NVME } else { &chosen };
                symlink(format!("../drivers/{chosen}"), driver)
            }
        }
    }
}

fn try_bind(system: &System, yes_destroy: Option<&str>) -> (Result<()>, usize) {
    let kernel = Kernel::of(system);
    let args = Bind {
        ssd: SERIAL.into(),
        yes_destroy: yes_destroy.map(str::to_owned),
    };
    let done = bind_on(system.root(), &kernel, &args);
    let writes = *kernel.writes.borrow();
    (done, writes)
}

/// Binding is refused with these words, and the kernel was told nothing.
fn refused(system: &System, yes_destroy: Option<&str>, words: &str) {
    let (done, writes) = try_bind(system, yes_destroy);
    let error = format!("{:#}", done.unwrap_err());
    assert!(error.contains(words), "{error}");
    assert_eq!(writes, 0, "{error}");
    assert!(!system.root().join(records::RECORDS).exists());
}

fn write(system: &System, at: u64, bytes: &[u8]) {
    let node = system.root().join("dev/nvme0n1");
    let node = File::options().write(true).open(node).unwrap();
    node.write_all_at(bytes, at).unwrap();
}

#[test]
fn an_empty_disk_goes_there_and_back_by_its_serial_number() {
    let system = System::with_driver(NVME);
    try_bind(&system, None).0.unwrap();
    assert_eq!(system.controller().driver.as_deref(), Some(VFIO));
    // The kernel's driver is gone, and with it what it knew.
    system.remove(&format!("{DEVICES}/{SSD}/nvme"));
    let args = Unbind { ssd: SERIAL.into() };
    unbind_on(system.root(), &Kernel::of(&system), &args).unwrap();
    assert_eq!(system.controller().driver.as_deref(), Some(NVME));
    assert_eq!(recorded(system.root(), SERIAL).unwrap(), None);
}

/// Its serial number is recorded then, by which it is found.
#[test]
fn an_ssd_that_others_bound_is_taken_anew() {
    let system = System::with_driver(VFIO);
    let kernel = Kernel::of(&system);
    let bind = |ssd: &str| {
        let args = Bind {
            ssd: ssd.into(),
            yes_destroy: None,
        };
        bind_on(system.root(), &kernel, &args)
    };
    let error = bind(SSD).unwrap_err().to_string();
    assert!(error.contains(&format!("unbind {SSD}")), "{error}");
    let args = Unbind { ssd: SSD.into() };
    unbind_on(system.root(), &kernel, &args).unwrap();
    bind(SERIAL).unwrap();
    let address = recorded(system.root(), SERIAL).unwrap();
    assert_eq!(address.as_deref(), Some(SSD));
    bind(SSD).unwrap();
}

#[test]
fn data_is_taken_only_with_the_right_serial_number() {
    let system = System::with_driver(NVME);
    write(&system, 0, b"XFSB");
    refused(&system, None, "--yes-destroy S123");
    refused(&system, Some("S124"), "the serial number is \"S123\"");
    try_bind(&system, Some(SERIAL)).0.unwrap();
    assert_eq!(system.controller().driver.as_deref(), Some(VFIO));
}

#[test]
fn what_is_in_use_is_never_taken() {
    let system = System::partitioned();
    system.file("proc/swaps", "/dev/nvme0n1p2 partition 1 0 -2\n");
    refused(&system, None, "in use");
    refused(&system, Some(SERIAL), "in use");
}

#[test]
fn a_node_that_is_another_device_is_never_taken() {
    let system = System::with_driver(NVME);
    let kernel = Kernel {
        node: Some("8:0"),
        ..Kernel::of(&system)
    };
    let args = Bind {
        ssd: SERIAL.into(),
        yes_destroy: Some(SERIAL.into()),
    };
    let error = bind_on(system.root(), &kernel, &args).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("is another device, 8:0"), "{error}");
    assert_eq!(*kernel.writes.borrow(), 0);
}

#[test]
fn what_a_process_has_open_is_never_taken() {
    let system = System::with_driver(NVME);
    system.folder("proc/9/fd");
    symlink("/dev/nvme0n1", system.root().join("proc/9/fd/3")).unwrap();
    refused(&system, Some(SERIAL), "in use");
}

#[test]
fn partitions_that_the_kernel_knows_are_data_whatever_the_disk_says() {
    let system = System::partitioned();
    refused(&system, None, "--yes-destroy S123");
    try_bind(&system, Some(SERIAL)).0.unwrap();
}

#[test]
fn one_command_moves_ssds_at_a_time() {
    let system = System::with_driver(NVME);
    let held = records::lock(system.root()).unwrap();
    refused(&system, None, "another `bind` or `unbind` is running");
    drop(held);
    try_bind(&system, None).0.unwrap();
}

#[test]
fn what_cannot_be_looked_at_is_never_taken() {
    let system = System::with_driver(NVME);
    system.remove("sys/class/block/nvme0n1/size");
    refused(&system, Some(SERIAL), "nvme0n1/size");
    let system = System::with_driver(NVME);
    system.remove("dev/nvme0n1");
    refused(&system, Some(SERIAL), "cannot be claimed");
    let system = System::with_driver(NVME);
    system.remove(&format!("{DEVICES}/{SSD}/driver"));
    refused(&system, Some(SERIAL), "no driver");
}

#[test]
fn a_disk_whose_namespaces_are_not_found_yet_may_hold_data() {
    let system = System::with_driver(NVME);
    system.remove(&format!("{DEVICES}/{SSD}/nvme/nvme0/nvme0c0n1"));
    refused(&system, None, "--yes-destroy S123");
    try_bind(&system, Some(SERIAL)).0.unwrap();
}

#[test]
fn vfio_must_be_able_to_have_it() {
    let system = System::with_driver(NVME);
    system.remove("sys/bus/pci/drivers/vfio-pci");
    refused(&system, None, "modprobe vfio-pci");
    let system = System::with_driver(NVME);
    system.function("0000:01:00.1", "0x020000", "e1000", "42");
    refused(&system, None, "0000:01:00.1 (e1000)");
    let system = System::with_driver(NVME);
    fs::remove_file(system.root().join(DEVICES).join(SSD).join("iommu_group")).unwrap();
    refused(&system, None, "intel_iommu=on");
}

/// A group is used as a whole, so its SSDs are bound one after the other.
#[test]
fn an_ssd_beside_others_of_its_group_is_taken_if_they_can_follow() {
    let mate = |system: &System| {
        system.function("0000:01:00.1", "0x010802", NVME, "42");
        let device = format!("{DEVICES}/0000:01:00.1/nvme/nvme1");
        system.file(&format!("{device}/serial"), "S124\n");
        system.file(&format!("{device}/nvme1n1/size"), "0\n");
        system.block("nvme1n1", "259:3", 1 << 20);
    };
    let system = System::with_driver(NVME);
    mate(&system);
    try_bind(&system, None).0.unwrap();
    let system = System::with_driver(NVME);
    mate(&system);
    system.file("proc/swaps", "/dev/nvme1n1 partition 1 0 -2\n");
    refused(&system, None, "0000:01:00.1 (nvme)");
}

#[test]
fn one_controller_must_be_meant() {
    let system = System::with_driver(NVME);
    let error = find(system.root(), "S999").unwrap_err().to_string();
    assert!(
        error.contains("0000:01:00.0 (Optane P5800X, serial S123)"),
        "{error}"
    );
    system.function("0000:03:00.0", "0x010802", NVME, "44");
    system.file(
        &format!("{DEVICES}/0000:03:00.0/nvme/nvme1/serial"),
        "S123\n",
    );
    let error = find(system.root(), SERIAL).unwrap_err().to_string();
    assert!(error.contains("PCI address"), "{error}");
    assert!(find(system.root(), "0000:03:00.0").is_ok());
}

#[test]
fn other_drivers_keep_what_they_have() {
    let system = System::with_driver("uio_pci_generic");
    refused(&system, Some(SERIAL), "uio_pci_generic");
    let args = Unbind { ssd: SSD.into() };
    let kernel = Kernel::of(&system);
    assert!(unbind_on(system.root(), &kernel, &args).is_err());
    assert_eq!(*kernel.writes.borrow(), 0);
}
