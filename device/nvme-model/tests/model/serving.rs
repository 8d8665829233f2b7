//! Threads and resident warps that serve several controllers while submitters work.
#![allow(unsafe_code, reason = "a resident service is given addresses")]
// UNSAFETY: serves copies of images that live on this test's stack frame.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::rig::{ImageCopy, PAGE, Pair, Rig, Server, admin_sqe, configuration, io_sqe, run_warps};
use nvme_model::{Configuration, Profile, Service, Serving, serve};
use warpstore_simt::thread;

/// Reads LBAs one after another and waits for each.
fn read_one_by_one(rig: &Rig, pair: &mut Pair, page: u64, count: u16, deadline: Instant) {
    for cid in 0..count {
        pair.push(rig, cid, io_sqe(2, 1, cid as u64, 1, page, 0));
        pair.ring(rig);
        let done = loop {
            if let Some(done) = pair.reap(rig) {
                break done;
            }
            assert!(Instant::now() < deadline, "no completion");
            std::thread::yield_now();
        };
        assert_eq!((done.cid, done.status), (cid, 0));
    }
}

#[test]
fn resident_warps_serve_copies_and_hand_them_back() {
    let profiles = [Profile::IDEAL, Profile::by_name("future100m").unwrap()];
    let mut rigs = profiles.map(|profile| {
        let configuration = Configuration {
            profile,
            ..configuration()
        };
        Rig::up(configuration, Server::Thread)
    });
    let mut pairs: Vec<Vec<_>> = rigs
        .iter_mut()
        .map(|rig| (1..4).map(|qid| rig.create_pair(qid, 8)).collect())
        .collect();
    let pages = rigs.each_mut().map(|rig| rig.memory.pages(PAGE));
    let deadline = Instant::now() + Duration::from_secs(60);
    let copies = rigs.each_ref().map(|rig| ImageCopy::of(&rig.controller));
    let table = copies.each_ref().map(ImageCopy::address);
    let stop = AtomicU32::new(0);
    // SAFETY: table, copies, stop word and all that the images name outlive the scope below.
    let service = unsafe {
        Service::new(
            table.as_ptr(),
            2,
            stop.as_ptr(),
            thread::now_ns() + 60_000_000_000,
        )
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            run_warps(4, &move || {
                let worker = (thread::index_1d() / 32) as u32;
                let workers = (thread::grid_size() / 32) as u32;
                serve::<32>(service, worker, workers);
            });
        });
        for ((rig, pairs), page) in rigs.iter().zip(&mut pairs).zip(pages) {
            for pair in pairs {
                read_one_by_one(rig, pair, page, 20, deadline);
            }
        }
        stop.store(1, Relaxed);
    });
    for (rig, copy) in rigs.iter().zip(&copies) {
        rig.controller.take_back(&copy.words());
        assert!(
            rig.controller
                .counters()
                .iter()
                .all(|counters| counters.reads == 20)
        );
    }
    // Threads go on where the warps stopped.
    let controllers = rigs.iter().map(|rig| rig.controller.clone()).collect();
    let serving = Serving::start(controllers, 1).unwrap();
    for ((rig, pairs), page) in rigs.iter().zip(&mut pairs).zip(pages) {
        for pair in pairs {
            read_one_by_one(rig, pair, page, 20, deadline);
        }
        assert!(
            rig.controller
                .counters()
                .iter()
                .all(|counters| counters.reads == 40)
        );
    }
    drop(serving);
}

#[test]
fn a_service_ends_at_its_deadline() {
    let rig = Rig::up(configuration(), Server::Thread);
    let copy = ImageCopy::of(&rig.controller);
    let table = [copy.address()];
    let stop = AtomicU32::new(0);
    // SAFETY: as above.
    let service = unsafe { Service::new(table.as_ptr(), 1, stop.as_ptr(), thread::now_ns()) };
    run_warps(1, &move || serve::<32>(service, 0, 1));
}

#[test]
fn threads_serve_every_queue_of_every_controller() {
    for threads in [1, 2, 5] {
        for profile in [Profile::IDEAL, Profile::by_name("future100m").unwrap()] {
            let configuration = Configuration {
                profile,
                ..configuration()
            };
            let mut rigs = [0, 1].map(|_| Rig::up(configuration.clone(), Server::Thread));
            let mut pairs: Vec<Vec<_>> = rigs
                .iter_mut()
                .map(|rig| (1..4).map(|qid| rig.create_pair(qid, 8)).collect())
                .collect();
            let controllers = rigs.iter().map(|rig| rig.controller.clone()).collect();
            let serving = Serving::start(controllers, threads).unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            for (rig, pairs) in rigs.iter_mut().zip(&mut pairs) {
                let page = rig.memory.pages(PAGE);
                for pair in pairs {
                    read_one_by_one(rig, pair, page, 50, deadline);
                }
                // Deleting a served queue waits for its thread and then completes.
                let cid = rig.push_admin(admin_sqe(0, 0, 0, 2, 0));
                rig.ring_admin();
                let done = loop {
                    if let Some(done) = rig.reap_admin() {
                        break done;
                    }
                    assert!(Instant::now() < deadline, "no admin completion");
                    std::thread::yield_now();
                };
                assert_eq!(done, (cid, 0, 0));
                assert!(
                    rig.controller
                        .counters()
                        .iter()
                        .all(|counters| counters.reads == 50)
                );
            }
            drop(serving);
        }
    }
}
