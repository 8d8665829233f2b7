//! A Linux guest with an IOMMU and QEMU's controllers, in which the driver runs over VFIO.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::qemu;
use crate::setup::Setup;

/// Names the folder with kernel and initramfs, which `cargo xtask test qemu` makes.
pub const FOLDER: &str = "WARPSTORE_GUEST";
/// Longest life of a guest.
const LIMIT: Duration = Duration::from_secs(180);
/// Slot of the first controller.
const FIRST_SLOT: u8 = 4;
/// The kernel's own arguments. A starved machine fails the test of its timer, which nobody needs.
/// Huge pages are enough for one run over one controller.
const KERNEL: &str = "console=ttyS0 intel_iommu=on panic=-1 quiet cryptomgr.notests \
                      no_timer_check hugepages=40";
/// What a guest prints when its first controller shall be unplugged, if that can be.
pub const UNPLUG_NOW: &str = "UNPLUG NOW";
/// What QEMU logs: CC.EN is set, CC.EN is cleared.
const STARTED: &str = "pci_nvme_mmio_start_success";
const STOPPED: &str = "pci_nvme_mmio_stopped";

/// What guests are made of.
pub struct Guest {
    program: PathBuf,
    folder: PathBuf,
}

/// A guest that has ended.
pub struct Ended {
    /// What it printed.
    pub serial: String,
    /// What QEMU logged.
    log: String,
    /// Has the files of the namespaces.
    pub folder: TempDir,
}

impl Guest {
    /// What is needed.
    ///
    /// # Errors
    /// It is not there: `cargo xtask test qemu` makes it ready.
    pub fn find() -> io::Result<Self> {
        let missing = || io::Error::other("`cargo xtask test qemu` boots guests");
        let program = qemu::find().ok_or_else(missing)?;
        let folder = env::var_os(FOLDER).ok_or_else(missing)?;
        Ok(Self {
            program,
            folder: folder.into(),
        })
    }

    /// Boots a guest with a controller for each setup, in which `task` runs, until it ends.
    ///
    /// # Errors
    /// QEMU does not start, or the guest does not end in time.
    pub fn run(&self, task: &str, setups: &[Setup]) -> io::Result<Ended> {
        let folder = tempfile::tempdir()?;
        let (serial, log) = (folder.path().join("serial"), folder.path().join("log"));
        let mut command = Command::new(&self.program);
        command.args(machine(&serial, &log));
        command.arg("-kernel").arg(self.folder.join("kernel"));
        command.arg("-initrd").arg(self.folder.join("initramfs"));
        let words: Vec<_> = setups.iter().map(Setup::to_word).collect();
        command
            .arg("-append")
            .arg(format!("{KERNEL} -- {task} {}", words.join(" ")));
        for (slot, setup) in (FIRST_SLOT..).zip(setups) {
            command.args(setup.arguments(slot, folder.path())?);
        }
        let monitor = folder.path().join("monitor");
        command
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", monitor.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.path().join("errors"))?);
        let mut qemu = command.spawn()?;
        if setups.iter().any(|setup| setup.hot_plug)
            && let Err(error) = unplug(&mut qemu, &serial, &monitor)
        {
            qemu.kill()?;
            qemu.wait()?;
            return Err(error);
        }
        let ended = wait(qemu)?;
        let text =
            |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let serial = text(&serial)?;
        if !ended {
            return Err(io::Error::other(format!(
                "the guest does not end:\n{serial}"
            )));
        }
        Ok(Ended {
            serial,
            log: text(&log)?,
            folder,
        })
    }
}

impl Ended {
    /// Whether its task says that all went well.
    pub fn passed(&self) -> bool {
        self.serial.lines().any(|line| line.trim() == "GUEST PASS")
    }

    /// Whether CC.EN was set, and the last that was done to it is that it was cleared.
    pub fn controller_was_stopped(&self) -> bool {
        let changes = |line: &&str| line.contains(STARTED) || line.contains(STOPPED);
        let last = self.log.lines().rfind(changes);
        self.log.contains(STARTED) && last.is_some_and(|line| line.contains(STOPPED))
    }
}

/// Unplugs the first controller when the guest says so, as an operator does who asks first.
fn unplug(qemu: &mut Child, serial: &Path, monitor: &Path) -> io::Result<()> {
    let begin = Instant::now();
    let asked = || fs::read_to_string(serial).is_ok_and(|text| text.contains(UNPLUG_NOW));
    while !asked() {
        if begin.elapsed() > LIMIT || qemu.try_wait()?.is_some() {
            // Its output tells why.
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    let mut stream = UnixStream::connect(monitor)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let remove = json!({"execute": "device_del", "arguments": {"id": format!("n{FIRST_SLOT}")}});
    for command in [json!({"execute": "qmp_capabilities"}), remove] {
        stream.write_all(command.to_string().as_bytes())?;
        // Whoever closes the connection before the answer takes the command back.
        let answer = lines.find(|line| {
            let answers = |text: &String| text.contains("\"return\"") || text.contains("\"error\"");
            line.as_ref().map_or(true, answers)
        });
        if !answer.is_some_and(|line| line.is_ok_and(|text| text.contains("\"return\""))) {
            return Err(io::Error::other(format!("QEMU refuses {command}")));
        }
    }
    Ok(())
}

/// Waits for QEMU to end, and ends it if it takes too long; false if so.
fn wait(mut qemu: Child) -> io::Result<bool> {
    let begin = Instant::now();
    while qemu.try_wait()?.is_none() {
        if begin.elapsed() > LIMIT {
            qemu.kill()?;
            qemu.wait()?;
            return Ok(false);
        }
        sleep(Duration::from_millis(10));
    }
    Ok(true)
}

/// A machine with an IOMMU that remaps interrupts, without which VFIO refuses.
fn machine(serial: &Path, log: &Path) -> Vec<String> {
    let chardev = format!("file,id=serial,path={}", serial.display());
    let log = log.display().to_string();
    let words = [
        "-M",
        "q35,sata=off,smbus=off,vmport=off",
        "-accel",
        "tcg",
        "-smp",
        "1",
        "-m",
        "512M",
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
        "-chardev",
        &chardev,
        "-serial",
        "chardev:serial",
        "-device",
        "intel-iommu,intremap=on",
        "-D",
        &log,
        "-trace",
        STARTED,
        "-trace",
        STOPPED,
    ];
    words.map(str::to_owned).to_vec()
}
