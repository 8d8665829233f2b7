//! Controllers that fail or vanish on the way.

use driver_vfio::{Controller, Deadlines, Error, Step};
use nvme_wire::regs::{Cc, Csts};

use crate::memory::Admin;
use crate::registers::{Fake, Script};
use crate::stubborn::{bring_up, open};
use crate::{PATIENT, SHORT};

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
fn ready_and_fatal_at_once_is_a_failure() {
    let good = Script::good();
    // From the look at CSTS that follows the enable on.
    let fake = Fake::new(Script {
        fatal_from: Some(accesses_until_enabled() - 1),
        ..good
    });
    let error = bring_up(&fake);
    let both = Csts::new().with_rdy(true).with_cfs(true);
    assert!(
        matches!(error, Error::Fatal { step: Step::Enable, csts, .. } if csts == both),
        "{error}"
    );
    assert_eq!(fake.admin_tail(), 0);
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
        let rung = u32::from(from >= accesses_until_enabled());
        assert_eq!(fake.admin_tail(), rung, "no doorbell after it was noticed");
    }
}

#[test]
fn a_short_absence_at_any_access_is_no_removal() {
    let deadlines = Deadlines {
        command: SHORT.command,
        ..PATIENT
    };
    for from in 0..accesses_until_enabled() + 2 {
        let fake = Fake::new(Script {
            gone_from: Some(from),
            gone_for: 3,
            ..Script::good()
        });
        let ended = Controller::open(fake.clone(), deadlines).and_then(|controller| {
            let memory = Admin::new(controller.admin_bytes());
            controller.enable(memory, 1)
        });
        let error = ended.err().expect("nobody completes Identify");
        assert!(
            matches!(error, Error::NoCompletion { .. }),
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
