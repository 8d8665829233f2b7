//! Raw binary: elements one behind the other, little-endian.

use std::fs::{self, File};

use anyhow::{Context, Result, bail};
use warpstore_volume::{ArrayShape, ElementType};

use super::Input;
use crate::options::SourceName;

pub(super) fn open(source: &SourceName) -> Result<Vec<Input>> {
    let file = source.file.display();
    let Some(element) = source.element else {
        bail!(
            "{file}: its name does not tell what it holds; for raw binary say the type of its elements, as \
             {}:u32={file}: one of {}",
            source.name,
            ElementType::names()
        );
    };
    let cannot = || format!("cannot read {file}");
    // Asked before opening: to open a pipe that nobody writes would wait for ever.
    let metadata = fs::metadata(&source.file).with_context(cannot)?;
    if !metadata.is_file() {
        bail!("{file} is not a regular file");
    }
    let (bytes, each) = (metadata.len(), element.bytes());
    if !bytes.is_multiple_of(each) {
        bail!("{file} has {bytes} bytes, which is no whole number of {element}, {each} bytes each");
    }
    Ok(vec![Input {
        shape: ArrayShape {
            name: source.name.clone(),
            element,
            len: bytes / each,
        },
        bytes: Box::new(File::open(&source.file).with_context(cannot)?),
    }])
}
