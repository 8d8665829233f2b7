//! Registers, bring-up, shutdown and the admin queue's commands, by the specification's numbers.

use crate::rig::{
    ADMIN_ENTRIES, CC, CSTS, ENABLE, PAGE, Rig, Server, admin_sqe, configuration, failed, io_sqe,
};
use nvme_model::{Configuration, ConfigurationError, Controller, Media, Namespace};

fn up() -> Rig {
    Rig::up(configuration(), Server::Thread)
}

#[test]
fn capabilities_say_what_was_configured() {
    let rig = Rig::new(configuration(), Server::Thread);
    let cap = rig.controller.read64(0);
    assert_eq!(cap & 0xffff, 63, "MQES");
    assert_eq!(cap >> 16 & 1, 1, "CQR");
    assert_eq!(cap >> 24 & 0xff, 10, "TO");
    assert_eq!(cap >> 32 & 0xf, 1, "DSTRD");
    assert_eq!(cap >> 37 & 0xff, 1, "CSS: NVM");
    assert_eq!((cap >> 48 & 0xf, cap >> 52 & 0xf), (0, 4), "MPSMIN, MPSMAX");
    let halves = [rig.controller.read32(0), rig.controller.read32(4)];
    assert_eq!(halves, [cap as u32, (cap >> 32) as u32]);
    assert_eq!(rig.controller.read32(8), 0x0002_0000, "VS");
    assert_eq!(rig.controller.read32(CSTS), 0);
    assert_eq!(rig.controller.read32(0x1000), 0, "doorbells read as 0");
    assert_eq!(
        rig.controller.doorbell_address(0x1004),
        None,
        "between doorbells"
    );
    assert!(
        rig.controller.doorbell_address(0x1000 + 7 * 8).is_some(),
        "CQ 3"
    );
    assert_eq!(
        rig.controller.doorbell_address(0x1000 + 8 * 8),
        None,
        "beyond"
    );
}

#[test]
fn enabling_checks_the_admin_queue() {
    // AQA, offset of ASQ, offset of ACQ, CC.
    let cases = [
        ("AQA.ASQS 0", 0x0007_0000, 0, 0, ENABLE),
        ("AQA.ACQS 0", 0x0000_0007, 0, 0, ENABLE),
        ("ASQ not aligned", 0x0007_0007, 64, 0, ENABLE),
        ("ACQ not aligned", 0x0007_0007, 0, 64, ENABLE),
        ("ASQ not mapped", 0x0007_0007, 1 << 40, 0, ENABLE),
        ("ACQ not mapped", 0x0007_0007, 0, 1 << 40, ENABLE),
        ("CC.CSS", 0x0007_0007, 0, 0, ENABLE | 6 << 4),
        ("CC.MPS beyond MPSMAX", 0x0007_0007, 0, 0, ENABLE | 5 << 7),
        ("CC.AMS", 0x0007_0007, 0, 0, ENABLE | 1 << 11),
    ];
    for (name, aqa, asq, acq, cc) in cases {
        let mut rig = Rig::new(configuration(), Server::Thread);
        rig.program_admin();
        let (old_asq, old_acq) = (rig.controller.read64(0x28), rig.controller.read64(0x30));
        rig.controller.write32(0x24, aqa);
        rig.controller.write64(0x28, old_asq + asq);
        rig.controller.write64(0x30, old_acq + acq);
        rig.controller.write32(CC, cc);
        assert_eq!(rig.controller.read32(CSTS), 2, "{name}: CFS, not RDY");
        rig.controller.write32(CC, 0);
        assert_eq!(rig.controller.read32(CSTS), 0, "{name}: a reset clears CFS");
        rig.enable();
    }
}

#[test]
fn shutdown_and_reset() {
    let mut rig = up();
    rig.create_pair(1, 8);
    rig.controller.write32(0x24, 0);
    assert_eq!(
        rig.controller.read32(0x24),
        0x0007_0007,
        "AQA is locked while enabled"
    );
    rig.controller.write32(CC, ENABLE | 1 << 14);
    assert_eq!(rig.controller.read32(CSTS), 1 | 2 << 2, "SHST: complete");
    rig.controller.write32(CC, 0);
    assert_eq!(rig.controller.read32(CSTS), 0);
    rig.enable();
    let again = rig.create_pair(1, 8);
    assert_eq!(again.qid, 1, "a reset deletes the queues");
}

#[test]
fn a_reset_waits_for_the_service() {
    let mut rig = up();
    rig.create_pair(1, 8);
    let serving = nvme_model::Serving::start(vec![rig.controller.clone()], 1).unwrap();
    rig.controller.write32(CC, 0);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while rig.controller.read32(CSTS) != 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "the service never let go"
        );
        std::thread::yield_now();
    }
    drop(serving);
}

#[test]
fn identify() {
    let mut rig = up();
    let page = rig.memory.pages(2 * PAGE);
    let identify = |rig: &mut Rig, cns, nsid| rig.admin(admin_sqe(6, nsid, page, cns, 0)).0;
    assert_eq!(identify(&mut rig, 1, 0), 0);
    let controller = rig.memory.bytes(page, PAGE);
    assert_eq!(&controller[4..24], b"WS0001              ");
    assert_eq!(&controller[24..34], b"test drive");
    assert_eq!(controller[77], 9, "MDTS");
    assert_eq!(controller[80..84], [0, 0, 2, 0], "VER");
    assert_eq!(
        (controller[512], controller[513]),
        (0x66, 0x44),
        "SQES, CQES"
    );
    assert_eq!(controller[516..520], [2, 0, 0, 0], "NN");
    for (nsid, lbas, lbads) in [(1, 4096u64, 9), (2, 64, 12)] {
        assert_eq!(identify(&mut rig, 0, nsid), 0);
        let namespace = rig.memory.bytes(page, PAGE);
        assert_eq!(namespace[..8], lbas.to_le_bytes(), "NSZE");
        assert_eq!(namespace[25..27], [0, 0], "NLBAF, FLBAS");
        assert_eq!(namespace[128..132], [0, 0, lbads, 0], "LBAF 0");
        assert_eq!(identify(&mut rig, 3, nsid), 0);
        let descriptor = rig.memory.bytes(page, 24);
        assert_eq!(descriptor[..4], [2, 16, 0, 0], "an NGUID");
        assert_eq!(descriptor[4..20], namespace[104..120]);
        assert_eq!(descriptor[20..], [0; 4]);
    }
    for (above, expected) in [(0, [1, 2, 0]), (1, [2, 0, 0]), (2, [0, 0, 0])] {
        assert_eq!(identify(&mut rig, 2, above), 0);
        assert_eq!([0, 4, 8].map(|at| rig.memory.word(page + at)), expected);
    }
    for (cns, nsid) in [(0, 0), (0, 3), (0, u32::MAX), (2, u32::MAX), (3, 0), (3, 3)] {
        assert_eq!(
            identify(&mut rig, cns, nsid),
            failed(0, 0x0b),
            "CNS {cns} of {nsid}"
        );
    }
    assert_eq!(identify(&mut rig, 0x55, 1), failed(0, 0x02), "CNS");
}

#[test]
fn admin_data_follows_its_prps() {
    let mut rig = up();
    let page = rig.memory.pages(3 * PAGE);
    rig.memory.fill(page, 3 * PAGE, 0xa5);
    let mut sqe = admin_sqe(6, 0, page + PAGE - 8, 1, 0);
    [sqe[8], sqe[9]] = [(page + 2 * PAGE) as u32, ((page + 2 * PAGE) >> 32) as u32];
    assert_eq!(rig.admin(sqe).0, 0);
    assert_eq!(rig.memory.bytes(page + PAGE - 4, 4), b"WS00");
    assert_eq!(rig.memory.bytes(page + 2 * PAGE, 2), b"01");
    assert_eq!(rig.memory.word(page + PAGE - 12), 0xa5a5_a5a5);
    assert_eq!(rig.memory.word(page + 3 * PAGE - 8), 0xa5a5_a5a5);
    sqe[8] += 8;
    assert_eq!(rig.admin(sqe).0, failed(0, 0x13), "PRP2 with an offset");
    assert_eq!(
        rig.admin(admin_sqe(6, 0, page + 2, 1, 0)).0,
        failed(0, 0x13),
        "PRP1 odd"
    );
    assert_eq!(
        rig.admin(admin_sqe(6, 0, 1 << 40, 1, 0)).0,
        failed(0, 0x04),
        "not mapped"
    );
}

#[test]
fn features_and_logs() {
    let mut rig = up();
    let page = rig.memory.pages(PAGE);
    let run =
        |rig: &mut Rig, opcode, cdw10, cdw11| rig.admin(admin_sqe(opcode, 0, page, cdw10, cdw11));
    assert_eq!(
        run(&mut rig, 9, 7, 0x0009_0000),
        (0, 0x0002_0002),
        "three pairs granted"
    );
    assert_eq!(run(&mut rig, 10, 7, 0), (0, 0x0002_0002));
    assert_eq!(
        run(&mut rig, 9, 7, 0xffff),
        (failed(0, 0x02), 0),
        "NSQR FFFFh"
    );
    assert_eq!(
        run(&mut rig, 9, 7, 0xffff_0000),
        (failed(0, 0x02), 0),
        "NCQR FFFFh"
    );
    assert_eq!(run(&mut rig, 10, 11, 0), (0, 0), "no events asked for");
    assert_eq!(run(&mut rig, 9, 11, 0x100), (0, 0));
    assert_eq!(run(&mut rig, 10, 11, 0), (0, 0x100));
    assert_eq!(
        run(&mut rig, 9, 11 | 1 << 31, 1),
        (failed(1, 0x0d), 0),
        "SV"
    );
    assert_eq!(
        run(&mut rig, 10, 11 | 1 << 8, 0),
        (failed(0, 0x02), 0),
        "SEL"
    );
    assert_eq!(run(&mut rig, 9, 0x7f, 0), (failed(0, 0x02), 0), "FID");
    assert_eq!(run(&mut rig, 10, 0x7f, 0), (failed(0, 0x02), 0), "FID");
    rig.create_pair(1, 8);
    assert_eq!(run(&mut rig, 9, 7, 0), (failed(0, 0x0c), 0), "queues exist");
    rig.memory.fill(page, PAGE, 0xa5);
    assert_eq!(
        run(&mut rig, 2, 2 | 127 << 16, 0),
        (0, 0),
        "512 bytes of SMART"
    );
    assert!(rig.memory.bytes(page, 512).iter().all(|&byte| byte == 0));
    assert_eq!(rig.memory.byte(page + 512), 0xa5);
    assert_eq!(run(&mut rig, 2, 0x77, 0), (failed(1, 0x09), 0), "LID");
    assert_eq!(
        run(&mut rig, 0x18, 0, 0),
        (failed(0, 0x01), 0),
        "Keep Alive"
    );
    assert_eq!(
        run(&mut rig, 0xc1, 0, 0),
        (failed(0, 0x01), 0),
        "vendor specific"
    );
    assert_eq!(
        run(&mut rig, 6 | 1 << 14, 1, 0),
        (failed(0, 0x02), 0),
        "SGL"
    );
}

#[test]
fn creating_queues_checks_everything() {
    let mut rig = up();
    let ring = rig.memory.pages(PAGE);
    let invalid_id = failed(1, 0x01);
    let invalid_size = failed(1, 0x02);
    for (qid, entries, address, expected) in [
        (0, 8, ring, invalid_id),
        (4, 8, ring, invalid_id),
        (1, 1, ring, invalid_size),
        (1, 65, ring, invalid_size),
        (1, 8, ring + 16, failed(0, 0x13)),
        (1, 8, 1 << 40, failed(0, 0x04)),
    ] {
        assert_eq!(
            rig.create_cq(qid, entries, address),
            expected,
            "CQ {qid} {entries}"
        );
    }
    let cdw10 = 1 | 7 << 16;
    assert_eq!(
        rig.admin(admin_sqe(5, 0, ring, cdw10, 0)).0,
        failed(0, 0x02),
        "PC 0"
    );
    assert_eq!(
        rig.admin(admin_sqe(5, 0, ring, cdw10, 3)).0,
        failed(1, 0x08),
        "IEN"
    );
    assert_eq!(rig.create_cq(1, 64, ring), 0);
    assert_eq!(rig.create_cq(1, 8, ring), invalid_id, "CQ 1 exists");
    for (qid, entries, cqid, address, expected) in [
        (0, 8, 1, ring, invalid_id),
        (4, 8, 1, ring, invalid_id),
        (1, 8, 0, ring, invalid_id),
        (1, 8, 4, ring, invalid_id),
        (1, 8, 2, ring, failed(1, 0x00)),
        (1, 1, 1, ring, invalid_size),
        (1, 65, 1, ring, invalid_size),
        (1, 8, 1, ring + 64, failed(0, 0x13)),
        (1, 8, 1, 1 << 40, failed(0, 0x04)),
    ] {
        let status = rig.create_sq(qid, entries, cqid, address);
        assert_eq!(status, expected, "SQ {qid} {entries} on {cqid}");
    }
    assert_eq!(
        rig.admin(admin_sqe(1, 0, ring, cdw10, 1 << 16)).0,
        failed(0, 0x02),
        "PC 0"
    );
    assert_eq!(rig.create_sq(2, 8, 1, ring), 0);
    assert_eq!(rig.create_sq(2, 8, 1, ring), invalid_id, "SQ 2 exists");
    assert_eq!(
        rig.create_sq(3, 8, 1, ring),
        failed(1, 0x00),
        "CQ 1 has an SQ"
    );
}

#[test]
fn deletion_has_an_order() {
    let mut rig = up();
    let pair = rig.create_pair(1, 8);
    let delete = |rig: &mut Rig, opcode, qid| rig.admin(admin_sqe(opcode, 0, 0, qid, 0)).0;
    assert_eq!(delete(&mut rig, 4, 1), failed(1, 0x0c), "its SQ exists");
    assert_eq!(delete(&mut rig, 0, 2), failed(1, 0x01));
    assert_eq!(delete(&mut rig, 0, 0), failed(1, 0x01));
    assert_eq!(delete(&mut rig, 0, 1), 0);
    assert_eq!(delete(&mut rig, 0, 1), failed(1, 0x01), "deleted");
    pair.ring(&rig);
    rig.step();
    assert_eq!(delete(&mut rig, 4, 1), 0);
    assert_eq!(delete(&mut rig, 4, 1), failed(1, 0x01), "deleted");
    // A new queue of the same identifier begins anew.
    let page = rig.memory.pages(PAGE);
    let mut again = rig.create_pair(1, 4);
    for lba in 0..9 {
        assert_eq!(
            again.run(&mut rig, crate::rig::io_sqe(2, 1, lba, 1, page, 0)),
            0
        );
    }
}

#[test]
fn event_requests_are_held_until_aborted() {
    let mut rig = up();
    let held: Vec<u16> = (0..4)
        .map(|_| rig.push_admin(admin_sqe(12, 0, 0, 0, 0)))
        .collect();
    rig.ring_admin();
    rig.step();
    assert_eq!(rig.reap_admin(), None);
    assert_eq!(
        rig.admin(admin_sqe(12, 0, 0, 0, 0)).0,
        failed(1, 0x05),
        "a fifth"
    );
    let abort = rig.push_admin(admin_sqe(8, 0, 0, (held[2] as u32) << 16, 0));
    rig.ring_admin();
    rig.step();
    assert_eq!(
        rig.reap_admin(),
        Some((held[2], 0x07, 0)),
        "Command Abort Requested"
    );
    assert_eq!(rig.reap_admin(), Some((abort, 0, 0)));
    let (status, dw0) = rig.admin(admin_sqe(8, 0, 0, (held[2] as u32) << 16, 0));
    assert_eq!((status, dw0 & 1), (0, 1), "not aborted: it is gone");
}

#[test]
fn the_admin_queue_goes_round_and_pushes_back() {
    let mut rig = up();
    for lap in 0..40 {
        let count = 1 + lap % (ADMIN_ENTRIES - 1);
        let cids: Vec<u16> = (0..count)
            .map(|_| rig.push_admin(admin_sqe(10, 0, 0, 7, 0)))
            .collect();
        rig.ring_admin();
        rig.step();
        for cid in cids {
            assert_eq!(rig.reap_admin(), Some((cid, 0, 0x0002_0002)));
        }
        assert_eq!(rig.reap_admin(), None);
    }
}

#[test]
fn contradictory_configurations_are_refused() {
    let refused = |configuration: Configuration| {
        let error = Controller::new(configuration, Media::none(), None, None).err();
        error.expect("refused").to_string()
    };
    let base = configuration();
    let odd = vec![Namespace {
        lbas: 1,
        lba_bytes: 1024,
    }];
    assert!(
        refused(Configuration {
            namespaces: odd,
            ..base.clone()
        })
        .contains("LBA size is 1024")
    );
    assert!(
        refused(Configuration {
            namespaces: vec![],
            ..base.clone()
        })
        .contains("1 to 16")
    );
    assert!(
        refused(Configuration {
            queue_entries: 1,
            ..base.clone()
        })
        .contains("queue entries")
    );
    assert!(
        refused(Configuration {
            queues: 0,
            ..base.clone()
        })
        .contains("queue pairs")
    );
    assert!(
        refused(Configuration {
            serial: "ä".into(),
            ..base.clone()
        })
        .contains("serial")
    );
    let media = Media::ram(4096).unwrap();
    let error = Controller::new(base, media, None, None).err();
    let needed = 4096 * 512 + 64 * 4096;
    assert_eq!(
        error,
        Some(ConfigurationError::MediaTooSmall {
            needed,
            found: 4096
        })
    );
}

#[test]
fn doorbells_are_taken_from_memory_where_that_is_offered_and_asked_for() {
    let mut rig = up();
    let page = rig.memory.pages(2 * PAGE);
    let configure = |values: u64, events: u64| {
        let mut sqe = admin_sqe(0x7c, 0, values, 0, 0);
        (sqe[8], sqe[9]) = (events as u32, (events >> 32) as u32);
        sqe
    };
    assert_eq!(
        rig.admin(configure(page, page + PAGE)).0,
        failed(0, 0x01),
        "not offered"
    );

    let offering = Configuration {
        shadow_doorbells: true,
        ..configuration()
    };
    for server in [Server::Thread, Server::Warp] {
        let mut rig = Rig::up(offering.clone(), server);
        let page = rig.memory.pages(2 * PAGE);
        let data = rig.memory.pages(PAGE);
        rig.memory.fill(page, 2 * PAGE, 0);
        for (values, events, status) in [
            (page + 8, page + PAGE, 0x02),
            (page, page + PAGE + 8, 0x02),
            (1 << 40, page + PAGE, 0x04),
            (page, 1 << 40, 0x04),
        ] {
            let (found, _) = rig.admin(configure(values, events));
            assert_eq!(found, failed(0, status), "{values:#x} {events:#x}");
        }
        assert_eq!(rig.admin(configure(page, page + PAGE)).0, 0);
        let mut pair = rig.create_pair(2, 4);
        assert_eq!(
            rig.admin(configure(page, page + PAGE)).0,
            failed(0, 0x0c),
            "too late"
        );
        // DSTRD is 1: doorbells are 8 bytes apart.
        let (tail, head) = (page + 4 * 8, page + 5 * 8);
        for turn in 0..10 {
            pair.push(&rig, turn, io_sqe(2, 1, 0, 1, data, 0));
            pair.ring(&rig);
            rig.step();
            assert_eq!(pair.peek(&rig), None, "registers do not ring");
            rig.memory.set_word(tail, pair.tail);
            rig.step();
            let completion = pair.peek(&rig).expect("memory does");
            assert_eq!((completion.cid, completion.status), (turn, 0));
            rig.memory.set_word(head, pair.head);
        }
        // A reset forgets it.
        rig.controller.write32(CC, 0);
        rig.enable();
        let mut pair = rig.create_pair(2, 4);
        assert_eq!(pair.run(&mut rig, io_sqe(2, 1, 0, 1, data, 0)), 0);
    }
}
