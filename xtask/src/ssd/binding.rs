//! Moving a function from one driver to another, and back if that fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{DEVICES, NVME, VFIO, link};

/// How often, and how far apart, the new driver is looked for.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// What of the kernel is not files with text: the PCI bus, and device nodes.
pub trait Bus {
    /// The number of the block device, as `259:0`, that the node called `name` is.
    fn number(&self, name: &str, node: &File) -> io::Result<String>;
    /// The driver of a function.
    fn driver(&self, address: &str) -> Option<String>;
    /// Writes a file below `sys/bus/pci`.
    fn write(&self, file: &str, text: &str) -> io::Result<()>;
    /// Waits for the kernel.
    fn pause(&self) {
        sleep(PAUSE);
    }
}

/// The bus of the machine whose root this is.
pub struct Sysfs(pub PathBuf);

impl Bus for Sysfs {
    fn number(&self, _: &str, node: &File) -> io::Result<String> {
        let node = node.metadata()?;
        if !node.file_type().is_block_device() {
            return Err(io::Error::other("it is no block device"));
        }
        // Linux's encoding: 12 and 20 bits of major number, 8 and 24 of minor number.
        let number = node.rdev();
        let major = number >> 32 & 0xffff_f000 | number >> 8 & 0xfff;
        let minor = number >> 12 & 0xffff_ff00 | number & 0xff;
        Ok(format!("{major}:{minor}"))
    }

    fn driver(&self, address: &str) -> Option<String> {
        link(&self.0.join(DEVICES).join(address).join("driver"))
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        use std::io::Write;
        let path = self.0.join("sys/bus/pci").join(file);
        let about = |error: io::Error| super::about(&path, &error);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(about)?;
        file.write_all(text.as_bytes()).map_err(about)
    }
}

/// Moves the function at `address` from the kernel's driver to vfio-pci. If that fails, it is given
/// back, and the error says whether that succeeded.
///
/// Only this function is named, by `driver_override`: vfio-pci's `new_id` would take every SSD of
/// the same model, the one with the root file system too.
pub fn take(bus: &impl Bus, address: &str) -> Result<()> {
    let moved = move_to(bus, address, VFIO, "vfio-pci");
    let Err(error) = moved else {
        return Ok(());
    };
    match move_to(bus, address, NVME, "\n") {
        Ok(()) => Err(error.context(format!(
            "{address} could not be taken; it is back on {NVME}"
        ))),
        // Nothing can be written, so nothing was.
        Err(_) if bus.driver(address).as_deref() == Some(NVME) => Err(error.context(format!(
            "{address} could not be taken; it is on {NVME} as before"
        ))),
        Err(undo) => Err(error.context(format!(
            "{address} could not be taken, nor given back ({undo:#}); as root: \
             `echo > /sys/bus/pci/devices/{address}/driver_override; echo {address} > \
             /sys/bus/pci/drivers_probe`"
        ))),
    }
}

/// Moves the function at `address` back to the kernel's driver.
pub fn give_back(bus: &impl Bus, address: &str) -> Result<()> {
    move_to(bus, address, NVME, "\n")
        .with_context(|| format!("{address} could not be given back to {NVME}"))
}

/// Gives the function to `driver`, which `override_by` makes the kernel choose.
fn move_to(bus: &impl Bus, address: &str, driver: &str, override_by: &str) -> Result<()> {
    bus.write(&format!("devices/{address}/driver_override"), override_by)?;
    if bus.driver(address).as_deref() == Some(driver) {
        return Ok(());
    }
    if bus.driver(address).is_some() {
        bus.write(&format!("devices/{address}/driver/unbind"), address)?;
    }
    for _ in 0..TRIES {
        bus.write("drivers_probe", address)?;
        match bus.driver(address) {
            Some(found) if found == driver => return Ok(()),
            Some(other) => bail!("the kernel gave it to {other}"),
            None => bus.pause(),
        }
    }
    bail!("{driver} does not take it; `dmesg` may say why")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const SSD: &str = "0000:01:00.0";

    /// A kernel with one function, whose driver changes as Linux's would.
    struct Fake {
        driver: RefCell<Option<String>>,
        override_by: RefCell<String>,
        writes: RefCell<Vec<String>>,
        /// Drivers that refuse the function.
        refuses: &'static [&'static str],
        /// A file that cannot be written.
        broken: &'static str,
    }

    impl Fake {
        fn on(driver: &str) -> Self {
            Self {
                driver: RefCell::new(Some(driver.into())),
                override_by: RefCell::default(),
                writes: RefCell::default(),
                refuses: &[],
                broken: "nothing",
            }
        }
    }

    impl Bus for Fake {
        fn number(&self, _: &str, _: &File) -> io::Result<String> {
            unreachable!("moving a function looks at no node")
        }

        fn driver(&self, address: &str) -> Option<String> {
            assert_eq!(address, SSD);
            self.driver.borrow().clone()
        }

        fn write(&self, file: &str, text: &str) -> io::Result<()> {
            self.writes
                .borrow_mut()
                .push(format!("{file} {}", text.trim()));
            if file.ends_with(self.broken) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            match file.rsplit('/').next().unwrap() {
                "driver_override" => *self.override_by.borrow_mut() = text.trim().into(),
                "unbind" => *self.driver.borrow_mut() = None,
                "drivers_probe" => {
                    let chosen = self.override_by.borrow();
                    let chosen = if chosen.is_empty() { NVME } else { &chosen };
                    if !self.refuses.contains(&chosen) {
                        *self.driver.borrow_mut() = Some(chosen.into());
                    }
                }
                other => panic!("{other}"),
            }
            Ok(())
        }

        fn pause(&self) {}
    }

    #[test]
    fn a_function_goes_to_vfio_and_back_in_these_steps() {
        let bus = Fake::on(NVME);
        take(&bus, SSD).unwrap();
        assert_eq!(bus.driver(SSD).as_deref(), Some(VFIO));
        give_back(&bus, SSD).unwrap();
        assert_eq!(bus.driver(SSD).as_deref(), Some(NVME));
        assert_eq!(
            *bus.writes.borrow(),
            [
                "devices/0000:01:00.0/driver_override vfio-pci",
                "devices/0000:01:00.0/driver/unbind 0000:01:00.0",
                "drivers_probe 0000:01:00.0",
                "devices/0000:01:00.0/driver_override ",
                "devices/0000:01:00.0/driver/unbind 0000:01:00.0",
                "drivers_probe 0000:01:00.0",
            ]
        );
    }

    #[test]
    fn a_file_is_no_block_device() {
        let file = tempfile::tempfile().unwrap();
        assert!(Sysfs("/".into()).number("nvme0n1", &file).is_err());
    }

    #[test]
    fn a_failure_is_undone() {
        let mut bus = Fake::on(NVME);
        bus.refuses = &[VFIO];
        let error = format!("{:#}", take(&bus, SSD).unwrap_err());
        assert!(
            error.contains("back on nvme") && error.contains("does not take it"),
            "{error}"
        );
        assert_eq!(bus.driver(SSD).as_deref(), Some(NVME));
        assert_eq!(*bus.override_by.borrow(), "");
        for broken in ["unbind", "drivers_probe"] {
            let mut bus = Fake::on(NVME);
            bus.broken = broken;
            assert!(take(&bus, SSD).is_err());
            assert_eq!(*bus.override_by.borrow(), "", "{broken}");
        }
    }

    #[test]
    fn a_user_who_may_not_write_has_changed_nothing() {
        let mut bus = Fake::on(NVME);
        bus.broken = "driver_override";
        let error = format!("{:#}", take(&bus, SSD).unwrap_err());
        assert!(error.contains("on nvme as before"), "{error}");
        assert_eq!(bus.driver(SSD).as_deref(), Some(NVME));
    }

    #[test]
    fn what_cannot_be_undone_says_what_to_do() {
        let mut bus = Fake::on(NVME);
        bus.refuses = &[VFIO, NVME];
        let error = format!("{:#}", take(&bus, SSD).unwrap_err());
        assert!(
            error.contains("nor given back") && error.contains("echo 0000:01:00.0 >"),
            "{error}"
        );
    }

    #[test]
    fn a_function_without_a_driver_is_given_back_too() {
        let bus = Fake::on(NVME);
        *bus.driver.borrow_mut() = None;
        give_back(&bus, SSD).unwrap();
        assert_eq!(bus.driver(SSD).as_deref(), Some(NVME));
    }
}
