//! A QEMU process: a PC with one NVMe controller, whose processor does nothing.
#![allow(unsafe_code, reason = "a child is told to end with its parent")]
// UNSAFETY: one system call between fork and exec.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use tempfile::TempDir;

use crate::setup::Setup;

/// Where a test finds QEMU: on `PATH`, where `cargo xtask test` puts the one that it fetched.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// Longest wait for QEMU to connect.
const LIMIT: Duration = Duration::from_secs(30);
/// Memory of the machine, bytes.
pub(crate) const RAM_BYTES: u64 = 128 << 20;
/// Slot of the controller on the first bus.
pub(crate) const SLOT: u8 = 4;
/// What QEMU writes to its log: admin commands, and whatever the driver must not do.
const TRACES: [&str; 2] = ["pci_nvme_admin_cmd", "pci_nvme_ub_*"];

/// QEMU, if this machine has it. Says aloud that a test is skipped if not.
pub fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .map(|folder| folder.join(PROGRAM))
        .find(|program| program.is_file());
    if found.is_none() {
        say_skipped("no QEMU here; `cargo xtask test` fetches one");
    }
    found
}

/// Says, past the capture of the test harness, why a test is skipped.
fn say_skipped(why: &str) {
    use io::Write;
    // If nobody listens, nobody is told.
    let _ = io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes());
}

/// A running QEMU; dropping it ends it.
pub(crate) struct Process {
    child: Child,
    folder: TempDir,
}

impl Process {
    /// Starts QEMU with `setup`'s controller and with the memory at `ram`, and waits until it
    /// has connected.
    pub(crate) fn start(
        program: &Path,
        setup: &Setup,
        ram: &str,
    ) -> io::Result<(Self, UnixStream)> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("qtest");
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let mut command = Command::new(program);
        command
            .args(machine(folder.path(), &socket, ram)?)
            .args(setup.arguments(SLOT, folder.path())?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(errors(folder.path()))?);
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let mut process = Self {
            child: command.spawn()?,
            folder,
        };
        let stream = process.accept(&listener)?;
        Ok((process, stream))
    }

    fn accept(&mut self, listener: &UnixListener) -> io::Result<UnixStream> {
        let begin = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Ok(stream),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => {}
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || begin.elapsed() > LIMIT {
                let why = fs::read_to_string(errors(self.folder.path()))?;
                return Err(io::Error::other(format!("QEMU did not start: {why}")));
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// Ends QEMU: the controller is gone.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What QEMU logged so far.
    pub(crate) fn log(&self) -> String {
        // No log yet, nothing logged.
        fs::read_to_string(log(self.folder.path())).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The arguments of a PC whose firmware parks the processor.
fn machine(folder: &Path, socket: &Path, ram: &str) -> io::Result<Vec<String>> {
    let firmware = folder.join("firmware");
    // The last 16 bytes are where a processor begins: cli, hlt, and back to hlt.
    let mut code = vec![0xf4; 64 << 10];
    let reset = code.len() - 16;
    code[reset..reset + 4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    fs::write(&firmware, code)?;
    let size = RAM_BYTES;
    let mut arguments: Vec<String> = vec![
        "-accel".into(),
        "tcg".into(),
        "-M".into(),
        "q35,memory-backend=ram,sata=off,smbus=off".into(),
        "-m".into(),
        format!("{}M", size >> 20),
        "-object".into(),
        format!("memory-backend-file,id=ram,size={size},share=on,mem-path={ram}"),
        "-bios".into(),
        firmware.display().to_string(),
        "-nodefaults".into(),
        "-display".into(),
        "none".into(),
        "-qtest".into(),
        format!("unix:{}", socket.display()),
        "-qtest-log".into(),
        "none".into(),
        "-D".into(),
        log(folder).display().to_string(),
    ];
    for event in TRACES {
        arguments.extend(["-trace".into(), event.into()]);
    }
    Ok(arguments)
}

fn log(folder: &Path) -> PathBuf {
    folder.join("log")
}

fn errors(folder: &Path) -> PathBuf {
    folder.join("errors")
}
