//! Bring-up against the emulated controller.

use driver_vfio::{Access, Backing, BlockIo, Controller, DmaRegion, Enabled, Error, Namespace};
use nvme_model::{Configuration, Fault, Faults, Rule, When};
use nvme_wire::regs::offset;
use nvme_wire::{Sqe, Status};
use warpstore_simt::{Cell, Cells, Order};

use crate::memory::{Admin, Submitter, Words};
use crate::rig::{Rig, configuration, request, rings};

#[test]
fn what_the_controller_says_arrives() {
    let rig = Rig::new(configuration());
    let controller = rig.enable(1);
    let info = controller.info();
    assert_eq!(
        (info.serial.as_str(), info.model.as_str()),
        ("WS-0001", "bring-up")
    );
    assert_eq!(info.max_transfer, 4096 << 5);
    assert!(info.volatile_write_cache);
    assert_eq!(info.n_namespaces, 3);
    assert_eq!((controller.vs().mjr(), controller.max_entries()), (2, 64));
}

#[test]
fn all_namespaces_are_found_in_their_formats() {
    let rig = Rig::new(configuration());
    let mut controller = rig.enable(1);
    assert_eq!(controller.active_namespaces().unwrap(), [1, 2, 3]);
    let found = [1, 2, 3].map(|nsid| controller.namespace(nsid).unwrap());
    let namespace = |nsid, blocks, block_shift, max_blocks| Namespace {
        nsid,
        blocks,
        block_shift,
        max_blocks,
        atomic_blocks: 1,
    };
    let expected = [
        namespace(1, 64, 9, 256),
        namespace(2, 32, 12, 32),
        namespace(3, 1000, 9, 256),
    ];
    assert_eq!(found, expected);
    let error = controller
        .namespace(4)
        .expect_err("there is no namespace 4");
    let Error::Refused {
        command: "IDENTIFY",
        status,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(status.code(), Status::INVALID_NAMESPACE);
    assert_eq!(
        controller.active_namespaces().unwrap(),
        [1, 2, 3],
        "a refusal is not the end"
    );
}

#[test]
fn no_transfer_limit_means_what_a_prp_list_holds() {
    let rig = Rig::new(Configuration {
        mdts: 0,
        ..configuration()
    });
    assert_eq!(rig.enable(1).info().max_transfer, 2 << 20);
}

#[test]
fn queues_are_granted_up_to_what_both_sides_want() {
    let rig = Rig::new(configuration());
    for (asked, granted) in [(1, 1), (3, 3), (64, 3), (u16::MAX, 3)] {
        let controller = rig.enable(asked);
        assert_eq!(controller.n_io_queues(), granted);
        controller.shutdown().unwrap();
    }
}

#[test]
fn data_goes_through_a_queue_pair_of_any_depth() {
    for entries in [2, 4, 64] {
        let (memory, data) = (rings(), Words::new(4096 / 8));
        let rig = Rig::new(configuration());
        let mut controller = rig.enable(1);
        rig.backing.map_dma(memory.cells().into()).unwrap();
        rig.backing.map_dma(data.cells().into()).unwrap();
        let pair = controller
            .create_queue_pair(request(&memory, 1, entries))
            .unwrap();
        assert_eq!((pair.qid, pair.entries), (1, entries));
        let submitter = Submitter::new(&pair);
        let prp = DmaRegion::from(data.cells()).address();
        // Three laps, so that phases and doorbells wrap.
        for lba in 0..3 * u64::from(entries) / 2 {
            let word = data.cells().at(lba % 64);
            word.store(lba + 7, Order::Relaxed);
            assert!(submitter.run(Sqe::write(3, lba, 0, prp, 0)).is_success());
            word.store(0, Order::Relaxed);
            assert!(submitter.run(Sqe::read(3, lba, 0, prp, 0)).is_success());
            assert_eq!(word.load(Order::Relaxed), lba + 7);
        }
        assert_eq!(
            submitter.run(Sqe::read(3, 1000, 0, prp, 0)).code(),
            Status::LBA_OUT_OF_RANGE
        );
        controller.delete_queue_pair(1).unwrap();
        controller.shutdown().unwrap();
    }
}

#[test]
fn doorbells_are_found_at_every_stride() {
    for dstrd in [0, 1, 4, 5, 15] {
        let (memory, data) = (rings(), Words::new(4096 / 8));
        let rig = Rig::new(Configuration {
            dstrd,
            ..configuration()
        });
        let mut controller = rig.enable(3);
        rig.backing.map_dma(memory.cells().into()).unwrap();
        rig.backing.map_dma(data.cells().into()).unwrap();
        let pair = controller
            .create_queue_pair(request(&memory, 3, 4))
            .unwrap();
        let prp = DmaRegion::from(data.cells()).address();
        let status = Submitter::new(&pair).run(Sqe::read(1, 0, 0, prp, 0));
        assert!(status.is_success(), "DSTRD {dstrd}");
        controller.shutdown().unwrap();
    }
}

#[test]
fn the_smallest_ring_goes_round_a_hundred_thousand_times() {
    let (memory, data) = (rings(), Words::new(4096 / 8));
    let rig = Rig::new(Configuration {
        queue_entries: 2,
        ..configuration()
    });
    let mut controller = rig.enable(1);
    assert_eq!(controller.max_entries(), 2);
    rig.backing.map_dma(memory.cells().into()).unwrap();
    rig.backing.map_dma(data.cells().into()).unwrap();
    let pair = controller
        .create_queue_pair(request(&memory, 1, 2))
        .unwrap();
    let prp = DmaRegion::from(data.cells()).address();
    let reads: Vec<Sqe> = (0..200_000)
        .map(|n| Sqe::read(1, n % 64, 0, prp, 0))
        .collect();
    let statuses = Submitter::new(&pair).run_all(&reads);
    assert!(statuses.iter().all(|status| status.is_success()));
}

fn enable_with_shadow_doorbells(rig: &Rig) -> Controller<Enabled> {
    let mut controller = rig.enable(1);
    let memory = Admin::new(controller.shadow_bytes());
    assert!(controller.use_shadow_doorbells(memory).unwrap());
    controller
}

#[test]
fn shadow_doorbells_are_used_where_they_are_offered_and_have_room() {
    // Doorbells 128 bytes apart: a page has room for queue pairs up to 15.
    for (offered, queues, used) in [(true, 15, true), (true, 16, false), (false, 1, false)] {
        let rig = Rig::new(Configuration {
            shadow_doorbells: offered,
            dstrd: 5,
            queues,
            ..configuration()
        });
        for _ in 0..2 {
            let mut controller = rig.enable(queues);
            let memory = Admin::new(controller.shadow_bytes());
            assert_eq!(controller.use_shadow_doorbells(memory).unwrap(), used);
            let memory = Admin::new(controller.block_io_bytes());
            let mut io = BlockIo::open(&mut controller, 1, Access::ReadOnly, memory).unwrap();
            // More commands than the ring has entries, so that it wraps; and again in the same words.
            for lba in 0..100 {
                io.read(lba % 64, &mut [0; 512]).unwrap();
            }
            io.close().unwrap();
            let memory = Admin::new(controller.block_io_bytes());
            let mut io = BlockIo::open(&mut controller, 1, Access::ReadOnly, memory).unwrap();
            io.read(0, &mut [0; 64 * 512]).unwrap();
            drop(io);
            controller.shutdown().unwrap();
        }
    }
}

#[test]
fn a_pair_that_cannot_be_created_leaves_the_shadow_doorbells_of_others() {
    let rig = Rig::new(Configuration {
        shadow_doorbells: true,
        ..configuration()
    });
    let mut controller = enable_with_shadow_doorbells(&rig);
    let (first, second) = (rings(), rings());
    rig.backing.map_dma(first.cells().into()).unwrap();
    rig.backing.map_dma(second.cells().into()).unwrap();
    let data = Words::new(4096 / 8);
    rig.backing.map_dma(data.cells().into()).unwrap();
    let prp = DmaRegion::from(data.cells()).address();
    let pair = controller
        .create_queue_pair(request(&first, 1, 16))
        .unwrap();
    let submitter = Submitter::new(&pair);
    for qid in [0, 1, 4, 600, u16::MAX] {
        for _ in 0..3 {
            let status = submitter.run(Sqe::read(1, 0, 0, prp, 0));
            assert!(status.is_success());
        }
        controller
            .create_queue_pair(request(&second, qid, 16))
            .expect_err("it exists, or cannot");
    }
    assert_eq!(rig.model.counters()[0].reads, 15, "none ran twice");
}

#[test]
fn a_completion_too_many_is_counted_by_shadow_doorbells_too() {
    let rule = Rule::new(Fault::Duplicate, When::OneIn(3));
    let rig = Rig::new(Configuration {
        shadow_doorbells: true,
        faults: Faults {
            seed: 3,
            rules: vec![rule],
        },
        ..configuration()
    });
    let mut controller = enable_with_shadow_doorbells(&rig);
    let memory = Admin::new(controller.block_io_bytes());
    let mut io = BlockIo::open(&mut controller, 1, Access::ReadOnly, memory).unwrap();
    for lba in 0..200 {
        io.read(lba % 64, &mut [0; 512]).unwrap();
    }
    io.close().unwrap();
    assert!(rig.model.faults()[0] > 0);
}

#[test]
fn memory_for_shadow_doorbells_that_does_not_do_is_refused() {
    let rig = Rig::new(Configuration {
        shadow_doorbells: true,
        ..configuration()
    });
    let mut controller = rig.enable(1);
    let small = Admin::new(controller.shadow_bytes() / 2);
    let error = controller.use_shadow_doorbells(small).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    let memory = Admin::new(controller.shadow_bytes());
    assert!(controller.use_shadow_doorbells(memory).unwrap());
}

#[test]
fn queue_pairs_that_cannot_be_are_refused_and_leave_nothing_behind() {
    let memory = rings();
    let rig = Rig::new(configuration());
    let mut controller = rig.enable(3);
    let refused = |result: Result<_, Error>, expected: Status| match result {
        Err(Error::Refused { status, .. }) => assert_eq!(status.code(), expected),
        Err(error) => panic!("{error}"),
        Ok(pair) => panic!("{pair:?}"),
    };
    refused(
        controller.create_queue_pair(request(&memory, 1, 64)),
        Status::DATA_TRANSFER_ERROR,
    );
    rig.backing.map_dma(memory.cells().into()).unwrap();
    refused(
        controller.create_queue_pair(request(&memory, 0, 64)),
        Status::INVALID_QUEUE_ID,
    );
    let beyond = controller.create_queue_pair(request(&memory, 4, 64));
    assert!(matches!(beyond, Err(Error::Backing { .. })), "{beyond:?}");
    for entries in [0, 1, 48, 128] {
        let result = controller.create_queue_pair(request(&memory, 1, entries));
        assert!(
            matches!(result, Err(Error::QueueSize { most: 64, .. })),
            "{result:?}"
        );
    }

    // The completion queue can be created, the submission queue not: the first one must go.
    let mut half = request(&memory, 1, 64);
    half.sq.iova = half.sq.iova.plus(64 * 4096);
    refused(
        controller.create_queue_pair(half),
        Status::DATA_TRANSFER_ERROR,
    );
    controller
        .create_queue_pair(request(&memory, 1, 64))
        .unwrap();
    refused(
        controller.create_queue_pair(request(&memory, 1, 64)),
        Status::INVALID_QUEUE_ID,
    );
    refused(
        controller.delete_queue_pair(2).map(|()| unreachable!()),
        Status::INVALID_QUEUE_ID,
    );
    controller.shutdown().unwrap();
}

#[test]
fn doorbells_beyond_the_controllers_are_refused() {
    let rig = Rig::new(configuration());
    for at in [
        offset::DOORBELLS - 4,
        offset::DOORBELLS + 4,
        offset::DOORBELLS + 8 * 8,
    ] {
        let error = rig.backing.doorbell(driver_vfio::BarOffset(at)).err();
        assert!(error.is_some_and(|error| error.to_string().contains("3 I/O queue pairs")));
    }
}
