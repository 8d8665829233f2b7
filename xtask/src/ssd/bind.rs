//! `cargo xtask bind` and `unbind`: takes an SSD from the kernel for VFIO, and gives it back.
//!
//! What the kernel or anybody else uses is never taken. What holds data is taken only with the
//! serial number in `--yes-destroy`, typed by somebody who has read what was found.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::binding::{self, Bus, Sysfs};
use super::{Controller, NVME, VFIO, controllers, entries_if_any, name, signature, text, uses};

/// Where the serial numbers of SSDs on vfio-pci are kept: there the kernel does not know them.
/// It is emptied when the machine starts, as the bindings are.
const RECORDS: &str = "run/warpstore";

/// Arguments of `bind`.
#[derive(clap::Args)]
pub struct Bind {
    /// Serial number, or PCI address as 0000:01:00.0
    ssd: String,
    /// Take the SSD with this serial number although it holds data, all of which may be lost
    #[arg(long, value_name = "SERIAL")]
    yes_destroy: Option<String>,
}

/// Arguments of `unbind`.
#[derive(clap::Args)]
pub struct Unbind {
    /// Serial number, or PCI address as 0000:01:00.0
    ssd: String,
}

/// Gives an SSD to vfio-pci.
///
/// # Errors
/// It is in use, or holds data and that was not said to be known; or the kernel refuses, and then
/// everything is as it was.
pub fn bind(args: &Bind) -> Result<()> {
    let system = Path::new("/");
    bind_on(system, &Sysfs(system.into()), args)
}

/// Gives an SSD back to the kernel's driver.
///
/// # Errors
/// It is not on vfio-pci, a process has it open, or the kernel refuses.
pub fn unbind(args: &Unbind) -> Result<()> {
    let system = Path::new("/");
    unbind_on(system, &Sysfs(system.into()), args)
}

fn bind_on(system: &Path, bus: &impl Bus, args: &Bind) -> Result<()> {
    let controller = find(system, &args.ssd)?;
    println!("{}", controller.shown());
    match controller.driver.as_deref() {
        Some(NVME) => {}
        Some(VFIO) => {
            println!("  is on vfio-pci already");
            return Ok(());
        }
        Some(other) => bail!("{} is held by driver {other}", controller.address),
        None => bail!(
            "{0} has no driver, so nobody can look what is on it; `cargo xtask unbind {0}` gives it to \
             {NVME} first",
            controller.address
        ),
    }
    let serial = controller.serial();
    let serial = serial.with_context(|| format!("{} has no serial number", controller.address))?;
    check_group(system, &controller)?;
    check_free(system, &controller)?;
    // From here on nobody else can begin to use it.
    let claimed = uses::claim(system, &controller)
        .with_context(|| format!("{} cannot be claimed", controller.address))?;
    check_data(system, serial, &claimed, args.yes_destroy.as_deref())?;
    check_free(system, &controller)?;
    record(system, &controller.address, serial)?;
    drop(claimed);
    if let Err(error) = binding::take(bus, &controller.address) {
        forget(system, &controller.address);
        return Err(error);
    }
    let group = controller.group.as_deref().unwrap_or_default();
    println!("  is on vfio-pci; a user who is not root needs: `chown USER /dev/vfio/{group}`");
    println!("  `cargo xtask unbind {serial}` gives it back");
    Ok(())
}

fn unbind_on(system: &Path, bus: &impl Bus, args: &Unbind) -> Result<()> {
    let controller = match recorded(system, &args.ssd)? {
        Some(address) => find(system, &address)?,
        None => find(system, &args.ssd)?,
    };
    match controller.driver.as_deref() {
        Some(NVME) => {
            println!("{} is on {NVME} already", controller.shown());
            forget(system, &controller.address);
            return Ok(());
        }
        Some(VFIO) | None => {}
        Some(other) => bail!("{} is held by driver {other}", controller.address),
    }
    // The kernel would wait for whoever has it open, for ever.
    let group = controller.group.as_deref().unwrap_or_default();
    let node = system.join("dev/vfio").join(group);
    let opened = File::options().read(true).write(true).open(&node);
    if let Err(error) = opened
        && error.kind() == io::ErrorKind::ResourceBusy
    {
        bail!(
            "{} is open in a process; end that first",
            controller.address
        );
    }
    binding::give_back(bus, &controller.address)?;
    forget(system, &controller.address);
    println!("{} is on {NVME} again", controller.address);
    Ok(())
}

/// The one controller that is meant.
fn find(system: &Path, wanted: &str) -> Result<Controller> {
    let all = controllers(system);
    let shown: Vec<_> = all.iter().map(Controller::shown).collect();
    let mut meant = all.into_iter().filter(|controller| controller.is(wanted));
    match (meant.next(), meant.next()) {
        (Some(controller), None) => Ok(controller),
        (None, _) if shown.is_empty() => bail!("there is no NVMe controller on the PCI bus"),
        (None, _) => bail!(
            "no NVMe controller is \"{wanted}\"; there are {}",
            shown.join(", ")
        ),
        (Some(_), Some(_)) => bail!("\"{wanted}\" is not one controller; give the PCI address"),
    }
}

/// VFIO can have the controller, and it alone.
fn check_group(system: &Path, controller: &Controller) -> Result<()> {
    let address = &controller.address;
    if controller.group.is_none() {
        bail!(
            "{address} has no IOMMU in front of it and could write to all memory; enable VT-d or \
             AMD-Vi in the firmware and boot with intel_iommu=on"
        );
    }
    let mates = controller.group_mates(system)?;
    if !mates.is_empty() {
        bail!(
            "{address} shares its IOMMU group with {}; take those off their drivers, or use a slot \
             with a group of its own",
            mates.join(", ")
        );
    }
    if !system.join("sys/bus/pci/drivers").join(VFIO).exists() {
        bail!("vfio-pci is not loaded: `modprobe vfio-pci` as root");
    }
    Ok(())
}

fn check_free(system: &Path, controller: &Controller) -> Result<()> {
    let uses = uses(system, controller);
    if uses.is_empty() {
        return Ok(());
    }
    for found in &uses {
        println!("  used by {found}");
    }
    bail!("{} is in use; nothing was changed", controller.address)
}

/// Nothing is on it, or the caller knows what is.
fn check_data(
    system: &Path,
    serial: &str,
    claimed: &[(String, File)],
    yes_destroy: Option<&str>,
) -> Result<()> {
    if let Some(named) = yes_destroy
        && named != serial
    {
        bail!("--yes-destroy names \"{named}\", but the serial number is \"{serial}\"");
    }
    let mut holds_data = false;
    for (block, device) in claimed {
        let size = text(&system.join("sys/class/block").join(block).join("size"))?;
        let sectors: u64 = size.parse().with_context(|| format!("size of {block}"))?;
        let found = signature::find(device, sectors * 512)
            .with_context(|| format!("{block} cannot be read, so what is on it is unknown"))?;
        println!(
            "  {block}: {} MiB, {}",
            sectors >> 11,
            if found.is_empty() {
                "empty"
            } else {
                "not empty"
            }
        );
        for what in &found {
            println!("    holds {what}");
        }
        holds_data |= !found.is_empty();
    }
    if claimed.is_empty() {
        println!("  no namespace that the kernel has found, so far");
        holds_data = true;
    }
    if holds_data && yes_destroy.is_none() {
        bail!(
            "the SSD holds data, or may; nothing was changed. If all of it may be lost: \
             `--yes-destroy {serial}`"
        );
    }
    Ok(())
}

/// Notes the serial number of what goes to vfio-pci.
fn record(system: &Path, address: &str, serial: &str) -> Result<()> {
    let folder = system.join(RECORDS);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = folder.join(address);
    fs::write(&file, serial).with_context(|| file.display().to_string())
}

fn forget(system: &Path, address: &str) {
    // A record that stays is overwritten by the next one.
    let _ = fs::remove_file(system.join(RECORDS).join(address));
}

/// The address of the SSD with this serial number, if it was recorded.
fn recorded(system: &Path, serial: &str) -> Result<Option<String>> {
    let records: Vec<PathBuf> = entries_if_any(&system.join(RECORDS))?;
    let is_it = |file: &&PathBuf| text(file).is_ok_and(|found| found == serial);
    Ok(records.iter().find(is_it).map(|file| name(file)))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::{FileExt, symlink};

    use super::super::DEVICES;
    use super::super::fake::{SERIAL, SSD, System};
    use super::*;

    /// Moves the function of a made-up system as the kernel would.
    struct Kernel<'a> {
        system: &'a System,
        writes: RefCell<usize>,
    }

    impl<'a> Kernel<'a> {
        fn of(system: &'a System) -> Self {
            Self {
                system,
                writes: RefCell::new(0),
            }
        }

        fn device(&self) -> PathBuf {
            self.system.root().join(DEVICES).join(SSD)
        }
    }

    impl Bus for Kernel<'_> {
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
        assert!(!system.root().join(RECORDS).exists());
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
        let system = System::with_driver(NVME);
        system.file("proc/swaps", "/dev/nvme0n1p2 partition 1 0 -2\n");
        refused(&system, None, "in use");
        refused(&system, Some(SERIAL), "in use");
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
}
