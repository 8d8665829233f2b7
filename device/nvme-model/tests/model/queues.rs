//! Rings, phase, back-pressure and the status of every malformed command.

use crate::rig::{PAGE, Rig, SERVERS, admin_sqe, configuration, failed, io_sqe};
use nvme_model::Namespace;

#[test]
fn malformed_commands_get_the_status_that_the_specification_names() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        let mut status = |rig: &mut Rig, sqe| pair.run(rig, sqe);
        let read = io_sqe(2, 1, 0, 1, page, 0);
        assert_eq!(status(&mut rig, read), 0);
        let mut unknown = read;
        unknown[0] = 0x7f;
        assert_eq!(status(&mut rig, unknown), failed(0, 0x01), "opcode");
        for flags in [0x0100, 0x4000, 0x8000] {
            let mut flagged = read;
            flagged[0] |= flags;
            assert_eq!(status(&mut rig, flagged), failed(0, 0x02), "FUSE and PSDT");
        }
        for nsid in [0, 3, u32::MAX] {
            let sqe = io_sqe(2, nsid, 0, 1, page, 0);
            assert_eq!(status(&mut rig, sqe), failed(0, 0x0b), "namespace {nsid}");
        }
        for (slba, blocks) in [(4096, 1), (4095, 2), (u64::MAX, 1), (u64::MAX - 3, 8)] {
            let sqe = io_sqe(1, 1, slba, blocks, page, 0);
            assert_eq!(status(&mut rig, sqe), failed(0, 0x80), "LBA {slba}");
        }
        assert_eq!(
            status(&mut rig, io_sqe(2, 1, 4095, 1, page, 0)),
            0,
            "the last LBA"
        );
        assert_eq!(
            status(&mut rig, io_sqe(2, 2, 63, 1, page, 0)),
            0,
            "the last LBA of 4096"
        );
        assert_eq!(
            status(&mut rig, io_sqe(2, 2, 64, 1, page, 0)),
            failed(0, 0x80)
        );
        for nsid in [1, 2, u32::MAX] {
            assert_eq!(
                status(&mut rig, admin_sqe(0, nsid, 0, 0, 0)),
                0,
                "flush {nsid}"
            );
        }
        assert_eq!(
            status(&mut rig, admin_sqe(0, 3, 0, 0, 0)),
            failed(0, 0x0b),
            "flush"
        );
        let counters = rig.controller.counters()[0];
        assert_eq!(
            (counters.reads, counters.writes, counters.flushes),
            (3, 0, 3)
        );
        assert_eq!((counters.errors, counters.bytes), (13, 512 + 512 + 4096));
    }
}

#[test]
fn transfers_end_at_mdts() {
    for server in SERVERS {
        let mut rig = Rig::up(
            nvme_model::Configuration {
                mdts: 1,
                ..configuration()
            },
            server,
        );
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(3 * PAGE);
        assert_eq!(
            pair.run(&mut rig, io_sqe(2, 1, 0, 16, page, page + PAGE)),
            0
        );
        let longer = io_sqe(2, 1, 0, 17, page, page + PAGE);
        assert_eq!(pair.run(&mut rig, longer), failed(0, 0x02));
    }
}

#[test]
fn namespaces_do_not_overlap() {
    for server in SERVERS {
        let namespaces = vec![
            Namespace {
                lbas: 8,
                lba_bytes: 512,
            },
            Namespace {
                lbas: 3,
                lba_bytes: 4096,
            },
            Namespace {
                lbas: 8,
                lba_bytes: 512,
            },
        ];
        let configuration = nvme_model::Configuration {
            namespaces,
            ..configuration()
        };
        let mut rig = Rig::up(configuration, server);
        let mut pair = rig.create_pair(1, 8);
        let pages = rig.memory.pages(3 * PAGE);
        let list = rig.memory.pages(PAGE);
        rig.memory.set_entry(list, pages + PAGE);
        rig.memory.set_entry(list + 8, pages + 2 * PAGE);
        // (namespace, blocks, PRP2, bytes)
        let whole = [(1, 8, 0, 4096), (2, 3, list, 3 * PAGE), (3, 8, 0, 4096)];
        for (nsid, blocks, prp2, bytes) in whole {
            rig.memory.fill(pages, bytes, nsid as u8);
            assert_eq!(
                pair.run(&mut rig, io_sqe(1, nsid, 0, blocks, pages, prp2)),
                0
            );
        }
        for (nsid, blocks, prp2, bytes) in whole {
            assert_eq!(
                pair.run(&mut rig, io_sqe(2, nsid, 0, blocks, pages, prp2)),
                0
            );
            let found = rig.memory.bytes(pages, bytes);
            assert!(
                found.iter().all(|&byte| byte == nsid as u8),
                "namespace {nsid}"
            );
        }
    }
}

#[test]
fn phase_and_sqhd_go_round_with_the_rings() {
    for (server, entries) in SERVERS
        .into_iter()
        .flat_map(|s| [2, 3, 7, 16].map(|e| (s, e)))
    {
        let mut rig = Rig::up(configuration(), server);
        let mut pair = rig.create_pair(2, entries);
        let page = rig.memory.pages(PAGE);
        let mut sent = 0u32;
        for lap in 0..5 * entries {
            let burst = 1 + lap % (entries - 1);
            for _ in 0..burst {
                pair.push(&rig, sent as u16, io_sqe(2, 1, sent as u64, 1, page, 0));
                sent += 1;
            }
            pair.ring(&rig);
            (0..burst).for_each(|_| rig.step());
            for index in sent - burst..sent {
                let done = pair
                    .peek(&rig)
                    .unwrap_or_else(|| panic!("{server:?} {entries}: {index}"));
                assert_eq!((done.cid, done.status, done.sqid), (index as u16, 0, 2));
                // One lane fetches one by one, a warp the whole burst.
                let fetched = if server == crate::rig::Server::Thread {
                    index + 1
                } else {
                    sent
                };
                assert_eq!(done.sqhd as u32, fetched % entries, "SQHD");
            }
            assert_eq!(pair.peek(&rig), None, "nothing beyond the burst");
            pair.release(&rig);
        }
    }
}

#[test]
fn a_full_completion_queue_holds_commands_back() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let page = rig.memory.pages(PAGE);
        let cq = rig.memory.pages(4 * 16);
        let sq = rig.memory.pages(16 * 64);
        rig.memory.fill(cq, 64, 0);
        assert_eq!(rig.create_cq(1, 4, cq), 0);
        assert_eq!(rig.create_sq(3, 16, 1, sq), 0);
        let mut pair = crate::rig::Pair {
            qid: 3,
            entries: 16,
            sq,
            cq,
            tail: 0,
            head: 0,
            phase: 1,
        };
        for cid in 0..11 {
            pair.push(&rig, cid, io_sqe(2, 1, 0, 1, page, 0));
        }
        pair.ring(&rig);
        (pair.entries, pair.qid) = (4, 1);
        let mut seen = Vec::new();
        while seen.len() < 11 {
            (0..20).for_each(|_| rig.step());
            let posted: Vec<_> = std::iter::from_fn(|| pair.peek(&rig)).collect();
            assert!(
                posted.len() <= 3,
                "{server:?}: one slot of four stays empty"
            );
            assert!(!posted.is_empty(), "{server:?}: stalled");
            let head = posted.last().map(|last| last.sqhd as usize);
            assert_eq!(
                head,
                Some(seen.len() + posted.len()),
                "nothing is fetched ahead"
            );
            seen.extend(posted.iter().map(|completion| completion.cid));
            pair.release(&rig);
        }
        assert_eq!(seen, (0..11).collect::<Vec<_>>());
    }
}

#[test]
fn doorbells_beyond_the_ring_are_ignored_and_counted() {
    for server in SERVERS {
        let mut rig = Rig::up(configuration(), server);
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        for value in [8, 9, u32::MAX] {
            rig.controller.write32(rig.doorbell(1, false), value);
            rig.step();
            rig.step();
            assert_eq!(pair.peek(&rig), None);
        }
        rig.controller.write32(rig.doorbell(1, true), 8);
        rig.step();
        assert_eq!(rig.controller.counters()[0].bad_doorbells, 4);
        pair.release(&rig);
        assert_eq!(
            pair.run(&mut rig, io_sqe(2, 1, 0, 1, page, 0)),
            0,
            "the queue still works"
        );
    }
}

#[test]
fn a_model_without_media_moves_nothing() {
    for server in SERVERS {
        let media = nvme_model::Media::none();
        let mut rig = Rig::with(configuration(), server, media, None);
        rig.enable();
        let mut pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        rig.memory.fill(page, PAGE, 0x77);
        assert_eq!(pair.run(&mut rig, io_sqe(2, 1, 0, 8, page, 0)), 0);
        assert!(
            rig.memory
                .bytes(page, PAGE)
                .iter()
                .all(|&byte| byte == 0x77)
        );
        assert_eq!(
            pair.run(&mut rig, io_sqe(2, 1, 4096, 1, page, 0)),
            failed(0, 0x80)
        );
        assert_eq!(rig.controller.counters()[0].bytes, PAGE);
    }
}
