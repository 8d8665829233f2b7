//! The blocks of an SSD outside as the host reaches them: by commands, on a queue pair of its own.

use std::sync::Arc;

use driver_vfio::{Access, BlockIo, Controller, Enabled};

use super::{QueueBuffers, Ssd};
use crate::Error;
use crate::buffer::Buffer;

/// Most bytes that are written before it is known whether they were: what is repeated.
pub(crate) const GATHERED: usize = 1 << 20;
/// How often they are repeated at most.
const REPETITIONS: u32 = 16;

/// Writes `parts`, gathered where one continues another, with zeros behind each up to the next
/// block; then flushes.
pub(super) fn write<'p>(
    ssd: &Ssd,
    access: Access,
    parts: impl Iterator<Item = (u64, &'p [u8])>,
) -> Result<(), Error> {
    with_block_io(ssd, access, |io| {
        let block = 1 << ssd.lba_shift;
        let (mut start, mut gathered) = (0, Vec::new());
        for (at, part) in parts {
            let continues = start + gathered.len() as u64 == at;
            if !continues || gathered.len() + part.len() > GATHERED {
                persist(|| io.write(start >> ssd.lba_shift, &gathered))?;
                gathered.clear();
                start = at;
            }
            gathered.extend_from_slice(part);
            gathered.resize(gathered.len().next_multiple_of(block), 0);
        }
        persist(|| io.write(start >> ssd.lba_shift, &gathered))?;
        persist(|| io.flush())
    })
}

/// Reads `parts`.
pub(super) fn read<'p>(
    ssd: &Ssd,
    mut parts: impl Iterator<Item = (u64, &'p mut [u8])>,
) -> Result<(), Error> {
    with_block_io(ssd, Access::ReadOnly, |io| {
        let mut blocks = Vec::new();
        parts.try_for_each(|(at, part)| {
            blocks.resize(part.len().next_multiple_of(1 << ssd.lba_shift), 0);
            persist(|| io.read(at >> ssd.lba_shift, &mut blocks))?;
            part.copy_from_slice(&blocks[..part.len()]);
            Ok(())
        })
    })
}

/// Repeats what failed with a status that may pass: several commands at a time, of which one may fail.
pub(crate) fn persist(
    mut act: impl FnMut() -> Result<(), driver_vfio::Error>,
) -> Result<(), driver_vfio::Error> {
    let mut failures = 0;
    loop {
        match act() {
            Err(driver_vfio::Error::Io { status, .. })
                if status.is_retryable() && failures < REPETITIONS =>
            {
                failures += 1;
            }
            result => return result,
        }
    }
}

/// Opens block I/O on the SSD for as long as `act` takes.
fn with_block_io(
    ssd: &Ssd,
    access: Access,
    act: impl FnOnce(&mut BlockIo<&mut Controller<Enabled>>) -> Result<(), driver_vfio::Error>,
) -> Result<(), Error> {
    let mut driver = ssd.driver();
    let controller = driver.controller();
    let shared = Buffer::dma(controller.block_io_bytes() as usize)?;
    let memory = Arc::new(QueueBuffers::new(shared)?);
    let mut io = BlockIo::open(controller, ssd.nsid, access, memory)?;
    act(&mut io)?;
    io.close()?;
    Ok(())
}
