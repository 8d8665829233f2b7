//! Controllers that do not get ready, are not there, or fail on the way.

use std::sync::Arc;

use driver_vfio::{Controller, Disabled, Error, Step};
use nvme_wire::regs::{Cap, Cc, Csts, offset};

use crate::memory::Admin;
use crate::registers::{Fake, Script};
use crate::{PATIENT, SHORT};

fn open(fake: &Arc<Fake>) -> Result<Controller<Disabled>, Error> {
    Controller::open(fake.clone(), SHORT)
}

/// Opens and enables, which ends in an error here: nobody completes Identify.
fn bring_up(fake: &Arc<Fake>) -> Error {
    let enabled = open(fake).and_then(|controller| {
        let memory = Admin::new(controller.admin_bytes());
        controller.enable(memory, 4)
    });
    match enabled {
        Ok(_) => panic!("a controller without an admin queue was identified"),
        Err(error) => error,
    }
}

#[test]
fn a_command_that_nobody_completes_ends_and_the_controller_is_disabled() {
    let fake = Fake::new(Script::good());
    let error = bring_up(&fake);
    assert!(
        matches!(
            error,
            Error::NoCompletion {
                command: "IDENTIFY",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().starts_with("fake-0: IDENTIFY"), "{error}");
    assert!(!fake.is_enabled());
    assert_eq!(
        fake.n_mapped(),
        0,
        "a stopped controller gives its memory back"
    );
}

#[test]
fn registers_are_programmed_before_the_enable() {
    let fake = Fake::new(Script::good());
    bring_up(&fake);
    assert_eq!(fake.written(offset::AQA), [31 | 31 << 16]);
    let asq = fake.written(offset::ASQ)[0];
    assert_eq!(
        (asq % 4096, fake.written(offset::ACQ)),
        (0, vec![asq + 4096])
    );
    let cc = Cc::new().with_iosqes(6).with_iocqes(4);
    let written = [cc, cc.with_en(true), cc].map(|cc| u64::from(cc.into_bits()));
    assert_eq!(fake.written(offset::CC), written);
}

#[test]
fn pages_are_as_large_as_mpsmin_says_and_not_larger_than_64_kib() {
    let good = Script::good();
    let fake = Fake::new(Script {
        cap: good.cap.with_mpsmin(4).with_mpsmax(4),
        ..good
    });
    bring_up(&fake);
    let asq = fake.written(offset::ASQ)[0];
    assert_eq!(
        (asq % 65536, fake.written(offset::ACQ)),
        (0, vec![asq + 65536])
    );
    assert_eq!(Cc::from_bits(fake.written(offset::CC)[0] as u32).mps(), 4);
    let fake = Fake::new(Script {
        cap: good.cap.with_mpsmin(5),
        ..good
    });
    assert!(matches!(bring_up(&fake), Error::Unusable { .. }));
}

#[test]
fn a_controller_that_never_gets_ready_is_given_up_for_every_timeout() {
    for to in [0, 1, 3] {
        let good = Script::good();
        let fake = Fake::new(Script {
            cap: good.cap.with_to(to),
            rises: false,
            ..good
        });
        let error = bring_up(&fake);
        let Error::NotInTime {
            step: Step::Enable,
            waited,
            ..
        } = error
        else {
            panic!("CAP.TO {to}: {error}");
        };
        assert!(
            waited >= SHORT.ready_unit * u32::from(to.max(1)),
            "CAP.TO {to}: {waited:?}"
        );
        assert!(!fake.is_enabled());
    }
}

#[test]
fn a_controller_that_never_stops_keeps_the_memory() {
    let good = Script::good();
    let fake = Fake::new(Script {
        falls: false,
        ..good
    });
    bring_up(&fake);
    assert!(!fake.is_enabled(), "EN is cleared nevertheless");
    assert_eq!(fake.n_mapped(), 1, "it may still write there");

    let fake = Fake::new(Script {
        falls: false,
        cc: Cc::new().with_en(true),
        ..good
    });
    let error = open(&fake).err().expect("RDY stays 1");
    assert!(
        matches!(
            error,
            Error::NotInTime {
                step: Step::Disable,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_enabled_controller_is_disabled_and_a_disabled_one_left_alone() {
    let fake = Fake::new(Script::good());
    open(&fake).unwrap();
    assert!(fake.written(offset::CC).is_empty());

    let cc = Cc::new().with_en(true).with_iosqes(6).with_iocqes(4);
    let fake = Fake::new(Script {
        cc,
        ..Script::good()
    });
    open(&fake).unwrap();
    assert_eq!(
        fake.written(offset::CC),
        [u64::from(cc.with_en(false).into_bits())]
    );
}

#[test]
fn what_is_no_controller_is_refused() {
    let good = Script::good();
    for cap in [
        Cap::new(),
        good.cap.with_mqes_z(0),
        good.cap.with_css(Cap::CSS_ADMIN_ONLY),
    ] {
        let fake = Fake::new(Script { cap, ..good });
        let error = bring_up(&fake);
        assert!(
            matches!(error, Error::Unusable { cap: seen, .. } if seen == cap),
            "{error}"
        );
        assert!(
            fake.written(offset::CC).is_empty(),
            "nothing is written to what is unknown"
        );
    }
}

#[test]
fn queue_sizes_do_not_wrap() {
    let good = Script::good();
    for (mqes_z, most) in [(1, 2), (1023, 1024), (0xffff, 4096)] {
        let fake = Fake::new(Script {
            cap: good.cap.with_mqes_z(mqes_z),
            ..good
        });
        assert_eq!(open(&fake).unwrap().max_entries(), most);
    }
}

/// Accesses of a whole bring-up before the wait for the first completion.
fn accesses_until_enabled() -> u64 {
    let fake = Fake::new(Script {
        rises: false,
        ..Script::good()
    });
    let controller = open(&fake).unwrap();
    let opened = fake.accesses();
    drop(controller);
    // Configure: CSTS, CC, CAP, AQA, ASQ, ACQ; enable: CC, CSTS.
    opened + 8
}

#[test]
fn a_fatal_status_is_noticed_at_every_step() {
    for from in 0..accesses_until_enabled() {
        let fake = Fake::new(Script {
            fatal_from: Some(from),
            ..Script::good()
        });
        let error = bring_up(&fake);
        assert!(
            matches!(error, Error::Fatal { .. }),
            "from access {from}: {error}"
        );
        assert!(!fake.is_enabled());
        assert_eq!(fake.n_mapped(), 0);
    }
}

#[test]
fn a_fatal_status_during_a_command_is_noticed() {
    let from = accesses_until_enabled() + 1;
    let fake = Fake::new(Script {
        fatal_from: Some(from),
        ..Script::good()
    });
    let error = bring_up(&fake);
    let fatal = Csts::new().with_rdy(true).with_cfs(true);
    assert!(
        matches!(error, Error::Fatal { step: Step::Command, csts, .. } if csts == fatal),
        "{error}"
    );
}

#[test]
fn removal_is_noticed_at_every_step() {
    for from in 0..accesses_until_enabled() + 2 {
        let fake = Fake::new(Script {
            gone_from: Some(from),
            ..Script::good()
        });
        let error = bring_up(&fake);
        assert!(
            matches!(error, Error::Removed { .. }),
            "from access {from}: {error}"
        );
    }
}

#[test]
fn a_short_absence_while_the_controller_is_reset_is_no_removal() {
    let cc = Cc::new().with_en(true);
    let good = Script::good();
    let undisturbed = Fake::new(Script { cc, ..good });
    open(&undisturbed).unwrap();
    // The last access is the CSTS that shows RDY = 0.
    let from = undisturbed.accesses() - 1;
    let fake = Fake::new(Script {
        cc,
        gone_from: Some(from),
        gone_for: 20,
        ..good
    });
    assert!(Controller::open(fake, PATIENT).is_ok());
}

#[test]
fn memory_that_does_not_do_is_refused_before_the_controller_sees_it() {
    let fake = Fake::new(Script::good());
    let controller = open(&fake).unwrap();
    let memory = Admin::new(controller.admin_bytes() - 8);
    let error = controller
        .enable(memory, 1)
        .err()
        .expect("the memory is too small");
    assert!(
        matches!(
            error,
            Error::Memory {
                needed: 12288,
                found: 12280,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(fake.n_mapped(), 0);
}
