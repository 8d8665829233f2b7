//! Controllers that do not get ready, do not stop, or are none.

use std::sync::Arc;

use driver_vfio::{Controller, Disabled, Error, Step};
use nvme_wire::regs::{Cap, Cc, Crto, offset};

use crate::SHORT;
use crate::memory::Admin;
use crate::registers::{Fake, Script};

pub fn open(fake: &Arc<Fake>) -> Result<Controller<Disabled>, Error> {
    Controller::open(fake.clone(), SHORT)
}

/// Opens and enables, which ends in an error here: nobody completes Identify.
pub fn bring_up(fake: &Arc<Fake>) -> Error {
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
        assert_eq!(fake.admin_tail(), 0, "no doorbell before RDY");
    }
}

#[test]
fn a_ready_timeout_of_crto_counts_where_there_is_one_and_a_bogus_one_does_not() {
    let good = Script::good();
    let with_media = good.cap.with_to(1).with_crms(Cap::CRMS_WITH_MEDIA);
    let crwmt = |units| Crto::new().with_crwmt(units);
    for (cap, crto, units) in [
        (with_media, crwmt(4), 4),
        (with_media, crwmt(0), 1),
        (with_media, Crto::from_bits(u32::MAX), 1),
        (good.cap.with_to(1), crwmt(0xffff), 1),
    ] {
        let fake = Fake::new(Script {
            cap,
            crto,
            rises: false,
            ..good
        });
        let error = bring_up(&fake);
        let Error::NotInTime { waited, .. } = error else {
            panic!("{crto:?}: {error}");
        };
        assert!(waited >= SHORT.ready_unit * units, "{crto:?}");
    }
}

#[test]
fn an_enable_that_is_under_way_is_waited_for_before_it_is_undone() {
    let good = Script::good();
    // EN is set, RDY is not and never will be: EN is cleared all the same, at the end of the time.
    let fake = Fake::new(Script {
        cc: Cc::new().with_en(true),
        ready: Some(false),
        rises: false,
        ..good
    });
    let begin = std::time::Instant::now();
    open(&fake).unwrap();
    assert!(begin.elapsed() >= SHORT.ready_unit * 2, "CAP.TO is 2");
    assert!(!fake.is_enabled());

    // RDY is still set from a life before, and EN is clear: there is nothing to write.
    let fake = Fake::new(Script {
        ready: Some(true),
        ..good
    });
    let error = open(&fake).err().expect("RDY stays 1");
    assert!(matches!(error, Error::NotInTime { .. }), "{error}");
    assert!(fake.written(offset::CC).is_empty());
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
