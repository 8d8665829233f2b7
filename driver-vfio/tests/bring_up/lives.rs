//! How a controller's life ends and another begins: shutdown, drop, panic, reset, removal, fatal
//! errors, commands that never end.

use std::sync::Arc;

use driver_vfio::{Backing, Deadlines, DmaRegion, Error};
use nvme_model::{Configuration, Fault, Faults, Rule, When};
use nvme_wire::Sqe;
use nvme_wire::regs::{Cap, Cc};
use warpstore_simt::{Cell, Cells, Order};

use crate::faulty::{Faulty, Symptom};
use crate::memory::{Submitter, Words};
use crate::rig::{Rig, bring_up, bring_up_within, configuration, request, rings};
use crate::{PATIENT, SHORT};

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

#[test]
fn a_panic_leaves_the_controller_disabled() {
    let rig = Rig::new(configuration());
    let backing = rig.backing.clone();
    let panicked = std::thread::spawn(move || {
        let _controller = bring_up(backing, 1).unwrap();
        std::panic::resume_unwind(Box::new("a bug elsewhere"));
    });
    assert!(panicked.join().is_err());
    assert!(!rig.cc().en());
}

/// More lives than the emulated controller has room for mappings.
#[test]
fn a_thousand_resets_under_load_leave_nothing_behind() {
    let rig = Rig::new(configuration());
    for life in 0..1000 {
        let memory = rings();
        let data = Words::new(4096 / 8);
        let mut controller = rig.enable(1);
        let mapped: Vec<_> = [memory.cells().into(), data.cells().into()]
            .into_iter()
            .map(|region: DmaRegion| (rig.backing.map_dma(region).unwrap(), region.bytes()))
            .collect();
        let pair = controller
            .create_queue_pair(request(&memory, 1, 64))
            .unwrap();
        let submitter = Submitter::new(&pair);
        let prp = DmaRegion::from(data.cells()).address();
        for lba in 0..60 {
            submitter.submit(Sqe::read(1, lba, 0, prp, 0));
        }
        drop(controller);
        assert!(!rig.cc().en(), "life {life}");
        for (iova, bytes) in mapped {
            rig.backing.unmap_dma(iova, bytes).unwrap();
        }
    }
}

#[test]
fn a_command_that_never_ends_does_so_with_its_queue_and_others_work_on() {
    let rig = Rig::new(Configuration {
        faults: Faults {
            seed: 1,
            rules: vec![Rule {
                queue: Some(1),
                ..Rule::new(Fault::Drop, When::Always)
            }],
        },
        ..configuration()
    });
    let (stuck, well, data) = (rings(), rings(), Words::new(4096 / 8));
    let mut controller = rig.enable(2);
    for memory in [&stuck, &well, &data] {
        rig.backing.map_dma(memory.cells().into()).unwrap();
    }
    let prp = DmaRegion::from(data.cells()).address();
    let pair = controller.create_queue_pair(request(&stuck, 1, 4)).unwrap();
    Submitter::new(&pair).submit(Sqe::read(1, 0, 0, prp, 0));
    let pair = controller.create_queue_pair(request(&well, 2, 4)).unwrap();
    let other = Submitter::new(&pair);
    assert!(other.run(Sqe::read(1, 1, 0, prp, 0)).is_success());

    // No Abort: the end of the queue is the end of the command. What is in memory then stays.
    controller.delete_queue_pair(1).unwrap();
    data.fill(0xa5a5);
    stuck.fill(0xa5a5);
    assert!(other.run(Sqe::write(1, 1, 0, prp, 0)).is_success());
    for memory in [&data, &stuck] {
        let cells = memory.cells();
        let touched = (0..cells.len()).find(|&at| cells.at(at).load(Order::Relaxed) != 0xa5a5);
        assert_eq!(touched, None);
    }
    controller.shutdown().unwrap();
}

#[test]
fn an_admin_command_that_hangs_leaves_the_queues_of_others_alone() {
    let rig = Rig::new(configuration());
    let deaf = Arc::new(Faulty::new(rig.backing.clone(), Symptom::Deaf, u64::MAX));
    let deadlines = Deadlines {
        command: SHORT.command,
        ..PATIENT
    };
    let mut controller = bring_up_within(deaf.clone(), 1, deadlines).unwrap();
    let (memory, data) = (rings(), Words::new(4096 / 8));
    for memory in [&memory, &data] {
        rig.backing.map_dma(memory.cells().into()).unwrap();
    }
    let pair = controller
        .create_queue_pair(request(&memory, 1, 4))
        .unwrap();
    let submitter = Submitter::new(&pair);
    let read = Sqe::read(1, 1, 0, DmaRegion::from(data.cells()).address(), 0);
    assert!(submitter.run(read).is_success());
    deaf.begin();
    let error = controller.active_namespaces().expect_err("nobody hears");
    assert!(matches!(error, Error::NoCompletion { .. }), "{error}");
    assert!(submitter.run(read).is_success());
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
