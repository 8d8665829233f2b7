//! What can go wrong between an SSD's process and its client.

use std::io;
use std::path::PathBuf;

/// An error of the client.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Nobody listens there.
    #[error(
        "cannot connect to an SSD at {}: {source}; is its process running, and is that its socket?",
        path.display()
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The other side closed the connection, or did not answer in time.
    #[error("the SSD's process at {} is gone or stuck: {source}; start it again", path.display())]
    Gone {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody listens, and does not take the connection in time.
    #[error(
        "the SSD's process at {} does not answer: it may be serving another run; wait until that has \
         ended, or start the process again if there is none", path.display()
    )]
    Busy {
        /// The socket.
        path: PathBuf,
    },
    /// The other side refused a command.
    #[error(
        "the SSD's process at {} refused {command}{}",
        path.display(),
        if *errno == 0 { String::new() } else { format!(": {}", io::Error::from_raw_os_error(*errno)) }
    )]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The command.
        command: &'static str,
        /// Number of the error; 0 if it was not told.
        errno: i32,
    },
    /// The other side is something else, or of another version.
    #[error("what answers at {} is no SSD of warpstore's: {what}", path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The memory has no descriptor that could be passed on.
    #[error(
        "{bytes} bytes at {address:#x} cannot be shared with another process: only `DmaMemory` can"
    )]
    Private {
        /// Address of the first byte.
        address: u64,
        /// Length.
        bytes: u64,
    },
    /// No such range is mapped.
    #[error("{bytes} bytes at IOVA {iova:#x} are not mapped")]
    NotMapped {
        /// First IOVA.
        iova: u64,
        /// Length.
        bytes: u64,
    },
    /// There is no such doorbell.
    #[error("there is no doorbell at {at:#x}: the SSD shares {bytes} bytes from {first:#x} on")]
    NoDoorbell {
        /// Offset in BAR 0.
        at: u64,
        /// First offset that is shared.
        first: u64,
        /// Bytes that are.
        bytes: u64,
    },
}
