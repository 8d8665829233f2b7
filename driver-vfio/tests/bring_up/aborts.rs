//! Commands of block I/O that are late, and what a controller may answer to their Abort.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use driver_vfio::{Abort, Access, BlockIo, Controller, Deadlines, Enabled, Error, QueueMemory};
use nvme_wire::admin::{ABORT_NOT_DONE, AbortCdw10, AdminOpcode, Cns};
use nvme_wire::{Sqe, Status};
use warpstore_simt::{Cell, Order};

use crate::PATIENT;
use crate::answering::{Answer, Answering};
use crate::disk::Disk;
use crate::memory::Admin;
use crate::odd::{controller_page, enable_within, is_identify, usual};
use crate::registers::Script;

/// Bytes of the command to each of the driver's eight slots, which have two blocks each.
const EIGHT_COMMANDS: usize = 16 * 4096;
/// Their first blocks.
const FIRST_BLOCKS: [u64; 8] = [0, 2, 4, 6, 8, 10, 12, 14];

/// What is done about the Abort of a command that is held; others have completed already.
type OnAbort = fn(&mut Disk, u16) -> Answer;

struct Rig {
    answering: Answering,
    disk: Arc<Mutex<Disk>>,
}

impl Rig {
    /// A controller with queues of up to `entries` entries.
    fn new(entries: u16, on_abort: OnAbort) -> Self {
        let good = Script::good();
        let script = Script {
            cap: good.cap.with_mqes_z(entries - 1),
            ..good
        };
        let disk = Arc::new(Mutex::new(Disk::default()));
        let (answers, turns) = (disk.clone(), disk.clone());
        let answer = move |sqe: Sqe| answer(&mut answers.lock().unwrap(), sqe, on_abort);
        let turn = move |fake: &_| turns.lock().unwrap().turn(fake);
        Self {
            answering: Answering::serving(script, answer, turn),
            disk,
        }
    }

    fn enable(&self) -> Controller<Enabled> {
        let deadlines = Deadlines {
            command: Duration::from_millis(1000),
            ..PATIENT
        };
        enable_within(&self.answering, 1, deadlines).unwrap()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }
}

fn answer(disk: &mut Disk, sqe: Sqe, on_abort: OnAbort) -> Answer {
    match AdminOpcode(sqe.opcode()) {
        AdminOpcode::IDENTIFY if is_identify(sqe, Cns::CONTROLLER) => {
            let mut page = controller_page();
            // Two pages, which PRP1 and PRP2 name.
            page.mdts = 1;
            Answer::page(page.to_words())
        }
        AdminOpcode::CREATE_IO_CQ => disk.create_cq(sqe),
        AdminOpcode::CREATE_IO_SQ => disk.create_sq(sqe),
        AdminOpcode::DELETE_IO_SQ | AdminOpcode::DELETE_IO_CQ => disk.delete(),
        AdminOpcode::ABORT => {
            let cdw10 = AbortCdw10::from_bits(sqe.cdw10);
            assert_eq!(cdw10.sqid(), 1);
            if !disk.held().contains(&cdw10.cid()) {
                return Answer::result(ABORT_NOT_DONE);
            }
            disk.aborted.push(cdw10.cid());
            on_abort(disk, cdw10.cid())
        }
        _ => usual(sqe),
    }
}

/// Carries the Abort out: the command's completion comes first, as it should.
fn abort(disk: &mut Disk, cid: u16) -> Answer {
    disk.complete(cid, Status::ABORT_REQUESTED);
    Answer::result(0)
}

/// Carries the Abort out: the command's completion comes some milliseconds after the Abort's.
fn abort_later(disk: &mut Disk, cid: u16) -> Answer {
    disk.due = Some((cid, 200));
    Answer::result(0)
}

/// Never completes the Abort.
fn hang() -> Answer {
    Answer {
        posted: |_| Vec::new(),
        ..Answer::result(0)
    }
}

type Io<'c> = BlockIo<&'c mut Controller<Enabled>>;
/// An access of these bytes from an LBA on.
type Act = fn(&mut Io, u64, &mut [u8]) -> Result<(), Error>;

fn open(controller: &mut Controller<Enabled>) -> Io<'_> {
    let memory = Admin::new(controller.block_io_bytes());
    BlockIo::open(controller, 3, Access::ReadWrite, memory).unwrap()
}

fn is_abort_requested(error: &Error, first: u64) -> bool {
    matches!(error, Error::Io { range, status, .. }
        if range.lba == first && status.code() == Status::ABORT_REQUESTED)
}

#[test]
fn an_aborted_command_ends_with_its_completion_and_the_queue_goes_on() {
    let mut bytes = [0; EIGHT_COMMANDS];
    for (entries, on_abort, lba, access) in [
        (
            1024,
            abort as OnAbort,
            4,
            (|io, lba, bytes| io.read(lba, bytes)) as Act,
        ),
        (1024, abort_later, 0, |io, _, _| io.flush()),
        // One command at a time.
        (2, abort, 6, |io, lba, bytes| io.write(lba, bytes)),
    ] {
        let rig = Rig::new(entries, on_abort);
        let mut controller = rig.enable();
        let mut io = open(&mut controller);
        rig.disk().hold(&[lba]);
        let error = access(&mut io, 0, &mut bytes).expect_err("it was aborted");
        assert!(is_abort_requested(&error, lba), "{error}");
        assert_eq!(rig.disk().aborted.len(), 1);
        for _ in 0..10 {
            bytes.fill(0);
            io.read(8, &mut bytes).unwrap();
            assert!(bytes == Disk::bytes(8, EIGHT_COMMANDS)[..]);
        }
        io.close().unwrap().active_namespaces().unwrap();
    }
}

/// All of them are aborted, the next one when the one before has ended: ACL is 0, which is one.
#[test]
fn commands_that_hang_together_are_aborted_one_at_a_time() {
    let rig = Rig::new(1024, abort);
    let mut controller = rig.enable();
    let mut io = open(&mut controller);
    rig.disk().hold(&FIRST_BLOCKS[..3]);
    let error = io.read(0, &mut [0; EIGHT_COMMANDS]).expect_err("aborted");
    assert!(is_abort_requested(&error, 0), "{error}");
    assert_eq!(rig.disk().aborted.len(), 3);
    io.read(0, &mut [0; EIGHT_COMMANDS]).unwrap();
}

/// The command ends after its deadline, before the Abort is carried out; all others do too, so that
/// its completion is not the next one in the ring.
#[test]
fn a_completion_that_the_abort_comes_too_late_for_counts() {
    fn complete_all(disk: &mut Disk) {
        for cid in disk.held().into_iter().rev() {
            disk.complete(cid, Status::SUCCESS);
        }
    }
    for on_abort in [
        (|disk, _| {
            complete_all(disk);
            Answer::result(ABORT_NOT_DONE)
        }) as OnAbort,
        |disk, _| {
            complete_all(disk);
            Answer::status(Status::INVALID_OPCODE)
        },
        |disk, _| {
            complete_all(disk);
            hang()
        },
    ] {
        let rig = Rig::new(1024, on_abort);
        let mut controller = rig.enable();
        let mut io = open(&mut controller);
        rig.disk().hold(&FIRST_BLOCKS);
        let mut bytes = [0; EIGHT_COMMANDS];
        io.read(0, &mut bytes).unwrap();
        assert!(bytes == Disk::bytes(0, EIGHT_COMMANDS)[..]);
        assert_eq!(rig.disk().aborted.len(), 1);
        io.read(16, &mut bytes).unwrap();
    }
}

/// [VF-5] The controller says that it has aborted a command, and carries it out much later.
#[test]
fn that_its_abort_succeeded_does_not_end_a_command() {
    let rig = Rig::new(1024, |_, _| Answer::result(0));
    let mut controller = rig.enable();
    let mut io = open(&mut controller);
    rig.disk().hold(&[0]);
    let mut bytes = [0x11; EIGHT_COMMANDS];
    let late = |result: Result<(), Error>, wanted| {
        let error = result.expect_err("it has not ended");
        assert!(
            matches!(error, Error::IoLate { abort, .. } if abort == wanted),
            "{error}"
        );
    };
    late(io.read(0, &mut bytes), Abort::Done);
    // Nothing gets its slot, before the data comes and after.
    let fetched = rig.disk().fetched();
    late(io.read(0, &mut bytes), Abort::Unsent);
    let [cid] = rig.disk().aborted[..] else {
        panic!("one command was aborted")
    };
    rig.disk().complete(cid, Status::SUCCESS);
    late(io.read(0, &mut bytes), Abort::Unsent);
    assert_eq!(rig.disk().fetched(), fetched);
    assert!(bytes == [0x11; EIGHT_COMMANDS]);
    assert_eq!(rig.answering.fake.n_mapped(), 2, "it may still write there");
    drop(io);
    assert_eq!(rig.answering.fake.n_mapped(), 1, "its queue was deleted");
    open(&mut controller).read(0, &mut bytes).unwrap();
}

#[test]
fn an_abort_that_does_not_help_ends_the_queue() {
    let limit = Status::ABORT_LIMIT_EXCEEDED;
    for (on_abort, wanted, text) in [
        (
            (|_, _| Answer::result(ABORT_NOT_DONE)) as OnAbort,
            Abort::NotDone,
            "answered with \"not aborted\"",
        ),
        (
            |_, _| Answer::status(Status::ABORT_LIMIT_EXCEEDED),
            Abort::Refused(limit),
            "Abort was refused: Abort Command Limit Exceeded",
        ),
        (
            |_, _| Answer::status(Status::INVALID_OPCODE),
            Abort::Refused(Status::INVALID_OPCODE),
            "Abort was refused: Invalid Command Opcode",
        ),
        (|_, _| hang(), Abort::Late, "Abort was not completed"),
    ] {
        let rig = Rig::new(1024, on_abort);
        let mut controller = rig.enable();
        let mut io = open(&mut controller);
        rig.disk().hold(&FIRST_BLOCKS);
        let error = io.read(0, &mut [0; EIGHT_COMMANDS]).expect_err("it hangs");
        let told = error.to_string();
        assert!(
            matches!(error, Error::IoLate { range, abort, .. } if range.lba == 0 && abort == wanted),
            "{told}"
        );
        assert!(told.contains(text), "{told}");
        let dead = io.read(0, &mut [0; 4096]).expect_err("the queue is dead");
        assert!(matches!(dead, Error::IoLate { .. }), "{dead}");
        assert_eq!(rig.disk().aborted.len(), 1, "for eight that hang");
        let admin = io.close().map(drop);
        match wanted {
            Abort::Late => assert!(matches!(admin, Err(Error::NoCompletion { .. }))),
            _ => admin.unwrap(),
        }
    }
}

#[test]
fn a_wait_that_the_caller_ends_aborts_nothing() {
    let rig = Rig::new(1024, abort);
    let mut controller = rig.enable();
    let memory = Admin::new(controller.block_io_bytes());
    let mut io = BlockIo::open(&mut controller, 3, Access::ReadOnly, memory.clone()).unwrap();
    rig.disk().hold(&FIRST_BLOCKS);
    memory.cells().abort.store(1, Order::Relaxed);
    let error = io.read(0, &mut [0; EIGHT_COMMANDS]).expect_err("it hangs");
    assert!(
        matches!(
            error,
            Error::IoLate {
                abort: Abort::Unsent,
                ..
            }
        ),
        "{error}"
    );
    let commands = rig.answering.commands.lock().unwrap();
    let sent = |sqe: &Sqe| sqe.opcode() == AdminOpcode::ABORT.0;
    assert!(!commands.iter().any(sent));
}
