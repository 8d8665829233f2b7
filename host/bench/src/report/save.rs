//! Files that are written whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use super::Report;

/// A result file that could not be written; nothing is left of it.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {source}; choose a file in a folder that exists, may be written and has room", file.display())]
pub struct SaveError {
    /// The file as it was named.
    pub file: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes `report` as JSON.
///
/// # Errors
/// [`SaveError`] if the file cannot be written; what it held before is left.
pub fn save_json(file: &Path, report: &Report) -> Result<(), SaveError> {
    let mut text = serde_json::to_vec_pretty(report).map_err(|error| SaveError {
        file: file.to_owned(),
        source: error.into(),
    })?;
    text.push(b'\n');
    save(file, &text)
}

/// Writes `content` to `file`: beside it first, then renamed over it.
///
/// # Errors
/// [`SaveError`] if the file cannot be written; what it held before is left.
pub fn save(file: &Path, content: &[u8]) -> Result<(), SaveError> {
    save_whole(file, content).map_err(|source| SaveError {
        file: file.to_owned(),
        source,
    })
}

fn save_whole(file: &Path, content: &[u8]) -> io::Result<()> {
    match fs::metadata(file) {
        // A rename would put a file in the place of a link, a pipe or a device.
        Ok(found) if found.is_file() => replace(&fs::canonicalize(file)?, content),
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => OpenOptions::new()
            .write(true)
            .open(file)?
            .write_all(content),
        Err(_) => replace(file, content),
    }
}

fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(format!(".{}.partial", process::id()));
    let partial = file.with_file_name(partial);
    let written = write_new(&partial, content).and_then(|()| fs::rename(&partial, file));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn write_new(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut created = File::create(file)?;
    created.write_all(content)?;
    // A full disk may show only now.
    created.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("out.json");
        save(&file, b"first").unwrap();
        save(&file, b"second").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["out.json"]);
    }

    #[test]
    fn what_cannot_be_written_is_named_and_left_alone() {
        let folder = TempDir::new().unwrap();
        for file in [
            folder.path().join("no/such/out.json"),
            folder.path().to_owned(),
            PathBuf::from("/"),
            PathBuf::new(),
        ] {
            let error = save(&file, b"x").unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("{} cannot be written: ", file.display())),
                "{error}"
            );
        }
        assert!(names(folder.path()).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error_and_stays_a_device() {
        let error = save(Path::new("/dev/full"), b"x").unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
        save(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let folder = TempDir::new().unwrap();
        let (file, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        save(&link, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
