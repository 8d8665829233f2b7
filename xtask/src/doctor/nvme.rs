//! NVMe controllers, and whether each is free to be taken from the kernel.
//!
//! This report is advice: `cargo xtask bind`, which takes one, makes its own check.

use std::path::Path;

use super::{Finding, Level};
use crate::ssd::{self, Controller, NVME, VFIO};

/// One finding per controller on the PCI bus.
pub fn controllers(system: &Path) -> Vec<Finding> {
    let found = ssd::controllers(system);
    if found.is_empty() {
        return vec![Finding::new(
            Level::Note,
            "NVMe",
            "no controller; SSDs are emulated",
        )];
    }
    found.iter().map(|found| finding(system, found)).collect()
}

fn finding(system: &Path, controller: &Controller) -> Finding {
    let group = controller.group.as_deref().unwrap_or("none");
    let address = &controller.address;
    let about = format!("{}, IOMMU group {group}", controller.shown());
    let (level, text) = match controller.driver.as_deref() {
        Some(VFIO) => (
            Level::Ok,
            format!("bound to vfio-pci; needs access to /dev/vfio/{group}"),
        ),
        Some(NVME) => {
            let uses = ssd::uses(system, controller);
            if uses.is_empty() {
                let serial = controller.serial().unwrap_or(address);
                let text = format!("free. To take it: `cargo xtask bind {serial}`");
                (Level::Ok, text)
            } else {
                let text = format!("in use by {}; leave it alone", uses.join(", "));
                (Level::Note, text)
            }
        }
        Some(driver) => (Level::Note, format!("held by driver {driver}")),
        None => {
            let text = format!("no driver; `cargo xtask unbind {address}` gives it to {NVME}");
            (Level::Note, text)
        }
    };
    Finding::new(level, "NVMe", format!("{about}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::fake::System;

    fn only_finding(system: &System) -> Finding {
        let mut findings = controllers(system.root());
        assert_eq!(findings.len(), 1);
        findings.remove(0)
    }

    #[test]
    fn a_free_controller_is_named_with_what_to_do() {
        let finding = only_finding(&System::with_driver(NVME));
        assert_eq!(finding.level, Level::Ok);
        let words = ["0000:01:00.0", "Optane P5800X, serial S123", "group 42"];
        for word in words.into_iter().chain(["free", "cargo xtask bind S123"]) {
            assert!(finding.text.contains(word), "{word} in {}", finding.text);
        }
    }

    #[test]
    fn a_controller_in_use_is_to_be_left_alone() {
        let system = System::with_driver(NVME);
        system.file("sys/class/block/nvme0n1/holders/dm-3/dev", "254:3");
        let finding = only_finding(&system);
        assert_eq!(finding.level, Level::Note);
        assert!(
            finding.text.contains("in use by dm-3 on nvme0n1;"),
            "{}",
            finding.text
        );
    }

    #[test]
    fn the_bound_driver_decides() {
        let vfio = only_finding(&System::with_driver(VFIO));
        assert_eq!(vfio.level, Level::Ok);
        let other = only_finding(&System::with_driver("uio_pci_generic"));
        assert!(other.text.contains("held by driver uio_pci_generic"));
    }

    #[test]
    fn a_machine_without_controllers_says_so() {
        let system = tempfile::tempdir().unwrap();
        assert!(controllers(system.path())[0].text.contains("emulated"));
    }
}
