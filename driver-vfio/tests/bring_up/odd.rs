//! Controllers whose answers are odd: old, hostile or wrong.

use driver_vfio::{Controller, Deadlines, Enabled, Error, NamespaceFault};
use nvme_wire::admin::{
    AdminOpcode, Cns, CreateCqCdw11, CreateSqCdw11, IdentifyCdw10, NumberOfQueues,
};
use nvme_wire::identify::{
    EntrySizes, IdentifyController, IdentifyNamespace, LbaFormat, NamespaceList, Oacs, PAGE_WORDS,
};
use nvme_wire::{Sqe, Status};

use crate::answering::{Answer, Answering};
use crate::memory::Admin;
use crate::rig::{request, rings};
use crate::{PATIENT, SHORT};

/// Answers of a controller with five possible namespaces, of which 3 and 5 are active.
pub fn usual(sqe: Sqe) -> Answer {
    match AdminOpcode(sqe.opcode()) {
        AdminOpcode::IDENTIFY => match Cns(IdentifyCdw10::from_bits(sqe.cdw10).cns()) {
            Cns::CONTROLLER => Answer::page(controller_page().to_words()),
            Cns::NAMESPACE => Answer::page(namespace_page(sqe.nsid()).to_words()),
            Cns::ACTIVE_NAMESPACES => {
                let mut list = NamespaceList::from_words([0; PAGE_WORDS]);
                list.nsid[..2].copy_from_slice(&[3, 5]);
                Answer::page(list.to_words())
            }
            _ => Answer::status(Status::INVALID_FIELD),
        },
        AdminOpcode::SET_FEATURES => Answer::result(sqe.cdw11),
        _ => Answer::status(Status::INVALID_OPCODE),
    }
}

pub fn controller_page() -> IdentifyController {
    let mut page = IdentifyController::from_words([0; PAGE_WORDS]);
    page.sqes = EntrySizes::from_bits(0x66);
    page.cqes = EntrySizes::from_bits(0x44);
    page.nn = 5;
    page
}

pub fn namespace_page(nsid: u32) -> IdentifyNamespace {
    let mut page = IdentifyNamespace::from_words([0; PAGE_WORDS]);
    page.nsze = if nsid == 3 || nsid == 5 { 100 } else { 0 };
    page.lbaf[0] = LbaFormat::new().with_lbads(12);
    page
}

pub fn is_identify(sqe: Sqe, cns: Cns) -> bool {
    let cdw10 = IdentifyCdw10::from_bits(sqe.cdw10);
    sqe.opcode() == AdminOpcode::IDENTIFY.0 && cdw10.cns() == cns.0
}

pub fn enable(rig: &Answering, io_queues: u16) -> Result<Controller<Enabled>, Error> {
    enable_within(rig, io_queues, PATIENT)
}

pub fn enable_within(
    rig: &Answering,
    io_queues: u16,
    deadlines: Deadlines,
) -> Result<Controller<Enabled>, Error> {
    let controller = Controller::open(rig.fake.clone(), deadlines)?;
    let memory = Admin::new(controller.admin_bytes());
    controller.enable(memory, io_queues)
}

#[test]
fn a_controller_that_cannot_list_namespaces_is_asked_for_each() {
    let rig = Answering::new(|sqe| {
        if is_identify(sqe, Cns::ACTIVE_NAMESPACES) {
            Answer::status(Status::INVALID_FIELD.with_dnr())
        } else {
            usual(sqe)
        }
    });
    let mut controller = enable(&rig, 1).unwrap();
    assert_eq!(controller.active_namespaces().unwrap(), [3, 5]);
    let error = controller
        .namespace(4)
        .expect_err("namespace 4 is not active");
    assert!(
        matches!(
            error,
            Error::Namespace {
                nsid: 4,
                fault: NamespaceFault::Inactive,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn another_refusal_of_the_list_is_reported() {
    let rig = Answering::new(|sqe| {
        if is_identify(sqe, Cns::ACTIVE_NAMESPACES) {
            Answer::status(Status::INTERNAL_ERROR)
        } else {
            usual(sqe)
        }
    });
    let error = enable(&rig, 1)
        .unwrap()
        .active_namespaces()
        .expect_err("it was refused");
    let text = error.to_string();
    assert!(
        text.contains("fake-0: IDENTIFY") && text.contains("Internal Error"),
        "{text}"
    );
}

#[test]
fn a_list_without_end_is_cut() {
    let rig = Answering::new(|sqe| {
        if is_identify(sqe, Cns::ACTIVE_NAMESPACES) {
            Answer::page([u64::MAX; PAGE_WORDS])
        } else {
            usual(sqe)
        }
    });
    assert_eq!(
        enable(&rig, 1).unwrap().active_namespaces().unwrap().len(),
        1024
    );
}

#[test]
fn a_controller_without_namespaces_lists_none() {
    let rig = Answering::new(|sqe| {
        if is_identify(sqe, Cns::ACTIVE_NAMESPACES) {
            Answer::page([0; PAGE_WORDS])
        } else {
            usual(sqe)
        }
    });
    let mut controller = enable(&rig, 1).unwrap();
    assert_eq!(controller.active_namespaces().unwrap(), [0; 0]);
}

#[test]
fn a_refused_number_of_queues_is_an_error() {
    let rig = Answering::new(|sqe| match AdminOpcode(sqe.opcode()) {
        AdminOpcode::SET_FEATURES => Answer::status(Status::INTERNAL_ERROR),
        _ => usual(sqe),
    });
    let error = enable(&rig, 4).err().expect("it was refused");
    assert!(
        matches!(
            error,
            Error::Refused {
                command: "SET_FEATURES",
                ..
            }
        ),
        "{error}"
    );
    assert!(!rig.fake.is_enabled());
    assert_eq!(rig.fake.n_mapped(), 0);
}

#[test]
fn shadow_doorbells_that_are_offered_and_refused_leave_the_registers() {
    let rig = Answering::new(|sqe| match AdminOpcode(sqe.opcode()) {
        AdminOpcode::IDENTIFY if is_identify(sqe, Cns::CONTROLLER) => {
            let mut page = controller_page();
            page.oacs_bits = Oacs::DOORBELL_BUFFER.bits();
            Answer::page(page.to_words())
        }
        AdminOpcode::CREATE_IO_CQ | AdminOpcode::CREATE_IO_SQ => Answer::status(Status::SUCCESS),
        _ => usual(sqe),
    });
    let mut controller = enable(&rig, 1).unwrap();
    let memory = Admin::new(controller.shadow_bytes());
    assert!(!controller.use_shadow_doorbells(memory).unwrap());
    let memory = rings();
    let pair = controller.create_queue_pair(request(&memory, 1, 64));
    assert_eq!(pair.unwrap().shadows, [None; 2]);
    let commands = rig.commands.lock().unwrap();
    let asked = |sqe: &Sqe| sqe.opcode() == AdminOpcode::DOORBELL_BUFFER_CONFIG.0;
    assert!(commands.iter().any(asked));
}

#[test]
fn queues_are_asked_for_before_they_are_created_and_interrupt_nobody() {
    let rig = Answering::new(|sqe| match AdminOpcode(sqe.opcode()) {
        AdminOpcode::CREATE_IO_CQ | AdminOpcode::CREATE_IO_SQ => Answer::status(Status::SUCCESS),
        _ => usual(sqe),
    });
    let mut controller = enable(&rig, 1).unwrap();
    let memory = rings();
    controller
        .create_queue_pair(request(&memory, 1, 64))
        .unwrap();
    let commands = rig.commands.lock().unwrap();
    let of = |opcode: AdminOpcode| commands.iter().position(|sqe| sqe.opcode() == opcode.0);
    let (set, cq, sq) = (
        of(AdminOpcode::SET_FEATURES).unwrap(),
        of(AdminOpcode::CREATE_IO_CQ).unwrap(),
        of(AdminOpcode::CREATE_IO_SQ).unwrap(),
    );
    assert!(set < cq && cq < sq);
    let created = CreateCqCdw11::from_bits(commands[cq].cdw11);
    assert!(created.pc() && !created.ien(), "contiguous and polled");
    assert!(CreateSqCdw11::from_bits(commands[sq].cdw11).pc());
}

#[test]
fn grants_count_from_zero_and_each_kind_for_itself() {
    for (nsq_z, ncq_z, asked, granted) in [
        (0, 0, 8, 1),
        (7, 2, 8, 3),
        (2, 7, 8, 3),
        (0xffff, 0xffff, 8, 8),
        (15, 15, 8, 8),
    ] {
        let grant = NumberOfQueues::new()
            .with_nsq_z(nsq_z)
            .with_ncq_z(ncq_z)
            .into_bits();
        let rig = Answering::new(move |sqe| match AdminOpcode(sqe.opcode()) {
            AdminOpcode::SET_FEATURES => Answer::result(grant),
            _ => usual(sqe),
        });
        assert_eq!(enable(&rig, asked).unwrap().n_io_queues(), granted);
    }
}

#[test]
fn the_forbidden_number_of_queues_is_never_asked_for() {
    for (asked, asked_z) in [(0, 0), (1, 0), (u16::MAX, 0xfffe)] {
        let rig = Answering::new(usual);
        enable(&rig, asked).unwrap();
        let commands = rig.commands.lock().unwrap();
        let set = commands
            .iter()
            .find(|sqe| sqe.opcode() == AdminOpcode::SET_FEATURES.0);
        let request = NumberOfQueues::from_bits(set.unwrap().cdw11);
        assert_eq!((request.nsq_z(), request.ncq_z()), (asked_z, asked_z));
    }
}

#[test]
fn entry_sizes_that_do_not_fit_are_refused() {
    for (sqes, cqes) in [(0x77, 0x44), (0x66, 0x55), (0x55, 0x44), (0, 0)] {
        let rig = Answering::new(move |sqe| {
            if !is_identify(sqe, Cns::CONTROLLER) {
                return usual(sqe);
            }
            let mut page = controller_page();
            page.sqes = EntrySizes::from_bits(sqes);
            page.cqes = EntrySizes::from_bits(cqes);
            Answer::page(page.to_words())
        });
        let error = enable(&rig, 1).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("64 and CQEs of 16")));
        assert!(!rig.fake.is_enabled());
    }
}

#[test]
fn a_shutdown_that_never_completes_ends_disabled() {
    let rig = Answering::new(usual);
    let deadlines = Deadlines {
        shutdown: SHORT.shutdown,
        ..PATIENT
    };
    let error = enable_within(&rig, 1, deadlines)
        .unwrap()
        .shutdown()
        .err()
        .expect("SHST stays 0");
    assert!(
        matches!(
            error,
            Error::NotInTime {
                step: driver_vfio::Step::Shutdown,
                ..
            }
        ),
        "{error}"
    );
    assert!(!rig.fake.is_enabled());
    assert_eq!(rig.fake.n_mapped(), 0);
}

#[test]
fn a_shutdown_may_take_as_long_as_the_controller_says() {
    const RTD3E_US: u32 = 200_000;
    let rig = Answering::new(|sqe| {
        if !is_identify(sqe, Cns::CONTROLLER) {
            return usual(sqe);
        }
        let mut page = controller_page();
        page.rtd3e = RTD3E_US;
        Answer::page(page.to_words())
    });
    let deadlines = Deadlines {
        shutdown: SHORT.shutdown,
        ..PATIENT
    };
    let controller = enable_within(&rig, 1, deadlines).unwrap();
    match controller.shutdown().err().expect("SHST stays 0") {
        Error::NotInTime { waited, .. } => assert!(waited.as_micros() >= RTD3E_US.into()),
        error => panic!("{error}"),
    }
}
