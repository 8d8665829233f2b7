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
use serde_json::json;
use tempfile::TempDir;

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
        use io::Write;
        let message = format!("SKIPPED: no {PROGRAM} here; `cargo xtask test` fetches one\n");
        // Past the capture of the test harness; if nobody listens, nobody is told.
        let _ = io::stderr().write_all(message.as_bytes());
    }
    found
}

/// The controller to make.
#[derive(Clone)]
pub struct Setup {
    /// Serial number.
    pub serial: String,
    /// I/O queue pairs that it grants.
    pub queues: u16,
    /// Largest transfer, 2^MDTS pages of 4 KiB; 0 is no limit.
    pub mdts: u8,
    /// Its namespaces.
    pub namespaces: Vec<Namespace>,
}

/// A namespace, kept in a file.
#[derive(Clone)]
pub struct Namespace {
    /// Identifier.
    pub nsid: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// log2 of the LBA's size: 9 or 12.
    pub block_shift: u8,
    /// What QEMU's block layer lets fail.
    pub faults: Vec<Fault>,
}

/// Reads, or writes, of one sector that fail.
#[derive(Clone, Copy)]
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
        }
    }
}

impl Namespace {
    /// A namespace without faults.
    pub fn new(nsid: u32, bytes: u64, block_shift: u8) -> Self {
        Self {
            nsid,
            bytes,
            block_shift,
            faults: Vec::new(),
        }
    }

    /// The arguments that make it, with its blocks in `folder`.
    fn arguments(&self, folder: &Path) -> io::Result<[String; 4]> {
        let image = image(folder, self.nsid);
        File::create(&image)?.set_len(self.bytes)?;
        let node = format!("d{}", self.nsid);
        let file = json!({"driver": "file", "filename": image});
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
        let lba = 1 << self.block_shift;
        // Flushes of the controller do not flush the disk of this machine, which may take minutes.
        let blockdev = json!({"driver": "raw", "node-name": node, "file": file,
                              "cache": {"no-flush": true}});
        let device = format!(
            "nvme-ns,drive={node},bus=nvme,nsid={},logical_block_size={lba},physical_block_size={lba}",
            self.nsid
        );
        Ok([
            "-blockdev".into(),
            blockdev.to_string(),
            "-device".into(),
            device,
        ])
    }
}

/// The file of a namespace.
fn image(folder: &Path, nsid: u32) -> PathBuf {
    folder.join(format!("namespace-{nsid}"))
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
        command.args(machine(folder.path(), &socket, ram)?);
        let Setup {
            serial,
            queues,
            mdts,
            ..
        } = setup;
        command.arg("-device").arg(format!(
            "nvme,id=nvme,serial={serial},max_ioqpairs={queues},mdts={mdts},addr={SLOT:#x}"
        ));
        for namespace in &setup.namespaces {
            command.args(namespace.arguments(folder.path())?);
        }
        command
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

    /// The file with the blocks of a namespace.
    pub(crate) fn image(&self, nsid: u32) -> PathBuf {
        image(self.folder.path(), nsid)
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
