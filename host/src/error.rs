//! What can go wrong on the host side, by what the caller can do about it.

use warpstore_device::{ErrorRecord, IoError, PendingCommand};

use crate::cuda::CudaError;

/// An error of the host library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The GPU or its driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Bring-up, an admin command or the shutdown of a controller failed, or it was lost while kernels
    /// ran: it reports a fatal status, or is gone.
    #[error(transparent)]
    Driver(#[from] driver_vfio::Error),
    /// A real SSD could not be opened.
    #[error(transparent)]
    Vfio(#[from] driver_vfio::vfio::VfioError),
    /// An emulated SSD in another process cannot be reached, or does not answer any more: also while
    /// kernels run.
    #[error(transparent)]
    User(#[from] driver_vfio::user::UserError),
    /// Emulated SSDs for other processes cannot be made.
    #[error(transparent)]
    Server(#[from] driver_vfio::user::ServerError),
    /// A kernel rang a doorbell that the proxy did not pass on: something wrote over the store's memory.
    #[error(transparent)]
    Doorbell(#[from] driver_vfio::Refusal),
    /// An emulated SSD could not be set up: a media file is missing, too small, not ours….
    #[error(transparent)]
    Media(#[from] nvme_model::MediaError),
    /// A volume cannot be opened, or not be read or written.
    #[error(transparent)]
    Volume(#[from] warpstore_volume::Error),
    /// The machine has not this much memory.
    #[error("there is no memory for {bytes} bytes; ask for a smaller cache or fewer lines")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The configuration cannot work.
    #[error("{0}")]
    Configuration(String),
    /// The SSDs are too small for what shall lie on them.
    #[error("array {array:?} needs {needed} bytes, but {free} of the SSDs are left")]
    NoSpace {
        /// Name of the array.
        array: String,
        /// Bytes needed, rounded up to whole lines.
        needed: u64,
        /// Bytes left.
        free: u64,
    },
    /// Lanes of a kernel got an error from the storage stack.
    #[error(
        "kernel {kernel}: {} failed, the first because {first}{}",
        if *lanes == 1 { "1 lane".to_owned() } else { format!("{lanes} lanes") },
        context_text(*commands, command.as_ref(), pending.as_ref(), *lba)
    )]
    Kernel {
        /// Name of the kernel.
        kernel: &'static str,
        /// How many lanes returned an error.
        lanes: u64,
        /// The first error.
        first: IoError,
        /// Commands that the SSDs failed, since the session was opened.
        commands: u64,
        /// The first of them.
        command: Option<ErrorRecord>,
        /// After a time-out, a command that never came back: one of the line, else of the queue.
        pending: Option<PendingCommand>,
        /// SSD and LBA at which the line of the first error begins, if it is about a line.
        lba: Option<(u32, u64)>,
    },
    /// An SSD is being unplugged or unbound. End the session, which flushes what still can be and lets
    /// the SSD go: the kernel waits for that.
    #[error(
        "{ssd}: the kernel asks for it back, since it is being unplugged or unbound; the session has \
         ended all accesses"
    )]
    Recalled {
        /// The SSD.
        ssd: String,
    },
    /// What kernels wrote did not all reach the SSDs for good.
    #[error(
        "not everything that was written is on the SSDs: {} failed, the first because {first}{}",
        if *lanes == 1 { "1 write or flush".to_owned() } else { format!("{lanes} writes or flushes") },
        command.as_ref().map_or_else(String::new, |first| format!(" (first failed command: {first})"))
    )]
    Flush {
        /// How many lines or SSDs, at least: one a lane that flushed.
        lanes: u64,
        /// The first error.
        first: IoError,
        /// The first command that failed in this session.
        command: Option<ErrorRecord>,
    },
    /// A lane panicked or never came to a collective on the `threads` runner.
    #[error("kernel {kernel}: {fault}")]
    Lane {
        /// Name of the kernel.
        kernel: &'static str,
        /// What happened.
        fault: warpstore_device::host::LaunchFault,
    },
}

/// What is known of the commands behind a failed kernel.
fn context_text(
    commands: u64,
    first: Option<&ErrorRecord>,
    pending: Option<&PendingCommand>,
    lba: Option<(u32, u64)>,
) -> String {
    let mut text = String::new();
    if let Some((ssd, lba)) = lba {
        text.push_str(&format!("; the line begins at LBA {lba} of SSD {ssd}"));
    }
    if let Some(pending) = pending {
        text.push_str(&format!("; {pending} never came back"));
    }
    if let Some(first) = first {
        text.push_str(&format!(" ({commands} commands failed, first {first})"));
    }
    text
}
