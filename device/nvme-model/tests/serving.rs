//! Threads that serve several controllers while submitters work.

mod rig;

use std::time::{Duration, Instant};

use nvme_model::{Profile, Serving};
use rig::{PAGE, Rig, Server, admin_sqe, configuration, io_sqe};

#[test]
fn threads_serve_every_queue_of_every_controller() {
    for threads in [1, 2, 5] {
        for profile in [Profile::IDEAL, Profile::by_name("future100m").unwrap()] {
            let configuration = nvme_model::Configuration {
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
                    for cid in 0..50 {
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
