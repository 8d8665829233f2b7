//! SSDs that are not emulated in this process, brought up over any backing.

use std::sync::Arc;

use driver_vfio::{Access, Backing, Controller, Enabled};

use super::{Medium, Opened, QueueBuffers, Ssd, bring_up};
use crate::Error;
use crate::buffer::Buffer;
use crate::config::{Configuration, Doorbells, VfioConfig, VfioSsd};

/// Brings up the controllers behind `backings`, which are those that `wanted` names. They are read
/// only, unless their serial number is among those that may be destroyed.
pub(super) fn open(
    config: &Configuration,
    wanted: &VfioConfig,
    backings: Vec<Arc<dyn Backing>>,
) -> Result<Opened, Error> {
    let mut serials = Vec::new();
    let mut ssds = Vec::new();
    for (named, backing) in wanted.ssds.iter().zip(backings) {
        // One more queue pair than kernels use, for the host's own commands.
        let driver = bring_up(&backing, Buffer::dma, config.queues + 1)?;
        let serial = driver.info().serial.clone();
        check_name(named, &serial, backing.name())?;
        let access = match wanted.destroy.contains(&serial) {
            true => Access::ReadWrite,
            false => Access::ReadOnly,
        };
        serials.push(serial);
        let medium = Medium::Commands(access);
        ssds.push(ready(driver, backing, config, named.nsid, medium)?);
    }
    match wanted.destroy.iter().find(|one| !serials.contains(one)) {
        Some(other) => Err(Error::Configuration(format!(
            "the SSD with serial number {other} may be destroyed, but is not among those of the \
             session: {}",
            serials.join(", ")
        ))),
        None => Ok(Opened {
            ssds,
            serving: None,
            new_files: None,
        }),
    }
}

/// The SSD says itself who it is: records of serial numbers may be old, and addresses move.
fn check_name(named: &VfioSsd, serial: &str, address: &str) -> Result<(), Error> {
    if [serial, address].contains(&named.name.as_str()) {
        return Ok(());
    }
    Err(Error::Configuration(format!(
        "the SSD that was bound as {} says that its serial number is {serial}; unbind it and \
         bind it again",
        named.name
    )))
}

/// The SSD, if kernels can use it as the session is configured.
pub(super) fn ready(
    mut driver: Controller<Enabled>,
    backing: Arc<dyn Backing>,
    config: &Configuration,
    nsid: Option<u32>,
    medium: Medium,
) -> Result<Ssd, Error> {
    let nsid = namespace_of(&mut driver, backing.name(), nsid)?;
    let namespace = driver.namespace(nsid)?;
    config.check_lba(1 << namespace.block_shift)?;
    let refused = |what: String| {
        let name = backing.name();
        Err(Error::Configuration(format!("{name}: {what}")))
    };
    let most = u64::from(namespace.max_blocks) << namespace.block_shift;
    let blocks = config.blocks.map_or(0, |blocks| blocks.bytes);
    if u64::from(config.line_bytes.max(blocks)) > most {
        return refused(format!(
            "it moves at most {most} bytes by one command; use lines and block buffers that are not \
             larger"
        ));
    }
    use_shadow_doorbells(&mut driver, config)?;
    Ok(Ssd::new(driver, backing, &namespace, medium))
}

/// Lets virtual SSDs take doorbells from memory, where it is the host's CPU that passes them on.
fn use_shadow_doorbells(
    driver: &mut Controller<Enabled>,
    config: &Configuration,
) -> Result<(), Error> {
    if config.doorbells == Doorbells::Proxy && driver.info().shadow_doorbells {
        let memory = QueueBuffers::new(Buffer::dma(driver.shadow_bytes() as usize)?)?;
        driver.use_shadow_doorbells(Arc::new(memory))?;
    }
    Ok(())
}

/// The namespace that was asked for, or the only one.
fn namespace_of(
    driver: &mut Controller<Enabled>,
    name: &str,
    nsid: Option<u32>,
) -> Result<u32, Error> {
    if let Some(nsid) = nsid {
        return Ok(nsid);
    }
    only_namespace(driver, name)
}

/// The only namespace of an SSD.
pub(crate) fn only_namespace(driver: &mut Controller<Enabled>, name: &str) -> Result<u32, Error> {
    match driver.active_namespaces()?[..] {
        [only] => Ok(only),
        ref several => Err(Error::Configuration(format!(
            "{name} has namespaces {several:?}; say which one is meant"
        ))),
    }
}

#[cfg(test)]
mod tests;
