//! The emulated controller, driven by a submitter that does anything: arbitrary doorbells, SQEs,
//! admin commands, PRP lists, register writes, in any order.
//!
//! What must hold meanwhile:
//! - nothing panics, and the admin queue and queue pair 1 come up before anything else is done;
//! - a completion queue gets no more CQEs than its submitter has room for, each with the right
//!   phase, and nothing else in it changes (as long as the queue lives: see `Rig::write32`);
//! - memory that is not mapped is neither written (its contents are compared) nor read (it lies
//!   in allocations of its own, which AddressSanitizer surrounds).
#![no_main]

mod input;
mod queue;
mod rig;

use input::Input;
use libfuzzer_sys::fuzz_target;
use nvme_wire::Sqe;
use rig::Rig;

/// Steps of one input: enough to fill every ring several times.
const MOST_OPERATIONS: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut rig = Rig::up(&mut input);
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        operate(&mut rig, &mut input);
    }
    rig.step(1 << 40);
    rig.finish();
});

fn operate(rig: &mut Rig, input: &mut Input<'_>) {
    match input.byte() % 10 {
        0 | 1 => rig.step(u64::from(input.half()) << 8),
        2 => rig.ring(input.doorbell_queue(), false, input.index(rig::SQ_ENTRIES)),
        3 => rig.ring(input.doorbell_queue(), true, input.index(rig::CQ_ENTRIES)),
        4 => {
            let sqe = admin_command(rig, input);
            rig.submit_admin(sqe);
        }
        5 => {
            let (slot, sqe) = (input.byte(), io_command(rig, input));
            rig.put_io(slot, sqe);
        }
        6 => {
            let (slot, words) = (input.byte(), std::array::from_fn(|_| input.word()));
            rig.put_io(slot, Sqe::from_words(words));
        }
        7 => {
            let (at, address) = (input.half(), input.address(rig));
            rig.poke(at, address);
        }
        8 => {
            let (at, value) = (input.offset(), input.word());
            rig.write32(at, value as u32);
            rig.write64(at & !7, value);
        }
        _ => {
            let at = input.offset();
            std::hint::black_box((rig.controller.read32(at), rig.controller.read64(at & !7)));
        }
    }
}

/// An admin command whose opcode is mostly one that exists, and whose pointers mostly point.
fn admin_command(rig: &Rig, input: &mut Input<'_>) -> Sqe {
    const OPCODES: [u8; 10] = [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c];
    let choice = input.byte();
    let opcode = OPCODES.get(usize::from(choice)).copied().unwrap_or(choice);
    Sqe {
        cdw0: u32::from(opcode) | u32::from(input.half()) << 16,
        nsid: u32::from(input.byte() % 4),
        prp1: input.address(rig),
        prp2: input.address(rig),
        // Queue and size, or CNS, or feature: small numbers mean something everywhere.
        cdw10: u32::from(input.byte() % 8) | u32::from(input.byte() % 20) << 16,
        cdw11: u32::from(input.byte() % 4) | u32::from(input.byte() % 4) << 16,
        ..Sqe::default()
    }
}

fn io_command(rig: &Rig, input: &mut Input<'_>) -> Sqe {
    let (opcode, nsid) = (input.byte() % 4, input.byte());
    let nsid = if nsid == 0xff {
        u32::MAX
    } else {
        u32::from(nsid % 4)
    };
    let (slba, nlb_z) = (u64::from(input.half() % 80), u16::from(input.byte() % 80));
    let (prp1, prp2) = (input.address(rig), input.address(rig));
    let sqe = Sqe::read(nsid, slba, nlb_z, prp1, prp2);
    Sqe {
        cdw0: u32::from(opcode),
        ..sqe
    }
    .with_cid(input.half())
}
