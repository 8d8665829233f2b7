//! The suite over the emulated controller of this repository.

use std::sync::Arc;

use driver_vfio::Model;
use nvme_model::{Configuration, Controller, Media, Serving};
use warpstore_qemu_tests::memory::Words;
use warpstore_qemu_tests::site::{Expected, Site};
use warpstore_qemu_tests::{ours, suite};

#[test]
fn the_emulated_controller_conforms() {
    conforms(false);
}

#[test]
fn it_conforms_by_shadow_doorbells() {
    conforms(true);
}

fn conforms(shadow_doorbells: bool) {
    let configuration = Configuration {
        shadow_doorbells,
        ..ours::configuration("WS-MODEL")
    };
    let expected = Expected::of_ours(&configuration);
    let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
    let model = Arc::new(Controller::new(configuration, media, None, None).unwrap());
    let _serving = Serving::start(vec![model.clone()], 1).unwrap();
    suite::run(&Site {
        backing: Arc::new(Model::new(model)),
        allocate: Box::new(|bytes| Words::new(bytes as usize / 8)),
        expected,
        shadow_doorbells,
    });
}
