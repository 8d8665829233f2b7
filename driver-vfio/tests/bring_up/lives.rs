//! How a controller's life ends and another begins: shutdown, drop, panic, reset, removal, fatal
//! errors, commands that never end.

use std::sync::Arc;

use driver_vfio::{Backing, DmaRegion, Error};
use nvme_wire::regs::{Cap, Cc};

use crate::faulty::{Faulty, Symptom};
use crate::rig::{Rig, bring_up, configuration, request, rings};

#[test]
fn a_shut_down_controller_is_disabled_and_comes_up_again() {
    let memory = rings();
    let rig = Rig::new(configuration());
    for _ in 0..3 {
        let mut controller = rig.enable(2);
        let len = DmaRegion::from(memory.cells()).bytes();
        let iova = rig.backing.map_dma(memory.cells().into()).unwrap();
        memory.zero();
        controller
            .create_queue_pair(request(&memory, 2, 64))
            .unwrap();
        controller.shutdown().unwrap();
        assert!(!rig.cc().en());
        assert_eq!(rig.cc().shn(), Cc::SHN_NORMAL, "caches were to be written");
        rig.backing.unmap_dma(iova, len).unwrap();
    }
}

#[test]
fn a_dropped_controller_is_disabled() {
    let rig = Rig::new(configuration());
    let controller = rig.enable(1);
    assert!(rig.cc().en());
    drop(controller);
    assert!(!rig.cc().en());
}

/// Bring-up and shutdown over `backing`.
fn live(backing: Arc<dyn Backing>) -> Result<(), Error> {
    let controller = bring_up(backing, 1)?;
    controller.shutdown().map(drop)
}

/// Register accesses of a whole life.
fn accesses_of_a_life() -> u64 {
    let rig = Rig::new(configuration());
    let counting = Arc::new(Faulty::new(rig.backing.clone(), Symptom::Gone, u64::MAX));
    live(counting.clone()).unwrap();
    counting.accesses()
}

#[test]
fn removal_at_any_access_is_a_typed_error() {
    for from in 0..accesses_of_a_life() - 1 {
        let rig = Rig::new(configuration());
        let faulty = Faulty::new(rig.backing.clone(), Symptom::Gone, from);
        let error = live(Arc::new(faulty)).expect_err("the controller was gone");
        assert!(
            matches!(error, Error::Removed { .. }),
            "from access {from}: {error}"
        );
    }
}

#[test]
fn a_fatal_status_at_any_access_is_a_typed_error_and_a_reset_ends_it() {
    let mut fatal = 0;
    for from in 0..accesses_of_a_life() {
        let rig = Rig::new(configuration());
        let faulty = Faulty::new(rig.backing.clone(), Symptom::Fatal, from);
        match live(Arc::new(faulty)) {
            // First seen by the reset that ends it.
            Ok(()) => {}
            Err(Error::Fatal { .. }) => fatal += 1,
            Err(error) => panic!("from access {from}: {error}"),
        }
        assert!(!rig.cc().en());
        live(rig.backing.clone()).unwrap();
    }
    assert!(fatal > 8, "{fatal} accesses");
}

#[test]
fn capabilities_that_change_with_cc_are_read_again() {
    let rig = Rig::new(configuration());
    let reread = Faulty::new(rig.backing.clone(), Symptom::LosesNvm, 5);
    let error = live(Arc::new(reread)).expect_err("no command set is left");
    assert!(
        matches!(error, Error::Unusable { cap, .. } if cap.css() == Cap::CSS_ADMIN_ONLY),
        "{error}"
    );
}
