//! Decoders of nvme-wire, on any bytes: none panics, and what they decode encodes to the same.
#![no_main]

use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use nvme_wire::admin::{
    AbortCdw10, AdminOpcode, CreateCqCdw11, CreateSqCdw11, Feature, FeatureCdw10, IdentifyCdw10,
    NumberOfQueues, QueueCdw10,
};
use nvme_wire::identify::{
    Flbas, IdentifyController, IdentifyNamespace, LbaFormat, NamespaceList, PAGE,
};
use nvme_wire::regs::{Aqa, Cap, Cc, Crto, Csts, Vs, doorbell_offset};
use nvme_wire::sqe::IoOpcode;
use nvme_wire::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((sqe, rest)) = Sqe::read_from_prefix(bytes) {
        submission(sqe);
        registers(rest);
    }
    if let Ok((cqe, _)) = Cqe::read_from_prefix(bytes) {
        completion(cqe);
    }
    page(bytes);
});

fn submission(sqe: Sqe) {
    assert_eq!(Sqe::from_words(sqe.to_words()), sqe);
    let renamed = sqe.with_cid(!sqe.cid());
    assert_eq!(renamed.cid(), !sqe.cid());
    assert_eq!(renamed.with_cid(sqe.cid()), sqe);
    black_box((
        IoOpcode(sqe.opcode()).name(),
        AdminOpcode(sqe.opcode()).name(),
    ));
    let (slba, nlb_z) = (sqe.slba(), sqe.nlb_z());
    let read = Sqe::read(sqe.nsid(), slba, nlb_z, sqe.prp1(), sqe.prp2());
    assert_eq!((read.slba(), read.nlb_z(), read.flags()), (slba, nlb_z, 0));

    // Each view of a command dword keeps the bits that it does not name.
    let (cdw10, cdw11) = (sqe.cdw10, sqe.cdw11);
    assert_eq!(IdentifyCdw10::from_bits(cdw10).into_bits(), cdw10);
    assert_eq!(QueueCdw10::from_bits(cdw10).into_bits(), cdw10);
    assert_eq!(FeatureCdw10::from_bits(cdw10).into_bits(), cdw10);
    assert_eq!(AbortCdw10::from_bits(cdw10).into_bits(), cdw10);
    assert_eq!(CreateCqCdw11::from_bits(cdw11).into_bits(), cdw11);
    assert_eq!(CreateSqCdw11::from_bits(cdw11).into_bits(), cdw11);
    assert_eq!(NumberOfQueues::from_bits(cdw11).into_bits(), cdw11);
    black_box(Feature(FeatureCdw10::from_bits(cdw10).fid()).name());
    black_box(format!("{:?}", QueueCdw10::from_bits(cdw10)));
}

fn completion(cqe: Cqe) {
    let words = cqe.to_words();
    assert_eq!(Cqe::from_words(words), cqe);
    assert_eq!(cqe.phase(), Cqe::phase_of(words[1]));
    let status = cqe.status();
    assert_eq!(Status::from_bits(status.bits()), status);
    assert_eq!(Status::new(status.sct(), status.sc()), status.code());
    assert!(!(status.is_success() && status.is_retryable()));
    assert!(!status.with_dnr().is_retryable() && !status.name().is_empty());
    let again = Cqe::new(cqe.cid, status, cqe.phase())
        .with_result(cqe.dw0)
        .with_sq(cqe.sqid, cqe.sqhd);
    // Only Dword 1 has no constructor.
    let [low, high] = again.to_words();
    assert_eq!([low | u64::from(cqe.dw1) << 32, high], words);
}

fn registers(bytes: &[u8]) {
    let Ok((bits, rest)) = u64::read_from_prefix(bytes) else {
        return;
    };
    let half = bits as u32;
    let cap = Cap::from_bits(bits);
    assert_eq!(cap.into_bits(), bits);
    assert_eq!(Cc::from_bits(half).into_bits(), half);
    assert_eq!(Csts::from_bits(half).into_bits(), half);
    assert_eq!(Aqa::from_bits(half).into_bits(), half);
    assert_eq!(Vs::from_bits(half).into_bits(), half);
    assert_eq!(Crto::from_bits(half).into_bits(), half);
    black_box(format!(
        "{cap:?} {:?} {:?}",
        Cc::from_bits(half),
        Csts::from_bits(half)
    ));

    let Ok((qid, _)) = u16::read_from_prefix(rest) else {
        return;
    };
    let [tail, head] = [false, true].map(|is_cq| doorbell_offset(qid, is_cq, cap.dstrd()));
    assert!(tail >= 0x1000 && head - tail == 4 << cap.dstrd());
}

/// Identify pages, the missing bytes being zero.
fn page(bytes: &[u8]) {
    let mut whole = [0; PAGE];
    let given = bytes.len().min(PAGE);
    whole[..given].copy_from_slice(&bytes[..given]);

    let namespace = IdentifyNamespace::read_from_bytes(&whole).unwrap();
    assert_eq!(namespace.to_words().as_bytes(), whole);
    let index = namespace.format_index();
    match namespace.format() {
        Some(format) => {
            assert!(index <= namespace.nlbaf_z);
            assert_eq!(LbaFormat::from_bits(format.into_bits()), format);
        }
        None => assert!(index > namespace.nlbaf_z),
    }
    assert!(namespace.protection_type() < 8);
    assert_eq!(Flbas::from_bits(whole[26]).into_bits(), whole[26]);

    let controller = IdentifyController::read_from_bytes(&whole).unwrap();
    assert_eq!(controller.to_words().as_bytes(), whole);
    black_box(format!(
        "{:?} {:?} {:?} {:?}",
        controller.oacs(),
        controller.oncs(),
        controller.vwc(),
        controller.sqes
    ));

    let list = NamespaceList::read_from_bytes(&whole).unwrap();
    assert!(list.active().all(|nsid| nsid != 0));
    assert!(list.active().count() <= NamespaceList::LEN);
}
