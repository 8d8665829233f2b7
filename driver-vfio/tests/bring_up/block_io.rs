//! Block I/O against the emulated controller, well and with injected faults.

use std::time::Duration;

use driver_vfio::{
    Abort, Access, Backing, BlockIo, BlockRange, Controller, Deadlines, Enabled, Error,
};
use nvme_model::{Commands, Configuration, Fault, Faults, Namespace, Rule, When};
use nvme_wire::Status;

use crate::SHORT;
use crate::memory::Admin;
use crate::rig::{Rig, bring_up_within, configuration, request, rings};

/// Namespaces of 512 and of 4096 bytes a block, with room for several rounds of commands.
fn large() -> Configuration {
    let namespace = |lbas, lba_bytes| Namespace { lbas, lba_bytes };
    Configuration {
        namespaces: vec![namespace(8192, 512), namespace(1024, 4096)],
        ..configuration()
    }
}

fn with_fault(fault: Fault, lba: u64, commands: Commands) -> Configuration {
    let mut rule = Rule::new(fault, When::Always);
    rule.lbas = Some(lba..=lba);
    rule.commands = commands;
    Configuration {
        faults: Faults {
            seed: 1,
            rules: vec![rule],
        },
        ..large()
    }
}

fn open(
    controller: &mut Controller<Enabled>,
    nsid: u32,
    access: Access,
) -> BlockIo<&mut Controller<Enabled>> {
    let memory = Admin::new(controller.block_io_bytes());
    BlockIo::open(controller, nsid, access, memory).unwrap()
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let byte = |index: usize| (index / 512 * 31 + index * 7) as u8 ^ seed;
    (0..len).map(byte).collect()
}

#[test]
fn any_number_of_blocks_goes_there_and_back_and_nothing_else_changes() {
    for (mdts, queue_entries) in [(5, 64), (1, 64), (0, 64), (5, 2), (0, 4)] {
        let rig = Rig::new(Configuration {
            mdts,
            queue_entries,
            ..large()
        });
        let mut controller = rig.enable(2);
        for nsid in [1, 2] {
            let mut io = open(&mut controller, nsid, Access::ReadWrite);
            let block = 1 << io.namespace().block_shift;
            let blocks = io.namespace().blocks as usize;
            let mut expected = bytes(blocks * block, 0);
            io.write(0, &expected).unwrap();
            let parts = [(0, 1), (blocks - 1, 1), (5, 3), (7, 17), (100, 255), (3, 0)];
            for (seed, (lba, count)) in (1..).zip(parts) {
                let new = bytes(count * block, seed);
                io.write(lba as u64, &new).unwrap();
                expected[lba * block..][..new.len()].copy_from_slice(&new);
                let mut found = vec![0; new.len()];
                io.read(lba as u64, &mut found).unwrap();
                assert!(found == new, "{count} blocks at {lba} of {nsid}");
            }
            io.flush().unwrap();
            let mut found = vec![0; expected.len()];
            io.read(0, &mut found).unwrap();
            assert!(found == expected, "MDTS {mdts}, namespace {nsid}");
        }
        controller.shutdown().unwrap();
    }
}

#[test]
fn what_was_opened_for_reading_is_not_written() {
    let rig = Rig::new(large());
    let mut controller = rig.enable(1);
    let mut io = open(&mut controller, 1, Access::ReadOnly);
    for refused in [io.write(0, &[1; 512]), io.flush()] {
        assert!(
            matches!(refused, Err(Error::ReadOnly { nsid: 1, .. })),
            "{refused:?}"
        );
    }
    let mut found = [1; 512];
    io.read(0, &mut found).unwrap();
    assert_eq!(found, [0; 512]);
}

#[test]
fn bytes_that_are_no_blocks_of_the_namespace_are_refused() {
    let rig = Rig::new(large());
    let mut controller = rig.enable(1);
    let mut io = open(&mut controller, 2, Access::ReadWrite);
    for (at, len) in [
        (0, 512),
        (0, 4097),
        (1023, 8192),
        (1024, 4096),
        (u64::MAX, 4096),
    ] {
        let error = io.write(at, &vec![0; len]).expect_err("no such blocks");
        let Error::Range {
            lba, blocks: 1024, ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(lba, at);
        assert!(matches!(
            io.read(at, &mut vec![0; len]),
            Err(Error::Range { .. })
        ));
    }
}

#[test]
fn a_failed_command_is_told_with_its_blocks_and_status_and_the_rest_goes_on() {
    let status = Status::UNRECOVERED_READ_ERROR;
    let rig = Rig::new(with_fault(Fault::Status(status), 777, Commands::Reads));
    let mut controller = rig.enable(1);
    let mut io = open(&mut controller, 1, Access::ReadWrite);
    let written = bytes(8192 * 512, 3);
    io.write(0, &written).unwrap();
    for _ in 0..3 {
        let mut found = vec![0; written.len()];
        let error = io.read(0, &mut found).expect_err("a block is bad");
        let text = error.to_string();
        let Error::Io {
            command: "READ",
            range,
            status: told,
            ..
        } = error
        else {
            panic!("{text}")
        };
        // Commands of 128 KiB.
        let expected = BlockRange {
            nsid: 1,
            lba: 768,
            blocks: 256,
        };
        assert_eq!((range, told.code()), (expected, status));
        for part in ["from LBA 768", status.name()] {
            assert!(text.contains(part), "{text}");
        }
        let before = 768 * 512;
        assert!(found[..before] == written[..before], "what came before it");
        io.read(778, &mut found[..512]).unwrap();
        assert!(found[..512] == written[778 * 512..][..512]);
    }
    drop(io);
    controller.shutdown().unwrap();
}

#[test]
fn a_command_that_never_completes_is_an_error_in_bounded_time() {
    let rig = Rig::new(with_fault(Fault::Drop, 300, Commands::Writes));
    let deadlines = Deadlines {
        command: Duration::from_millis(200),
        ..Deadlines::SSD
    };
    let mut controller = bring_up_within(rig.backing.clone(), 1, deadlines).unwrap();
    let mut io = open(&mut controller, 1, Access::ReadWrite);
    let error = io.write(0, &bytes(8192 * 512, 0)).expect_err("one is lost");
    let text = error.to_string();
    assert!(
        matches!(error, Error::IoLate { range, abort: Abort::NotDone, .. } if range.lba == 256),
        "{text}"
    );
    assert!(text.contains("WRITE of 256 blocks from LBA 256"), "{text}");
    let dead = io
        .read(0, &mut [0; 512])
        .expect_err("the queue was given up");
    assert!(matches!(dead, Error::IoLate { .. }), "{dead}");
    drop(io);
    // The pair is deleted and another takes its place.
    open(&mut controller, 1, Access::ReadOnly)
        .read(0, &mut [0; 512])
        .unwrap();
}

#[test]
fn a_controller_that_fails_under_way_is_a_typed_error() {
    for (fault, is_it) in [
        (
            Fault::Fatal,
            (|error| matches!(error, Error::Fatal { .. })) as fn(&Error) -> bool,
        ),
        (Fault::Removal, |error| {
            matches!(error, Error::Removed { .. })
        }),
    ] {
        let rig = Rig::new(with_fault(fault, 300, Commands::Reads));
        let mut controller = bring_up_within(rig.backing.clone(), 1, SHORT).unwrap();
        let mut io = open(&mut controller, 1, Access::ReadOnly);
        let error = io.read(0, &mut vec![0; 8192 * 512]).expect_err("it failed");
        assert!(is_it(&error), "{error}");
    }
}

#[test]
fn a_queue_pair_is_needed_and_comes_back() {
    let rig = Rig::new(large());
    let mut controller = rig.enable(2);
    let shared = controller.block_io_bytes();
    let mut first = open(&mut controller, 1, Access::ReadOnly);
    first.read(0, &mut [0; 512]).unwrap();
    let controller = first.close().unwrap();
    let memory = Admin::new(shared / 2);
    let small = BlockIo::open(&mut *controller, 1, Access::ReadOnly, memory).err();
    assert!(matches!(small, Some(Error::Memory { .. })), "{small:?}");

    // Given whole, the controller comes back whole.
    let rig = Rig::new(large());
    let io = BlockIo::open(rig.enable(1), 1, Access::ReadOnly, Admin::new(shared)).unwrap();
    let controller = io.close().unwrap();
    assert!(rig.cc().en());
    let io = BlockIo::open(controller, 1, Access::ReadOnly, Admin::new(shared)).unwrap();
    drop(io);
    assert!(!rig.cc().en());
}

#[test]
fn without_a_free_queue_pair_it_says_so() {
    let rig = Rig::new(large());
    let mut controller = rig.enable(1);
    let memory = rings();
    rig.backing.map_dma(memory.cells().into()).unwrap();
    let pair = request(&memory, 1, 4);
    controller.create_queue_pair(pair).unwrap();
    let memory = Admin::new(controller.block_io_bytes());
    let error = BlockIo::open(&mut controller, 1, Access::ReadOnly, memory).err();
    assert!(
        matches!(error, Some(Error::NoQueue { granted: 1, .. })),
        "{error:?}"
    );
}
