//! `extract`: arrays to files, as raw binary.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use warpstore::VolumeAccess;
use warpstore_terminal::Progress;
use warpstore_volume::Volume;

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
        let extracted = extract(&mut volume, &array.name, &target.file);
        if let Err(error) = extracted {
            return Err(error.into());
        }
        progress.end(&format!(
            "{} {}, {} bytes",
            array.len,
            array.element,
            array.bytes()
        ));
    }
    Ok(())
}

fn extract(volume: &mut Volume, name: &str, path: &Path) -> Result<()> {
    let cannot = || format!("cannot make {}", path.display());
    let file = File::create_new(path).with_context(cannot)?;
    let mut file = BufWriter::new(file);
    let copied = volume.copy(name, &mut file).map_err(anyhow::Error::from);
    let copied = copied.and_then(|()| file.flush().with_context(cannot));
    if copied.is_err() {
        // What is half there, or wrong, is no array. The error to report is the first one.
        let _ = fs::remove_file(path);
    }
    copied
}
