//! `serve-ssds`: this binary as the process that is the SSDs.
//!
//! `bench --ssd process:…` starts it for its run, and ends with it. Somebody else may start it too, and
//! come with `--ssd socket:…` as often as they like.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use clap::Parser;
use warpstore::{Medium, SsdConfig, SsdServer};

use crate::exit::Failure;
use crate::experiments::passing_faults;
use crate::options::{Profile, UsageError};

/// The word that stands in the place of an experiment.
pub const NAME: &str = "serve-ssds";

/// What is served.
#[derive(Debug, Parser)]
#[command(
    name = "bench serve-ssds",
    bin_name = "cargo xtask bench serve-ssds",
    about = "Be emulated SSDs for `--ssd socket:…` of other processes, until it is killed."
)]
pub struct Serve {
    /// Socket of an SSD; once for each
    #[arg(long = "socket", value_name = "PATH")]
    pub sockets: Vec<PathBuf>,
    /// Whose speed they have
    #[arg(long, value_enum, default_value = "ideal")]
    pub profile: Profile,
    /// A file that keeps the data, with several SSDs .0, .1, … appended [default: memory]
    #[arg(long, value_name = "FILE")]
    pub media: Option<PathBuf>,
    /// Write over a media file that holds something else
    #[arg(long)]
    pub overwrite: bool,
    /// Bytes of a logical block: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "512")]
    pub lba: u32,
    /// Bytes of each SSD
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = warpstore_terminal::size)]
    pub bytes: u64,
    /// I/O queue pairs of each SSD, one of them for the host's own commands
    #[arg(long, value_name = "N", default_value = "129", value_parser = clap::value_parser!(u16).range(2..))]
    pub queues: u16,
    /// Threads that serve them
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub serving: u32,
    /// Fail one command in so many, with a status that passes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    pub fail_one_in: Option<u64>,
    /// Where random choices begin
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// End when stdin does
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

/// Serves until the process is killed.
///
/// # Errors
/// The command line; a socket, a media file or the memory.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    use clap::error::ErrorKind::DisplayHelp;
    let serve = match Serve::try_parse_from(arguments) {
        Ok(serve) => serve,
        Err(error) if error.kind() == DisplayHelp => {
            let _ = io::stdout().write_all(error.to_string().as_bytes());
            return Ok(());
        }
        Err(error) => return Err(UsageError::from(error).into()),
    };
    if serve.sockets.is_empty() {
        let reason = "it needs the path of a socket, once for each SSD";
        return Err(UsageError::new(NAME, "--socket", reason).into());
    }
    if serve.with_parent {
        let sockets = serve.sockets.clone();
        thread::spawn(move || end_with_stdin(&sockets));
    }
    let listeners = serve.sockets.iter().map(|path| bind(path));
    let (listeners, _locks): (Vec<_>, Vec<_>) = listeners
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let each = SsdConfig {
        profile: serve.profile.figures(),
        medium: match serve.media {
            None => Medium::Near,
            Some(path) => Medium::File {
                path,
                overwrite: serve.overwrite,
            },
        },
        lba_bytes: serve.lba,
        bytes: serve.bytes,
        volatile_write_cache: false,
        faults: passing_faults(serve.fail_one_in, serve.seed),
    };
    let server = SsdServer::start(&each, listeners, serve.queues, serve.serving);
    let server = server.map_err(anyhow::Error::from)?;
    for path in &serve.sockets {
        let renamed = fs::rename(unready(path), path);
        renamed.with_context(|| format!("cannot listen at {}", path.display()))?;
    }
    server.serve(&|error| {
        let _ = writeln!(io::stderr(), "SSDs: {error}");
    });
    Ok(())
}

/// A listener that nobody finds at `path` yet, and the lock that keeps other such processes from the
/// path while this one lives. A socket there that nobody listens at any more will be replaced.
fn bind(path: &Path) -> anyhow::Result<(UnixListener, File)> {
    let cannot = || format!("cannot listen at {}", path.display());
    // It stays when the process ends: removed, it could be locked by one and made anew by another.
    let lock = File::options().create(true).append(true).open(lock(path));
    let lock = lock.with_context(cannot)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => anyhow::bail!(
            "{}: another `{NAME}` serves there, or is about to; name another path, or end that process",
            cannot()
        ),
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    anyhow::ensure!(
        path.symlink_metadata().is_err() || is_abandoned(path),
        "{}: something is there, and no socket that a process left; name another path, or end the \
         process that listens there",
        cannot()
    );
    // One that a process left which was killed meanwhile.
    let _ = fs::remove_file(unready(path));
    let listener = UnixListener::bind(unready(path)).with_context(cannot)?;
    Ok((listener, lock))
}

/// Whether `path` is a socket of a process that has ended.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    // Datagrams are the wrong type for whoever listens, which is told at once: a connection would have
    // to wait where many do.
    let tried = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    is_socket && tried.is_err_and(refused)
}

/// The file that is locked by the process that serves at `path`.
fn lock(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

/// Where a socket waits until there are SSDs behind it.
fn unready(path: &Path) -> PathBuf {
    beside(path, ".unready")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Ends this process when whoever holds the other end of stdin has ended, and removes the sockets and
/// the folder that was made for them: the other side may have had no time for it.
fn end_with_stdin(sockets: &[PathBuf]) {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    for path in sockets {
        // Best effort: who ended in order has removed them.
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(unready(path));
        let _ = fs::remove_file(lock(path));
        // It goes with the last.
        let _ = path.parent().map(fs::remove_dir);
    }
    std::process::exit(0);
}
