//! The suite over the emulated controller of this repository.

use std::sync::Arc;

use driver_vfio::Model;
use nvme_model::{Configuration, Controller, Faults, Media, Namespace, Profile, Serving};
use warpstore_qemu_tests::memory::Words;
use warpstore_qemu_tests::site::{Expected, Site};
use warpstore_qemu_tests::suite;

#[test]
fn the_emulated_controller_conforms() {
    let configuration = Configuration {
        serial: "WS-MODEL".into(),
        model: "conformance".into(),
        namespaces: vec![
            Namespace {
                lbas: 4096,
                lba_bytes: 512,
            },
            Namespace {
                lbas: 1024,
                lba_bytes: 4096,
            },
        ],
        mdts: 5,
        queue_entries: 64,
        dstrd: 2,
        to: 4,
        queues: 3,
        profile: Profile::IDEAL,
        faults: Faults::none(),
        volatile_write_cache: true,
    };
    let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
    let model = Arc::new(Controller::new(configuration, media, None, None).unwrap());
    let _serving = Serving::start(vec![model.clone()], 1).unwrap();
    suite::run(&Site {
        backing: Arc::new(Model::new(model)),
        allocate: Box::new(|bytes| Words::new(bytes as usize / 8)),
        expected: Expected {
            serial: "WS-MODEL".into(),
            max_transfer: 4096 << 5,
            limits_transfers: true,
            queues: 3,
            namespaces: vec![(1, 4096, 9), (2, 1024, 12)],
        },
    });
}
