//! The function's configuration space: what it is, and whether it may use memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::error::VfioError;

/// Command (PCI Local Bus 3.0, 6.2.2), 16 bits.
const COMMAND: u64 = 0x04;
const MEMORY: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
/// The pin-based interrupt is off: queues are polled.
const INTERRUPT_DISABLE: u16 = 1 << 10;
/// Programming interface, subclass and class, 24 bits behind the revision.
const CLASS: u64 = 0x08;
/// Mass storage, non-volatile memory, NVM Express.
pub(super) const NVME_CLASS: u32 = 0x0001_0802;

/// The configuration space, as a part of the device's file.
pub(super) struct Config {
    file: File,
    start: u64,
}

impl Config {
    pub(super) fn new(file: File, start: u64) -> Self {
        Self { file, start }
    }

    /// The class once more, from the device itself: sysfs and the device agree, and this is the
    /// configuration space.
    pub(super) fn check_class(&self, address: &str) -> Result<(), VfioError> {
        let mut bytes = [0xff; 4];
        let read = self.file.read_exact_at(&mut bytes, self.start + CLASS);
        read.map_err(|source| VfioError::System {
            address: address.to_owned(),
            action: "read the configuration space",
            source,
        })?;
        let class = u32::from_le_bytes(bytes) >> 8;
        if class == NVME_CLASS {
            return Ok(());
        }
        Err(VfioError::NotNvme {
            address: address.to_owned(),
            class: format!("{class:#08x}"),
        })
    }

    /// Lets the function answer to accesses of its BARs and use memory. vfio-pci opens it without.
    pub(super) fn enable(&self) -> io::Result<()> {
        let wanted = MEMORY | BUS_MASTER;
        self.change(|command| command | wanted | INTERRUPT_DISABLE)?;
        // The kernel drops what it does not allow.
        let command = self.command()?;
        if command & wanted == wanted {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the command register stays {command:#06x}"
        )))
    }

    /// Takes the function off the memory.
    pub(super) fn disable(&self) -> io::Result<()> {
        self.change(|command| command & !BUS_MASTER)
    }

    fn change(&self, change: impl Fn(u16) -> u16) -> io::Result<()> {
        let command = change(self.command()?).to_le_bytes();
        self.file.write_all_at(&command, self.start + COMMAND)
    }

    fn command(&self) -> io::Result<u16> {
        let mut bytes = [0xff; 2];
        self.file.read_exact_at(&mut bytes, self.start + COMMAND)?;
        Ok(u16::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with the configuration space of an NVMe controller at 256, and somebody's bit in
    /// its command register.
    fn config() -> Config {
        let file = tempfile::tempfile().unwrap();
        file.set_len(512).unwrap();
        file.write_all_at(&[0x40, 0x01], 256 + COMMAND).unwrap();
        file.write_all_at(&[0x03, 0x02, 0x08, 0x01], 256 + CLASS)
            .unwrap();
        Config::new(file, 256)
    }

    #[test]
    fn the_class_is_read_from_the_device() {
        let config = config();
        config.check_class("0000:01:00.0").unwrap();
        let display = [0x00, 0x00, 0x03];
        config.file.write_all_at(&display, 256 + CLASS + 1).unwrap();
        let error = config.check_class("0000:01:00.0").unwrap_err().to_string();
        assert!(error.contains("0x030000"), "{error}");
    }

    #[test]
    fn bus_mastering_comes_and_goes_and_other_bits_stay() {
        let config = config();
        config.enable().unwrap();
        assert_eq!(
            config.command().unwrap(),
            0x0140 | 1 << 1 | 1 << 2 | 1 << 10
        );
        config.disable().unwrap();
        assert_eq!(config.command().unwrap(), 0x0140 | 1 << 1 | 1 << 10);
    }
}
