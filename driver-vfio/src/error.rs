//! What can go wrong with a controller, by what the caller can do about it.

use std::fmt;
use std::time::Duration;

use nvme_wire::Status;
use nvme_wire::regs::{Cap, Csts};

use crate::abort::Abort;
use crate::backing::BackingError;

/// What the driver was doing with the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading CAP and VS.
    Open,
    /// Clearing CC.EN and waiting for CSTS.RDY = 0.
    Disable,
    /// Writing AQA, ASQ, ACQ and CC.
    Configure,
    /// Setting CC.EN and waiting for CSTS.RDY = 1.
    Enable,
    /// Waiting for an admin command.
    Command,
    /// Looking at it while others submit to it.
    Run,
    /// Setting CC.SHN and waiting for CSTS.SHST = 10b.
    Shutdown,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "reading CAP and VS",
            Self::Disable => "waiting for CSTS.RDY = 0 with CC.EN = 0",
            Self::Configure => "setting up the admin queue",
            Self::Enable => "waiting for CSTS.RDY = 1 with CC.EN = 1",
            Self::Command => "waiting for an admin command",
            Self::Run => "it was in use",
            Self::Shutdown => "waiting for CSTS.SHST = 10b",
        })
    }
}

/// Why a namespace cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceFault {
    /// NSZE is 0.
    #[error("it is not active (NSZE is 0)")]
    Inactive,
    /// NSZE blocks are more bytes than 64 bits count.
    #[error("its {blocks} blocks of 2^{lbads} bytes cannot be counted in 64 bits")]
    Size {
        /// NSZE.
        blocks: u64,
        /// LBADS.
        lbads: u8,
    },
    /// FLBAS points beyond NLBAF.
    #[error("its LBA format {index} is not one of the {formats} that it defines")]
    Format {
        /// Index in FLBAS.
        index: u8,
        /// NLBAF + 1.
        formats: u16,
    },
    /// LBADS is out of range.
    #[error("its LBA size is 2^{lbads} bytes; 512 bytes to 64 KiB can be used")]
    LbaSize {
        /// LBADS.
        lbads: u8,
    },
    /// Blocks carry metadata.
    #[error("its blocks carry {ms} bytes of metadata; format it without")]
    Metadata {
        /// MS in bytes.
        ms: u16,
    },
    /// It is zoned, or a key-value store.
    #[error(
        "it takes commands of set {0} and not of the NVM command set (2 is zoned, 1 key-value); choose \
         another namespace"
    )]
    CommandSet(u8),
    /// End-to-end protection is on.
    #[error("its end-to-end protection is type {0}; format it without")]
    Protection(u8),
}

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Namespace identifier.
    pub nsid: u32,
    /// The first block.
    pub lba: u64,
    /// How many; 0 for the whole namespace.
    pub blocks: u64,
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nsid, lba, blocks } = self;
        match blocks {
            0 => write!(f, "namespace {nsid}"),
            1 => write!(f, "LBA {lba} of namespace {nsid}"),
            _ => write!(f, "{blocks} blocks from LBA {lba} on of namespace {nsid}"),
        }
    }
}

/// An error of the driver.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller does not answer any more. Give up on it, or rescan the bus.
    #[error(
        "{controller}: registers read all-ones while {step}: the controller was removed or has \
         lost its link; check the slot and rescan the bus"
    )]
    Removed {
        /// The controller.
        controller: String,
        /// What the driver was doing.
        step: Step,
    },
    /// There is no NVMe controller that this driver could use. Choose another.
    #[error("{controller}: {reason} (CAP {:#018x}); choose another controller", cap.into_bits())]
    Unusable {
        /// The controller.
        controller: String,
        /// What is missing or wrong.
        reason: &'static str,
        /// CAP as read.
        cap: Cap,
    },
    /// The controller reports a fatal error. Open it again, which resets it.
    #[error(
        "{controller}: fatal status while {step} (CSTS {:#010x}); open the controller again, which \
         resets it, or power-cycle it", csts.into_bits()
    )]
    Fatal {
        /// The controller.
        controller: String,
        /// What the driver was doing.
        step: Step,
        /// CSTS as last read.
        csts: Csts,
    },
    /// The controller did not reach a state in time. Open it again, or allow more time.
    #[error(
        "{controller}: nothing happened for {waited:?} while {step} (CSTS {:#010x}); open the \
         controller again, or allow more time", csts.into_bits()
    )]
    NotInTime {
        /// The controller.
        controller: String,
        /// What the driver was waiting for.
        step: Step,
        /// CSTS as last read.
        csts: Csts,
        /// How long the driver waited.
        waited: Duration,
    },
    /// The controller refused an admin command. The controller stays usable.
    #[error(
        "{controller}: {command} (opcode {opcode:#04x}, CID {cid:#x}) was refused: {} (status \
         {:#06x})", status.name(), status.bits()
    )]
    Refused {
        /// The controller.
        controller: String,
        /// Name of the opcode.
        command: &'static str,
        /// The opcode.
        opcode: u8,
        /// Command identifier.
        cid: u16,
        /// What the completion says.
        status: Status,
    },
    /// An admin command was not completed in time. Drop the controller, which resets it.
    #[error(
        "{controller}: {command} (opcode {opcode:#04x}) was not completed within {waited:?} (CSTS \
         {:#010x}); drop the controller, which resets it, and open it again", csts.into_bits()
    )]
    NoCompletion {
        /// The controller.
        controller: String,
        /// Name of the opcode.
        command: &'static str,
        /// The opcode.
        opcode: u8,
        /// CSTS as last read.
        csts: Csts,
        /// How long the driver waited.
        waited: Duration,
    },
    /// The controller failed a read, write or flush. The status says whether it is of the medium;
    /// the controller stays usable.
    #[error(
        "{controller}: {command} of {range} (CID {cid:#x}) failed: {} (status {:#06x})",
        status.name(), status.bits()
    )]
    Io {
        /// The controller.
        controller: String,
        /// Name of the opcode.
        command: &'static str,
        /// The blocks.
        range: BlockRange,
        /// Command identifier.
        cid: u16,
        /// What the completion says.
        status: Status,
    },
    /// A read, write or flush was not completed in time, nor after its Abort. Drop the controller,
    /// which resets it.
    #[error(
        "{controller}: {command} of {range} was not completed within {waited:?} (CSTS {:#010x}), and \
         {abort}; drop the controller, which resets it, and open it again", csts.into_bits()
    )]
    IoLate {
        /// The controller.
        controller: String,
        /// Name of the opcode.
        command: &'static str,
        /// The blocks.
        range: BlockRange,
        /// CSTS as last read.
        csts: Csts,
        /// How long the driver waited, with the wait for the Abort.
        waited: Duration,
        /// What became of the Abort.
        abort: Abort,
    },
    /// These bytes are no blocks of the namespace. Ask for others.
    #[error(
        "{controller}: {bytes} bytes from LBA {lba} on are not whole blocks of {block_bytes} bytes \
         within the {blocks} blocks of namespace {nsid}"
    )]
    Range {
        /// The controller.
        controller: String,
        /// Namespace identifier.
        nsid: u32,
        /// The first block asked for.
        lba: u64,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes of a block.
        block_bytes: u64,
        /// Blocks of the namespace.
        blocks: u64,
    },
    /// The namespace must not be written. Open it for writing, if what is on it may be lost.
    #[error(
        "{controller}: namespace {nsid} was opened for reading only; open it for writing if what is \
         on it may be lost"
    )]
    ReadOnly {
        /// The controller.
        controller: String,
        /// Namespace identifier.
        nsid: u32,
    },
    /// The namespace cannot be used. Choose another, or format it.
    #[error("{controller}: namespace {nsid} cannot be used: {fault}")]
    Namespace {
        /// The controller.
        controller: String,
        /// Namespace identifier.
        nsid: u32,
        /// What is wrong with it.
        fault: NamespaceFault,
    },
    /// An I/O queue cannot have this size. Ask for another.
    #[error(
        "{controller}: an I/O queue cannot have {asked} entries; ask for a power of two between 2 \
         and {most}"
    )]
    QueueSize {
        /// The controller.
        controller: String,
        /// Entries asked for.
        asked: u32,
        /// Most entries that the controller takes.
        most: u32,
    },
    /// Every I/O queue pair is in use. Use fewer, or ask for more when the controller is enabled.
    #[error(
        "{controller}: all of its {granted} I/O queue pairs are in use and one more is needed; use one \
         less"
    )]
    NoQueue {
        /// The controller.
        controller: String,
        /// Queue pairs that the controller granted.
        granted: u16,
    },
    /// The caller's memory does not do. Give more, or aligned memory.
    #[error(
        "{controller}: {needed} bytes aligned to {alignment} are needed for a queue, but there are \
         {found} at {address:#x}"
    )]
    Memory {
        /// The controller.
        controller: String,
        /// Bytes needed.
        needed: u64,
        /// Alignment needed, in bytes.
        alignment: u64,
        /// Bytes given.
        found: u64,
        /// Where they are, or where they were mapped.
        address: u64,
    },
    /// The way to the controller failed.
    #[error("{controller}: cannot {action}")]
    Backing {
        /// The controller.
        controller: String,
        /// What the driver asked the backing to do.
        action: &'static str,
        /// What the backing says.
        #[source]
        source: BackingError,
    },
}
