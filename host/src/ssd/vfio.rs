//! Real SSDs, opened through VFIO.

use std::sync::Arc;

use driver_vfio::Backing;
use driver_vfio::vfio::{Vfio, address_of};

use super::{Opened, outside};
use crate::Error;
use crate::config::{Configuration, VfioConfig};

/// The SSDs that are called so, in this order. They are opened together, so they may lie in one IOMMU
/// group.
///
/// # Errors
/// One is not bound, there twice, or in use.
pub(crate) fn backings<'n>(
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<Arc<dyn Backing>>, Error> {
    let addresses = names.map(address_of).collect::<Result<Vec<_>, _>>()?;
    let backings = Vfio::open_all(&addresses)?.into_iter();
    Ok(backings
        .map(|backing| Arc::new(backing) as Arc<dyn Backing>)
        .collect())
}

/// Opens real SSDs and brings them up.
pub(super) fn open(config: &Configuration, vfio: &VfioConfig) -> Result<Opened, Error> {
    let names = vfio.ssds.iter().map(|ssd| ssd.name.as_str());
    outside::open(config, vfio, backings(names)?)
}
