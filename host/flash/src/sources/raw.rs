//! Raw binary: elements one behind the other, little-endian.

use anyhow::{Context, Result, bail};
use warpstore_volume::{ArrayShape, ElementType};

use super::{Input, open_file};
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
    let opened = open_file(&source.file)?;
    let metadata = opened.metadata();
    let metadata = metadata.with_context(|| format!("cannot read {file}"))?;
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
        bytes: Box::new(opened),
    }])
}
