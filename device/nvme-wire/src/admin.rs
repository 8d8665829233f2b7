//! Admin commands that a polling host needs (Base 5), made by constructors of [`Sqe`] and taken
//! apart by the dword types here.

use bitfield_struct::bitfield;

use crate::{Sqe, open_set};

open_set! {
    /// Opcode of an admin command (Base 5, figure "Opcodes for Admin Commands").
    AdminOpcode(u8) {
        /// Delete I/O Submission Queue (Base 5.7).
        DELETE_IO_SQ = 0x00,
        /// Create I/O Submission Queue (Base 5.5).
        CREATE_IO_SQ = 0x01,
        /// Get Log Page (Base 5.16).
        GET_LOG_PAGE = 0x02,
        /// Delete I/O Completion Queue (Base 5.6).
        DELETE_IO_CQ = 0x04,
        /// Create I/O Completion Queue (Base 5.4).
        CREATE_IO_CQ = 0x05,
        /// Identify (Base 5.17).
        IDENTIFY = 0x06,
        /// Abort (Base 5.1).
        ABORT = 0x08,
        /// Set Features (Base 5.27).
        SET_FEATURES = 0x09,
        /// Get Features (Base 5.15).
        GET_FEATURES = 0x0a,
        /// Asynchronous Event Request (Base 5.2).
        ASYNC_EVENT_REQUEST = 0x0c,
        /// Doorbell Buffer Config (Base 5.8).
        DOORBELL_BUFFER_CONFIG = 0x7c,
    }
}

open_set! {
    /// Controller or Namespace Structure: which page Identify returns (Base 5.17.1).
    Cns(u8) {
        /// One namespace, by the NVM Command Set.
        NAMESPACE = 0x00,
        /// The controller.
        CONTROLLER = 0x01,
        /// Identifiers of active namespaces above the given one.
        ACTIVE_NAMESPACES = 0x02,
        /// What identifies one namespace (EUI64, NGUID, UUID, command set).
        NAMESPACE_DESCRIPTORS = 0x03,
    }
}

open_set! {
    /// Feature Identifier (Base 5.27.1).
    Feature(u8) {
        /// Volatile Write Cache (Base 5.27.1.4).
        VOLATILE_WRITE_CACHE = 0x06,
        /// Number of Queues (Base 5.27.1.5).
        NUMBER_OF_QUEUES = 0x07,
        /// Asynchronous Event Configuration (Base 5.27.1.8).
        ASYNC_EVENT_CONFIGURATION = 0x0b,
    }
}

/// Command Dword 10 of Identify (Base 5.17).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IdentifyCdw10 {
    /// Controller or Namespace Structure, a [`Cns`].
    pub cns: u8,
    #[bits(8)]
    __: u8,
    /// Controller identifier, where the structure has one.
    pub cntid: u16,
}

/// Command Dword 10 of both Create commands (Base 5.4, 5.5); the Delete commands use its QID.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QueueCdw10 {
    /// Queue identifier, 1 and above.
    pub qid: u16,
    /// Queue size in entries, zero-based.
    pub qsize_z: u16,
}

/// Command Dword 11 of Create I/O Completion Queue (Base 5.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateCqCdw11 {
    /// Physically contiguous: PRP1 is the ring, not a list.
    pub pc: bool,
    /// Interrupts enabled.
    pub ien: bool,
    #[bits(14)]
    __: u16,
    /// Interrupt vector.
    pub iv: u16,
}

/// Command Dword 11 of Create I/O Submission Queue (Base 5.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateSqCdw11 {
    /// Physically contiguous: PRP1 is the ring, not a list.
    pub pc: bool,
    /// Priority under weighted round robin.
    #[bits(2)]
    pub qprio: u8,
    #[bits(13)]
    __: u16,
    /// Completion queue that completions go to.
    pub cqid: u16,
}

/// Command Dword 10 of Set Features and Get Features (Base 5.15, 5.27).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FeatureCdw10 {
    /// Feature identifier, a [`Feature`].
    pub fid: u8,
    /// Select, for Get Features: 0 is the current value.
    #[bits(3)]
    pub sel: u8,
    #[bits(20)]
    __: u32,
    /// Save, for Set Features.
    pub sv: bool,
}

/// Command Dword 11 of Set Features and Dword 0 of the completion, for Number of Queues
/// (Base 5.27.1.5). Asked for, or granted; I/O queues only. 65535 may not be asked for.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NumberOfQueues {
    /// Submission queues, zero-based.
    pub nsq_z: u16,
    /// Completion queues, zero-based.
    pub ncq_z: u16,
}

/// Command Dword 10 of Abort (Base 5.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AbortCdw10 {
    /// Submission queue of the command to abort.
    pub sqid: u16,
    /// Command identifier of the command to abort.
    pub cid: u16,
}

/// Dword 0 of an Abort's completion: bit 0 is set if the command was *not* aborted (Base 5.1).
pub const ABORT_NOT_DONE: u32 = 1;

impl Sqe {
    /// Identify: write the 4096-byte structure `cns` to `prp1`, which is page aligned.
    #[inline]
    pub const fn identify(cns: Cns, nsid: u32, prp1: u64) -> Self {
        let cdw10 = IdentifyCdw10::new().with_cns(cns.0).into_bits();
        Self {
            nsid,
            prp1,
            cdw10,
            ..Self::of(AdminOpcode::IDENTIFY.0)
        }
    }

    /// Create a polled I/O completion queue of `qsize_z + 1` entries, contiguous from `prp1` on.
    #[inline]
    pub const fn create_io_cq(qid: u16, qsize_z: u16, prp1: u64) -> Self {
        let cdw10 = QueueCdw10::new()
            .with_qid(qid)
            .with_qsize_z(qsize_z)
            .into_bits();
        let cdw11 = CreateCqCdw11::new().with_pc(true).into_bits();
        Self {
            prp1,
            cdw10,
            cdw11,
            ..Self::of(AdminOpcode::CREATE_IO_CQ.0)
        }
    }

    /// Create an I/O submission queue of `qsize_z + 1` entries, contiguous from `prp1` on, whose
    /// completions go to `cqid`.
    #[inline]
    pub const fn create_io_sq(qid: u16, qsize_z: u16, cqid: u16, prp1: u64) -> Self {
        let cdw10 = QueueCdw10::new()
            .with_qid(qid)
            .with_qsize_z(qsize_z)
            .into_bits();
        let cdw11 = CreateSqCdw11::new()
            .with_pc(true)
            .with_cqid(cqid)
            .into_bits();
        Self {
            prp1,
            cdw10,
            cdw11,
            ..Self::of(AdminOpcode::CREATE_IO_SQ.0)
        }
    }

    /// Delete an I/O submission queue; before its completion queue.
    #[inline]
    pub const fn delete_io_sq(qid: u16) -> Self {
        Self {
            cdw10: qid as u32,
            ..Self::of(AdminOpcode::DELETE_IO_SQ.0)
        }
    }

    /// Delete an I/O completion queue that no submission queue uses.
    #[inline]
    pub const fn delete_io_cq(qid: u16) -> Self {
        Self {
            cdw10: qid as u32,
            ..Self::of(AdminOpcode::DELETE_IO_CQ.0)
        }
    }

    /// Ask for I/O queues; the completion's Dword 0 is the [`NumberOfQueues`] granted.
    #[inline]
    pub const fn set_number_of_queues(asked: NumberOfQueues) -> Self {
        let cdw10 = FeatureCdw10::new()
            .with_fid(Feature::NUMBER_OF_QUEUES.0)
            .into_bits();
        Self {
            cdw10,
            cdw11: asked.into_bits(),
            ..Self::of(AdminOpcode::SET_FEATURES.0)
        }
    }

    /// Get the current value of a feature that fits in the completion's Dword 0.
    #[inline]
    pub const fn get_feature(feature: Feature) -> Self {
        let cdw10 = FeatureCdw10::new().with_fid(feature.0).into_bits();
        Self {
            cdw10,
            ..Self::of(AdminOpcode::GET_FEATURES.0)
        }
    }

    /// Abort command `cid` of submission queue `sqid`; see [`ABORT_NOT_DONE`].
    #[inline]
    pub const fn abort(sqid: u16, cid: u16) -> Self {
        let cdw10 = AbortCdw10::new().with_sqid(sqid).with_cid(cid).into_bits();
        Self {
            cdw10,
            ..Self::of(AdminOpcode::ABORT.0)
        }
    }

    /// Doorbell Buffer Config: have the controller take doorbells from the page at `shadow`, and say in the
    /// page at `event` for which of them it wants registers to be rung as well. Both pages are laid out as
    /// the registers are.
    #[inline]
    pub const fn doorbell_buffer_config(shadow: u64, event: u64) -> Self {
        Self {
            prp1: shadow,
            prp2: event,
            ..Self::of(AdminOpcode::DOORBELL_BUFFER_CONFIG.0)
        }
    }

    /// Wait for an asynchronous event; completes when there is one.
    #[inline]
    pub const fn async_event_request() -> Self {
        Self::of(AdminOpcode::ASYNC_EVENT_REQUEST.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn create_commands_are_contiguous_and_polled() {
        let cq = Sqe::create_io_cq(3, 1023, 0x7000);
        assert_eq!(
            (cq.opcode(), cq.prp1, cq.cdw10, cq.cdw11),
            (5, 0x7000, 3 | 1023 << 16, 1)
        );
        let sq = Sqe::create_io_sq(4, 63, 3, 0x9000);
        assert_eq!(
            (sq.opcode(), sq.prp1, sq.cdw10, sq.cdw11),
            (1, 0x9000, 4 | 63 << 16, 1 | 3 << 16)
        );
    }

    #[test]
    fn delete_commands_name_the_queue() {
        assert_eq!(
            (Sqe::delete_io_sq(9).opcode(), Sqe::delete_io_sq(9).cdw10),
            (0, 9)
        );
        assert_eq!(
            (Sqe::delete_io_cq(9).opcode(), Sqe::delete_io_cq(9).cdw10),
            (4, 9)
        );
    }

    #[test]
    fn identify_and_features() {
        let page = Sqe::identify(Cns::ACTIVE_NAMESPACES, 7, 0x5000);
        assert_eq!(
            (page.opcode(), page.nsid, page.prp1, page.cdw10),
            (6, 7, 0x5000, 2)
        );
        let asked = NumberOfQueues::new().with_nsq_z(7).with_ncq_z(15);
        let set = Sqe::set_number_of_queues(asked);
        assert_eq!((set.opcode(), set.cdw10, set.cdw11), (9, 7, 7 | 15 << 16));
        let get = Sqe::get_feature(Feature::NUMBER_OF_QUEUES);
        assert_eq!((get.opcode(), get.cdw10), (0x0a, 7));
        assert_eq!(Sqe::async_event_request().opcode(), 0x0c);
    }

    #[test]
    fn unknown_values_survive() {
        assert_eq!(AdminOpcode(0xc1).name(), "unknown");
        assert_eq!(AdminOpcode::IDENTIFY.name(), "IDENTIFY");
    }

    proptest! {
        #[test]
        fn dwords_round_trip(sqid: u16, cid: u16, pc: bool, ien: bool, iv: u16) {
            let abort = AbortCdw10::from_bits(Sqe::abort(sqid, cid).cdw10);
            prop_assert_eq!((abort.sqid(), abort.cid()), (sqid, cid));
            let cdw11 = CreateCqCdw11::new().with_pc(pc).with_ien(ien).with_iv(iv);
            prop_assert_eq!(CreateCqCdw11::from_bits(cdw11.into_bits()), cdw11);
            prop_assert_eq!(cdw11.into_bits(), pc as u32 | (ien as u32) << 1 | (iv as u32) << 16);
        }
    }
}
