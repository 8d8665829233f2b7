//! What outlives a command: which SSDs were taken, and that one command runs at a time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{entries_if_any, name, text};

/// Where the serial numbers of SSDs on vfio-pci are kept: there the kernel does not know them.
/// It is emptied when the machine starts, as the bindings are.
pub const RECORDS: &str = "run/warpstore";

/// Held by the one command that moves SSDs.
const LOCK: &str = "run/warpstore.lock";

/// Keeps other commands from moving SSDs, until this is dropped.
///
/// # Errors
/// Another one runs, or there is no place for the file.
pub fn lock(system: &Path) -> Result<File> {
    let path = system.join(LOCK);
    let folder = system.join("run");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("{}; run this as root", path.display()))?;
    if file.try_lock().is_err() {
        bail!("another `bind` or `unbind` is running; wait for it");
    }
    Ok(file)
}

/// Notes the serial number of what goes to vfio-pci.
pub fn record(system: &Path, address: &str, serial: &str) -> Result<()> {
    let folder = system.join(RECORDS);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = folder.join(address);
    fs::write(&file, serial).with_context(|| file.display().to_string())
}

pub fn forget(system: &Path, address: &str) {
    // A record that stays is overwritten by the next one.
    let _ = fs::remove_file(system.join(RECORDS).join(address));
}

/// The address of the SSD with this serial number, if it was recorded.
pub fn recorded(system: &Path, serial: &str) -> Result<Option<String>> {
    let records: Vec<PathBuf> = entries_if_any(&system.join(RECORDS))?;
    let is_it = |file: &&PathBuf| text(file).is_ok_and(|found| found == serial);
    Ok(records.iter().find(is_it).map(|file| name(file)))
}

/// The serial number that was recorded for the SSD at this address.
pub fn serial(system: &Path, address: &str) -> Option<String> {
    text(&system.join(RECORDS).join(address)).ok()
}
