//! Real SSDs, opened through VFIO.

use std::sync::Arc;

use driver_vfio::Backing;
use driver_vfio::vfio::{Vfio, address_of};

use super::{Opened, outside};
use crate::Error;
use crate::config::{Configuration, VfioConfig};

/// Opens real SSDs and brings them up.
pub(super) fn open(config: &Configuration, vfio: &VfioConfig) -> Result<Opened, Error> {
    let addresses = vfio
        .ssds
        .iter()
        .map(|ssd| address_of(&ssd.name))
        .collect::<Result<Vec<_>, _>>()?;
    let backings = Vfio::open_all(&addresses)?
        .into_iter()
        .map(|backing| Arc::new(backing) as Arc<dyn Backing>)
        .collect();
    outside::open(config, vfio, backings)
}
