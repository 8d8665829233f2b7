//! `cargo xtask bind` and `unbind`: takes an SSD from the kernel for VFIO, and gives it back.
//!
//! What the kernel or anybody else uses is never taken. What holds data is taken only with the
//! serial number in `--yes-destroy`, typed by somebody who has read what was found.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::binding::{self, Bus, Sysfs};
use super::blocks::partitions;
use super::openers::openers;
use super::records::{self, forget, record, recorded};
use super::{Controller, NVME, VFIO, controllers, signature, text, uses};

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
    let _lock = records::lock(system)?;
    let controller = find(system, &args.ssd)?;
    println!("{}", controller.shown());
    match controller.driver.as_deref() {
        Some(NVME) => {}
        Some(VFIO) => return say_bound(system, &controller.address),
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
    let claimed = uses::claim(system, bus, &controller)
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

/// An SSD that is on vfio-pci cannot be looked at.
///
/// # Errors
/// Nobody has looked at it before, and noted its serial number: others than `bind` have put it there.
fn say_bound(system: &Path, address: &str) -> Result<()> {
    match records::serial(system, address) {
        Some(serial) => {
            println!("  is on vfio-pci already, bound as {serial}");
            Ok(())
        }
        None => bail!(
            "{address} is on vfio-pci, but not by `bind`, so its serial number is not known, nor what is \
             on it; `cargo xtask unbind {address}`, then bind it"
        ),
    }
}

fn unbind_on(system: &Path, bus: &impl Bus, args: &Unbind) -> Result<()> {
    let _lock = records::lock(system)?;
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

/// VFIO can have the controller, and of its group nothing else but SSDs that can follow: a group is
/// used as a whole.
fn check_group(system: &Path, controller: &Controller) -> Result<()> {
    let address = &controller.address;
    if controller.group.is_none() {
        bail!(
            "{address} has no IOMMU in front of it and could write to all memory; enable VT-d or \
             AMD-Vi in the firmware and boot with intel_iommu=on"
        );
    }
    let all = controllers(system);
    let is_free_ssd = |(address, _): &(String, String)| {
        let mate = all.iter().find(|other| other.address == *address);
        mate.filter(|mate| mate.driver.as_deref() == Some(NVME))
            .is_some_and(|mate| used_by(system, mate).is_ok_and(|uses| uses.is_empty()))
    };
    let mates = controller.group_mates(system)?;
    let (to_follow, others): (Vec<_>, Vec<_>) = mates.into_iter().partition(is_free_ssd);
    let shown = |mates: &[(String, String)]| {
        let shown = mates
            .iter()
            .map(|(mate, driver)| format!("{mate} ({driver})"));
        shown.collect::<Vec<_>>().join(", ")
    };
    if !others.is_empty() {
        bail!(
            "{address} shares its IOMMU group with {}; take those off their drivers, or use a slot \
             with a group of its own",
            shown(&others)
        );
    }
    if !to_follow.is_empty() {
        let mates = shown(&to_follow);
        println!("  shares its IOMMU group with {mates}; none can be used before all are bound");
    }
    if !system.join("sys/bus/pci/drivers").join(VFIO).exists() {
        bail!("vfio-pci is not loaded: `modprobe vfio-pci` as root");
    }
    Ok(())
}

/// What uses the controller, in words.
fn used_by(system: &Path, controller: &Controller) -> Result<Vec<String>> {
    let uses = uses(system, controller);
    match uses.is_empty() {
        true => Ok(openers(system, controller)?),
        false => Ok(uses),
    }
}

fn check_free(system: &Path, controller: &Controller) -> Result<()> {
    let uses = used_by(system, controller)?;
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
        let mut found = signature::find(device, sectors * 512)
            .with_context(|| format!("{block} cannot be read, so what is on it is unknown"))?;
        let partitions = partitions(system, block)?;
        found.extend(
            partitions
                .iter()
                .map(|name| format!("the partition {name}")),
        );
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

#[cfg(test)]
mod tests;
