//! The driver against QEMU's controller, without a guest.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use driver_vfio::{
    Abort, Access, BarOffset, Controller, Deadlines, Error, Iova, NamespaceFault, Registers,
};
use nvme_wire::admin::AdminOpcode;
use nvme_wire::identify::PAGE_WORDS;
use nvme_wire::regs::doorbell_offset;
use nvme_wire::{Sqe, Status};
use warpstore_qemu_tests::breach::{admin_opcodes, breaches};
use warpstore_qemu_tests::memory::Admin;
use warpstore_qemu_tests::qemu;
use warpstore_qemu_tests::qtest::Qtest;
use warpstore_qemu_tests::setup::{Fault, Namespace, Setup};
use warpstore_qemu_tests::site::{Expected, Site};
use warpstore_qemu_tests::suite;

/// Admin commands that the driver has a use for. No Format, no Sanitize, no firmware.
const USED: [AdminOpcode; 8] = [
    AdminOpcode::DELETE_IO_SQ,
    AdminOpcode::CREATE_IO_SQ,
    AdminOpcode::DELETE_IO_CQ,
    AdminOpcode::CREATE_IO_CQ,
    AdminOpcode::IDENTIFY,
    AdminOpcode::ABORT,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::DOORBELL_BUFFER_CONFIG,
];

struct Rig {
    machine: Arc<Qtest>,
    site: Site,
}

impl Rig {
    fn new(program: &Path, setup: &Setup) -> Self {
        let machine = Arc::new(Qtest::start(program, setup).unwrap());
        let site = Site {
            backing: machine.clone(),
            allocate: {
                let machine = machine.clone();
                Box::new(move |bytes| machine.allocate(bytes))
            },
            expected: Expected::of(setup),
            shadow_doorbells: false,
        };
        Self { machine, site }
    }
}

/// Runs the suite, and asks QEMU what it thought of it.
fn conforms(setup: &Setup) {
    conforms_by(setup, false);
}

/// The same, with doorbells in memory or without.
fn conforms_by(setup: &Setup, shadow_doorbells: bool) {
    let Some(program) = qemu::find() else {
        return;
    };
    let mut rig = Rig::new(&program, setup);
    rig.site.shadow_doorbells = shadow_doorbells;
    suite::run(&rig.site);
    let log = rig.machine.log();
    assert_eq!(breaches(&log), [""; 0]);
    let opcodes = admin_opcodes(&log);
    assert!(!opcodes.is_empty(), "QEMU logs admin commands");
    let foreign = opcodes
        .iter()
        .find(|opcode| !USED.contains(&AdminOpcode(**opcode)));
    assert_eq!(foreign, None, "an admin command that nobody needs");
    let asked = opcodes.contains(&AdminOpcode::DOORBELL_BUFFER_CONFIG.0);
    assert_eq!(asked, shadow_doorbells);
    assert_eq!(rig.machine.n_mapped(), 0, "mappings are taken back");
}

#[test]
fn one_namespace_of_512_byte_blocks() {
    conforms(&Setup::default());
}

#[test]
fn one_namespace_of_4096_byte_blocks() {
    conforms(&Setup {
        namespaces: vec![Namespace::new(1, 16 << 20, 12)],
        ..Setup::default()
    });
}

#[test]
fn two_namespaces_with_a_gap_and_different_blocks() {
    conforms(&Setup {
        namespaces: vec![
            Namespace::new(2, 8 << 20, 12),
            Namespace::new(7, 8 << 20, 9),
        ],
        ..Setup::default()
    });
}

#[test]
fn transfers_of_two_pages_at_most() {
    conforms(&Setup {
        mdts: 1,
        ..Setup::default()
    });
}

#[test]
fn transfers_without_a_limit() {
    conforms(&Setup {
        mdts: 0,
        ..Setup::default()
    });
}

#[test]
fn sixty_four_queue_pairs() {
    conforms(&Setup {
        queues: 64,
        ..Setup::default()
    });
}

/// QEMU takes doorbells from memory from then on, those of block I/O and of submitters behind a proxy, and
/// is told by registers when it asks to be.
#[test]
fn shadow_doorbells_ring() {
    for queues in [3, 64] {
        let setup = Setup {
            queues,
            ..Setup::default()
        };
        conforms_by(&setup, true);
    }
}

#[test]
fn errors_of_the_medium_reach_the_command_that_met_them() {
    let Some(program) = qemu::find() else {
        return;
    };
    let fault = |operation, sector| Fault { operation, sector };
    let mut namespace = Namespace::new(1, 1 << 20, 9);
    namespace.faults = vec![fault("read", 3), fault("write", 5)];
    let setup = Setup {
        namespaces: vec![namespace],
        ..Setup::default()
    };
    let rig = Rig::new(&program, &setup);
    let mut controller = rig.site.enable(1);
    let (_, submitter, _rings) = rig.site.pair(&mut controller, 1, 16);
    let data = rig.site.buffer(8 * 512);
    let at = |lba: u64| data.iova.plus(lba * 512).0;
    let commands = |make: fn(u32, u64, u16, u64, u64) -> Sqe| -> Vec<Sqe> {
        (0..8).map(|lba| make(1, lba, 0, at(lba), 0)).collect()
    };
    let expect = |found: Vec<Status>, bad: usize, status: Status| {
        for (lba, found) in found.iter().enumerate() {
            let wanted = if lba == bad { status } else { Status::SUCCESS };
            assert_eq!(found.code(), wanted, "block {lba}: {}", found.name());
        }
    };
    // Again and again: a failed command leaves the queue as it was.
    for _ in 0..3 {
        let read = submitter.run_all(&commands(Sqe::read));
        expect(read, 3, Status::UNRECOVERED_READ_ERROR);
        let written = submitter.run_all(&commands(Sqe::write));
        expect(written, 5, Status::WRITE_FAULT);
    }
    controller.shutdown().unwrap();
}

/// Block I/O names the command that failed by its blocks, and goes on.
#[test]
fn errors_of_the_medium_end_block_io_with_lba_and_status() {
    let Some(program) = qemu::find() else {
        return;
    };
    let fault = |operation, sector| Fault { operation, sector };
    let mut namespace = Namespace::new(1, 4 << 20, 9);
    namespace.faults = vec![fault("read", 700), fault("write", 300)];
    let setup = Setup {
        namespaces: vec![namespace],
        ..Setup::default()
    };
    let rig = Rig::new(&program, &setup);
    let mut controller = rig.site.enable(1);
    let mut io = rig.site.block_io(&mut controller, 1, Access::ReadWrite);
    let mut bytes = vec![7; 1 << 20];
    for (result, lba, code) in [
        (io.read(0, &mut bytes), 512, Status::UNRECOVERED_READ_ERROR),
        (io.write(0, &bytes), 256, Status::WRITE_FAULT),
    ] {
        let error = result.expect_err("a sector is bad");
        let Error::Io { range, status, .. } = error else {
            panic!("{error}")
        };
        // Commands of 128 KiB, of which this is the one that met the sector.
        assert_eq!((range.lba, range.blocks), (lba, 256));
        assert_eq!(status.code(), code);
    }
    io.write(701, &bytes[..512]).unwrap();
    io.read(701, &mut bytes[..512]).unwrap();
    drop(io);
    controller.shutdown().unwrap();
}

/// QEMU takes the Abort, and says that it has not aborted the command.
#[test]
fn a_command_of_block_io_that_is_late_is_aborted() {
    let Some(program) = qemu::find() else {
        return;
    };
    let mut namespace = Namespace::new(1, 1 << 20, 9);
    namespace.latency_ns = 4_000_000_000;
    let setup = Setup {
        namespaces: vec![namespace],
        ..Setup::default()
    };
    let rig = Rig::new(&program, &setup);
    let deadlines = Deadlines {
        command: Duration::from_secs(1),
        ..Deadlines::SSD
    };
    let controller = Controller::open(rig.machine.clone(), deadlines).unwrap();
    let memory = Admin::sharing(rig.machine.allocate(controller.admin_bytes()));
    let mut controller = controller.enable(memory, 1).unwrap();
    let mut io = rig.site.block_io(&mut controller, 1, Access::ReadOnly);
    let error = io.read(0, &mut [0; 512]).expect_err("QEMU takes longer");
    assert!(
        matches!(
            error,
            Error::IoLate {
                abort: Abort::NotDone,
                ..
            }
        ),
        "{error}"
    );
    drop(io);
    drop(controller);
    let log = rig.machine.log();
    assert_eq!(breaches(&log), [""; 0]);
    assert!(admin_opcodes(&log).contains(&AdminOpcode::ABORT.0));
    assert_eq!(rig.machine.n_mapped(), 0, "mappings are taken back");
}

/// The file below the controller is read and written by nobody's driver.
#[test]
fn blocks_are_where_the_file_has_them() {
    let Some(program) = qemu::find() else {
        return;
    };
    let setup = Setup {
        namespaces: vec![Namespace::new(1, 1 << 20, 12)],
        ..Setup::default()
    };
    let rig = Rig::new(&program, &setup);
    let file = File::options()
        .read(true)
        .write(true)
        .open(rig.machine.image(1))
        .unwrap();
    let page: Vec<u8> = (0..PAGE_WORDS as u64)
        .flat_map(|index| suite::pattern(1, 9, index, 0).to_le_bytes())
        .collect();
    file.write_all_at(&page, 9 * 4096).unwrap();

    let mut controller = rig.site.enable(1);
    let (_, submitter, _rings) = rig.site.pair(&mut controller, 1, 4);
    let data = rig.site.buffer(4096);
    assert!(
        submitter
            .run(Sqe::read(1, 9, 0, data.iova.0, 0))
            .is_success()
    );
    for index in 0..PAGE_WORDS as u64 {
        assert_eq!(data.get(index), suite::pattern(1, 9, index, 0));
        data.set(index, suite::pattern(1, 11, index, 1));
    }
    assert!(
        submitter
            .run(Sqe::write(1, 11, 0, data.iova.0, 0))
            .is_success()
    );
    assert!(submitter.run(Sqe::flush(1)).is_success());
    let mut found = vec![0; 4096];
    file.read_exact_at(&mut found, 11 * 4096).unwrap();
    let expected: Vec<u8> = (0..PAGE_WORDS as u64)
        .flat_map(|index| suite::pattern(1, 11, index, 1).to_le_bytes())
        .collect();
    assert_eq!(found, expected);
    controller.shutdown().unwrap();
}

/// A ring that the controller cannot fetch from makes it give up (CSTS.CFS).
#[test]
fn a_fatal_status_is_an_error_and_the_next_life_is_well() {
    let Some(program) = qemu::find() else {
        return;
    };
    let rig = Rig::new(&program, &Setup::default());
    let mut controller = rig.site.enable(1);
    let (mut request, _memory) = rig.site.request(1, 4);
    request.sq.iova = Iova(1 << 40);
    controller.create_queue_pair(request).unwrap();
    let doorbell = BarOffset(doorbell_offset(1, false, controller.cap().dstrd()));
    rig.machine.write32(doorbell, 1);
    let error = controller.shutdown().err().expect("the controller gave up");
    assert!(matches!(error, Error::Fatal { .. }), "{error}");
    suite::run(&rig.site);
}

#[test]
fn blocks_with_metadata_are_refused() {
    for (properties, expected) in [
        (",ms=8", NamespaceFault::Metadata { ms: 8 }),
        (",ms=8,mset=1", NamespaceFault::Metadata { ms: 8 }),
        (",ms=8,pi=1", NamespaceFault::Metadata { ms: 8 }),
    ] {
        let Some(rig) = with_properties(properties) else {
            return;
        };
        let mut controller = rig.site.enable(1);
        let error = controller.namespace(1).expect_err("it has metadata");
        let Error::Namespace { fault, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(fault, expected, "{properties}");
    }
}

/// QEMU would take reads of it, and refuse most writes.
#[test]
fn a_zoned_namespace_is_refused() {
    let Some(rig) = with_properties(",zoned=true,zoned.zone_size=1M") else {
        return;
    };
    let mut controller = rig.site.enable(1);
    let error = controller.namespace(1).expect_err("it is zoned");
    let Error::Namespace { fault, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(fault, NamespaceFault::CommandSet(2));
}

fn with_properties(properties: &'static str) -> Option<Rig> {
    let mut namespace = Namespace::new(1, 16 << 20, 9);
    namespace.properties = properties;
    let setup = Setup {
        namespaces: vec![namespace],
        ..Setup::default()
    };
    Some(Rig::new(&qemu::find()?, &setup))
}

#[test]
fn a_controller_that_vanishes_is_an_error_in_bounded_time() {
    let Some(program) = qemu::find() else {
        return;
    };
    let rig = Rig::new(&program, &Setup::default());
    let controller = rig.site.enable(1);
    rig.machine.kill();
    let error = controller.shutdown().err().expect("nobody is there");
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    let error = rig.site.try_enable(1).err().expect("nobody is there");
    assert!(matches!(error, Error::Removed { .. }), "{error}");
}

/// What `conforms` asserts can fail.
#[test]
fn a_breach_of_the_protocol_is_noticed() {
    let Some(program) = qemu::find() else {
        return;
    };
    let rig = Rig::new(&program, &Setup::default());
    let controller = rig.site.enable(1);
    let no_queue = BarOffset(doorbell_offset(1, false, controller.cap().dstrd()));
    rig.machine.write32(no_queue, 1);
    assert_eq!(breaches(&rig.machine.log()).len(), 1);
    controller.shutdown().unwrap();
}
