//! The emulated controller of this repository, as the suite runs over it.

use nvme_model::{Configuration, Faults, Namespace, Profile};

use crate::site::Expected;

/// A controller with a namespace of each block size, doorbells apart, and a limit of transfers.
pub fn configuration(serial: &str) -> Configuration {
    let namespace = |lbas, lba_bytes| Namespace { lbas, lba_bytes };
    Configuration {
        serial: serial.into(),
        model: "conformance".into(),
        namespaces: vec![namespace(4096, 512), namespace(1024, 4096)],
        mdts: 5,
        queue_entries: 64,
        dstrd: 2,
        to: 4,
        queues: 3,
        profile: Profile::IDEAL,
        faults: Faults::none(),
        volatile_write_cache: true,
        shadow_doorbells: false,
    }
}

impl Expected {
    /// What a controller of this [`configuration`] should say.
    pub fn of_ours(configuration: &Configuration) -> Self {
        let namespaces = (1..).zip(&configuration.namespaces);
        Self {
            serial: configuration.serial.clone(),
            max_transfer: 4096 << configuration.mdts,
            limits_transfers: true,
            queues: configuration.queues,
            namespaces: namespaces
                .map(|(nsid, of)| (nsid, of.lbas, of.lba_bytes.ilog2() as u8))
                .collect(),
        }
    }
}
