//! Why a controller cannot be opened through VFIO, and what to do about it.

use std::io;

/// A refusal, ours or the kernel's.
#[derive(Debug, thiserror::Error)]
pub enum VfioError {
    /// The text is no PCI address.
    #[error(
        "\"{0}\" is no PCI address; one looks like 0000:01:00.0, and `cargo xtask doctor` lists those \
         of NVMe controllers"
    )]
    Address(String),
    /// No bound controller is known by this name.
    #[error(
        "{name}: `cargo xtask bind` has bound no SSD with this serial number; bound to vfio-pci are: \
         {bound}; name it by its PCI address if it was bound otherwise"
    )]
    Unknown {
        /// The serial number.
        name: String,
        /// Addresses of what is bound.
        bound: String,
    },
    /// One controller, by one name or by two.
    #[error(
        "{0}: named twice, perhaps by its serial number and by its address; name each SSD once"
    )]
    Twice(String),
    /// Nothing is there.
    #[error("{0}: there is no such PCI function; `cargo xtask doctor` lists NVMe controllers")]
    Absent(String),
    /// Something else is there.
    #[error("{address}: this is no NVMe controller (class {class}, not 0x010802)")]
    NotNvme {
        /// The PCI address.
        address: String,
        /// Its class.
        class: String,
    },
    /// Another driver has it, or none.
    #[error(
        "{address}: bound to {driver}, not to vfio-pci; `cargo xtask bind {address}` hands it over \
         if it is free"
    )]
    NotBound {
        /// The PCI address.
        address: String,
        /// The driver.
        driver: String,
    },
    /// There is no IOMMU group.
    #[error(
        "{0}: no IOMMU is in front of it, so it could write to all memory; enable VT-d or AMD-Vi in \
         the firmware and boot with intel_iommu=on"
    )]
    NoIommu(String),
    /// VFIO's mode without an IOMMU.
    #[error(
        "{0}: VFIO's noiommu mode lets the controller write to all memory, and is not supported; \
         enable the IOMMU and unset vfio's enable_unsafe_noiommu_mode"
    )]
    UnsafeNoIommu(String),
    /// Others in its group are in use.
    #[error(
        "{address}: its IOMMU group {group} also holds {others}, which other drivers use; take them \
         off those drivers (an SSD by `cargo xtask bind`), or put the SSD into a slot with a group of its own"
    )]
    SharedGroup {
        /// The PCI address.
        address: String,
        /// The group.
        group: String,
        /// The other members with their drivers.
        others: String,
    },
    /// The IOMMU's ranges are unknown.
    #[error(
        "{0}: the kernel does not say which IOVAs the IOMMU translates; Linux 5.4 or newer does"
    )]
    NoRanges(String),
    /// VFIO refused.
    #[error("{address}: cannot {action}: {reason}")]
    Kernel {
        /// The PCI address.
        address: String,
        /// What was to be done.
        action: &'static str,
        /// What the kernel said, and what to do.
        reason: String,
    },
    /// A system call failed.
    #[error("{address}: cannot {action}")]
    System {
        /// The PCI address.
        address: String,
        /// What was to be done.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl VfioError {
    /// An error of vfio-ioctls, with what to do about those that users meet.
    pub(super) fn kernel(
        address: &str,
        action: &'static str,
        error: &vfio_ioctls::VfioError,
    ) -> Self {
        use vfio_ioctls::VfioError as Vfio;
        let advice = match error {
            Vfio::OpenContainer(error) if error.kind() == io::ErrorKind::NotFound => {
                "; load the modules: `modprobe vfio-pci vfio_iommu_type1`"
            }
            Vfio::OpenGroup(error, _) if error.kind() == io::ErrorKind::PermissionDenied => {
                "; give yourself that file (`chown`), or run as root"
            }
            Vfio::OpenGroup(error, _) if error.kind() == io::ErrorKind::ResourceBusy => {
                "; another process has it open, or another controller of the same IOMMU group: one \
                 process may use several of a group, if it opens them together"
            }
            Vfio::ContainerSetIOMMU(_) => {
                "; the IOMMU does not remap interrupts: enable that in the firmware"
            }
            Vfio::VfioExtension => "; load the module: `modprobe vfio_iommu_type1`",
            _ => "",
        };
        Self::Kernel {
            address: address.to_owned(),
            action,
            reason: format!("{error}{advice}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_meet_comes_with_advice() {
        let error = |kind: io::ErrorKind| {
            let source = vfio_ioctls::VfioError::OpenGroup(kind.into(), "7".into());
            VfioError::kernel("0000:01:00.0", "open the device", &source).to_string()
        };
        assert!(error(io::ErrorKind::PermissionDenied).contains("chown"));
        assert!(error(io::ErrorKind::ResourceBusy).contains("another process"));
    }
}
