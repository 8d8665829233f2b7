//! Completions that a controller should not post, and some that it may.

use std::time::Duration;

use driver_vfio::{Controller, Error};
use nvme_wire::{Cqe, Status};
use warpstore_simt::{Cell, Cells, Order};

use crate::answering::{Answer, Answering};
use crate::memory::{Admin, Words};
use crate::odd::{enable, enable_within, usual};
use crate::registers::{Fake, Script};
use crate::{PATIENT, SHORT};

/// A controller that answers as usual and posts completions in its own way.
fn posting(posted: fn(Cqe) -> Vec<Cqe>) -> Answering {
    Answering::new(move |sqe| Answer {
        posted,
        ..usual(sqe)
    })
}

/// The command that follows each posting is not completed by it.
fn completes_nothing(posted: fn(Cqe) -> Vec<Cqe>) {
    let rig = posting(posted);
    let error = enable_within(&rig, 1, SHORT).err();
    let error = error.expect("the command was not completed");
    assert!(matches!(error, Error::NoCompletion { .. }), "{error}");
    assert_eq!(rig.fake.n_mapped(), 0);
}

/// Bring-up and a hundred commands go well, each with its own result.
fn does_no_harm(posted: fn(Cqe) -> Vec<Cqe>) {
    let rig = posting(posted);
    let mut controller = enable(&rig, 1).unwrap();
    for _ in 0..50 {
        assert_eq!(controller.namespace(3).unwrap().blocks, 100);
        assert_eq!(controller.active_namespaces().unwrap(), [3, 5]);
    }
}

#[test]
fn the_admin_queue_goes_round() {
    does_no_harm(|cqe| vec![cqe]);
}

/// The completion with another CID.
fn of(cid: u16, mut cqe: Cqe) -> Cqe {
    cqe.cid = cid;
    cqe
}

#[test]
fn a_cid_that_is_not_outstanding_completes_nothing() {
    completes_nothing(|cqe| vec![of(cqe.cid ^ 1, cqe)]);
    completes_nothing(|cqe| vec![of(31, cqe)]);
    completes_nothing(|cqe| vec![of(0x20, cqe)]);
    completes_nothing(|cqe| vec![of(0x7fff, cqe)]);
    completes_nothing(|cqe| vec![of(0xffff, cqe)]);
}

#[test]
fn a_completion_for_another_queue_completes_nothing() {
    completes_nothing(|cqe| vec![cqe.with_sq(1, cqe.sqhd)]);
    completes_nothing(|cqe| vec![cqe.with_sq(0xffff, cqe.sqhd)]);
}

#[test]
fn a_wrong_completion_before_the_right_one_does_no_harm() {
    does_no_harm(|cqe| vec![of(0xffff, cqe), cqe]);
    does_no_harm(|cqe| vec![cqe.with_sq(3, cqe.sqhd), cqe]);
}

#[test]
fn a_completion_that_comes_twice_counts_once() {
    does_no_harm(|cqe| vec![cqe, cqe]);
    // The second one is a failure, of a command that has succeeded already.
    does_no_harm(|cqe| vec![cqe, Cqe::new(cqe.cid, Status::INTERNAL_ERROR, false)]);
}

#[test]
fn an_sq_head_out_of_range_is_not_used() {
    does_no_harm(|cqe| vec![cqe.with_sq(0, 0xffff)]);
    does_no_harm(|cqe| vec![cqe.with_sq(0, 0)]);
}

#[test]
fn a_completion_in_two_parts_is_taken_whole() {
    let rig = Answering::new(|sqe| Answer {
        torn: Duration::from_millis(2),
        ..usual(sqe)
    });
    // The granted queues are in the half without the phase.
    let mut controller = enable(&rig, 8).unwrap();
    assert_eq!(controller.n_io_queues(), 8);
    assert_eq!(controller.active_namespaces().unwrap(), [3, 5]);
}

#[test]
fn completions_that_an_earlier_life_left_in_the_ring_are_not_seen() {
    let fake = Fake::new(Script::good());
    let controller = Controller::open(fake.clone(), SHORT).unwrap();
    let memory = Words::new(controller.admin_bytes() as usize / 8);
    // Every word of all pages, so the whole completion ring: success, with the phase of the first
    // lap and the CID of the first command, which is 0.
    let [low, high] = Cqe::new(0, Status::SUCCESS, true).to_words();
    for index in 0..memory.cells().len() {
        let word = if index % 2 == 0 { low } else { high };
        memory.cells().at(index).store(word, Order::Relaxed);
    }
    let error = controller.enable(Admin::sharing(memory), 1).err();
    let error = error.expect("nobody completed the command");
    assert!(matches!(error, Error::NoCompletion { .. }), "{error}");
}

#[test]
fn a_hung_admin_command_ends_at_its_deadline_whichever_it_is() {
    // Identify of the controller, Set Features, and the list of namespaces.
    for hung in 1..=3 {
        let rig = Answering::new(move |sqe| Answer {
            posted: if sqe.cid() % 32 == hung - 1 {
                |_| Vec::new()
            } else {
                |cqe| vec![cqe]
            },
            ..usual(sqe)
        });
        let deadlines = driver_vfio::Deadlines {
            command: SHORT.command,
            ..PATIENT
        };
        let ended = enable_within(&rig, 1, deadlines)
            .and_then(|mut controller| controller.active_namespaces());
        let error = ended.expect_err("a command hangs");
        assert!(
            matches!(error, Error::NoCompletion { .. }),
            "{hung}: {error}"
        );
        assert!(!rig.fake.is_enabled(), "{hung}: dropped, so disabled");
    }
}
