//! `extract`: arrays to files, as raw binary.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use warpstore::VolumeAccess;
use warpstore_terminal::Progress;
use warpstore_volume::{Error, Volume};

use crate::Failure;
use crate::options::Extract;

pub fn run(options: &Extract) -> Result<(), Failure> {
    let mut volume = warpstore::open_volume(&options.members, VolumeAccess::ReadOnly)?;
    // Nothing is made if one is not there.
    for target in &options.arrays {
        volume.array(&target.name)?;
    }
    for target in &options.arrays {
        let array = volume.array(&target.name)?.clone();
        let progress = Progress::begin(format!("extract {}", array.name), 0);
        extract(&mut volume, &array.name, &target.file)?;
        progress.end(&format!(
            "{} {}, {} bytes",
            array.len,
            array.element,
            array.bytes()
        ));
    }
    Ok(())
}

/// Copies an array to a file that has its name only when it is complete, and durable.
fn extract(volume: &mut Volume, name: &str, path: &Path) -> Result<()> {
    let cannot = || format!("cannot make {}", path.display());
    // Said before everything is read, and once more when the file gets its name.
    if path.symlink_metadata().is_ok() {
        bail!("{}: it is there already; name another file", cannot());
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let file = tempfile::Builder::new()
        .prefix(".extract-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(cannot)?;
    match volume.copy(name, &mut file.as_file()) {
        Ok(()) => {}
        Err(Error::Copy { source, .. }) => return Err(source).with_context(cannot),
        Err(error) => return Err(error.into()),
    }
    file.as_file().sync_all().with_context(cannot)?;
    file.persist_noclobber(path)
        .map_err(|error| error.error)
        .with_context(cannot)?;
    Ok(())
}
