//! Controllers that QEMU is to make, as its command line and as one word for a guest.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

/// Slot of the first controller on the first bus.
pub(crate) const FIRST_SLOT: u8 = 4;

/// The controller to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Serial number.
    pub serial: String,
    /// I/O queue pairs that it grants.
    pub queues: u16,
    /// Largest transfer, 2^MDTS pages of 4 KiB; 0 is no limit.
    pub mdts: u8,
    /// Its namespaces.
    pub namespaces: Vec<Namespace>,
    /// Where it is on the bus.
    pub seat: Seat,
}

/// Where a controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// In a slot of its own.
    Slot,
    /// In a slot of which it can be unplugged.
    HotPlug,
    /// In one slot with all others that say so, which all controllers then do. QEMU's have no ACS, so
    /// functions of one slot are in one IOMMU group.
    Function,
}

/// A namespace, kept in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Identifier.
    pub nsid: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// log2 of the LBA's size: 9 or 12.
    pub block_shift: u8,
    /// What QEMU's block layer lets fail.
    pub faults: Vec<Fault>,
    /// How long QEMU's block layer takes for everything, nanoseconds; if not 0, there is no file, and
    /// what is written is lost.
    pub latency_ns: u64,
    /// Further properties of QEMU's device, as `,ms=8`.
    pub properties: &'static str,
}

/// Reads, or writes, of one sector that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `read` or `write`.
    pub operation: &'static str,
    /// In units of 512 bytes.
    pub sector: u64,
}

impl Default for Setup {
    /// One queue pair and one namespace of 16 MiB in LBAs of 512 bytes.
    fn default() -> Self {
        Self {
            serial: "WS-QEMU".into(),
            queues: 1,
            mdts: 7,
            namespaces: vec![Namespace::new(1, 16 << 20, 9)],
            seat: Seat::Slot,
        }
    }
}

impl Setup {
    /// The arguments that make it in a slot of the first bus, with its blocks in `folder`.
    pub(crate) fn arguments(&self, slot: u8, folder: &Path) -> io::Result<Vec<String>> {
        let Self {
            serial,
            queues,
            mdts,
            namespaces,
            seat,
        } = self;
        let mut arguments = Vec::new();
        let place = match seat {
            Seat::Slot => format!("addr={slot:#x}"),
            Seat::HotPlug => {
                let port = format!("pcie-root-port,id=p{slot},slot={slot},addr={slot:#x}");
                arguments.extend(["-device".to_owned(), port]);
                format!("bus=p{slot}")
            }
            Seat::Function => {
                let function = slot - FIRST_SLOT;
                format!("addr={FIRST_SLOT:#x}.{function},multifunction=on")
            }
        };
        let device =
            format!("nvme,id=n{slot},serial={serial},max_ioqpairs={queues},mdts={mdts},{place}");
        arguments.extend(["-device".to_owned(), device]);
        for namespace in namespaces {
            let image = self.image(folder, namespace.nsid);
            File::create(&image)?.set_len(namespace.bytes)?;
            arguments.extend(namespace.arguments(slot, &image));
        }
        Ok(arguments)
    }

    /// The file with the blocks of a namespace.
    pub fn image(&self, folder: &Path, nsid: u32) -> PathBuf {
        folder.join(format!("{}-{nsid}", self.serial))
    }

    /// The setup, but for faults, properties and seat, as one word: what a guest is told.
    pub fn to_word(&self) -> String {
        let Self {
            serial,
            queues,
            mdts,
            namespaces,
            ..
        } = self;
        let mut word = format!("{serial}:{queues}:{mdts}");
        for ns in namespaces {
            word += &format!(":{}/{}/{}", ns.nsid, ns.bytes, ns.block_shift);
        }
        word
    }

    /// Reads what [`to_word`](Self::to_word) wrote.
    pub fn from_word(word: &str) -> Option<Self> {
        let mut fields = word.split(':');
        let (serial, queues, mdts) = (fields.next()?, fields.next()?, fields.next()?);
        let namespace = |field: &str| {
            let mut numbers = field.split('/').map(str::parse::<u64>);
            let mut next = || numbers.next()?.ok();
            let (nsid, bytes, shift) = (next()?, next()?, next()?);
            Some(Namespace::new(
                nsid.try_into().ok()?,
                bytes,
                shift.try_into().ok()?,
            ))
        };
        Some(Self {
            serial: serial.to_owned(),
            queues: queues.parse().ok()?,
            mdts: mdts.parse().ok()?,
            namespaces: fields.map(namespace).collect::<Option<_>>()?,
            seat: Seat::Slot,
        })
    }
}

impl Namespace {
    /// A namespace without faults, as fast as its file.
    pub fn new(nsid: u32, bytes: u64, block_shift: u8) -> Self {
        Self {
            nsid,
            bytes,
            block_shift,
            faults: Vec::new(),
            latency_ns: 0,
            properties: "",
        }
    }

    /// The arguments that make it, with its blocks in `image`, for the controller in `slot`.
    fn arguments(&self, slot: u8, image: &Path) -> [String; 4] {
        let node = format!("d{slot}-{}", self.nsid);
        let file = match self.latency_ns {
            0 => json!({"driver": "file", "filename": image}),
            ns => {
                json!({"driver": "null-co", "size": self.bytes, "read-zeroes": true, "latency-ns": ns})
            }
        };
        let fault = |fault: &Fault| {
            json!({"event": "none", "iotype": fault.operation, "sector": fault.sector,
                   "errno": rustix::io::Errno::IO.raw_os_error(), "once": false})
        };
        let faults: Vec<_> = self.faults.iter().map(fault).collect();
        let file = if faults.is_empty() {
            file
        } else {
            json!({"driver": "blkdebug", "image": file, "inject-error": faults})
        };
        // Flushes of the controller do not flush the disk of this machine, which may take minutes.
        let blockdev = json!({"driver": "raw", "node-name": node, "file": file,
                              "cache": {"no-flush": true}});
        let (nsid, lba) = (self.nsid, 1 << self.block_shift);
        let blocks = format!("logical_block_size={lba},physical_block_size={lba}");
        [
            "-blockdev".into(),
            blockdev.to_string(),
            "-device".into(),
            format!(
                "nvme-ns,drive={node},bus=n{slot},nsid={nsid},{blocks}{}",
                self.properties
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_a_guest_must_know() {
        let setup = Setup {
            queues: 64,
            namespaces: vec![
                Namespace::new(2, 1 << 20, 12),
                Namespace::new(7, 1 << 33, 9),
            ],
            ..Setup::default()
        };
        assert_eq!(Setup::from_word(&setup.to_word()), Some(setup));
        for word in ["", "S:1", "S:1:x", "S:1:7:1/2", "S:1:7:1/2/3000"] {
            assert_eq!(Setup::from_word(word), None, "{word}");
        }
    }
}
