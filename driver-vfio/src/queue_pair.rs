//! I/O queue pairs: what the caller brings, and the plain data that submitters get.

use nvme_queue::RingAddresses;
use nvme_wire::{Cqe, Sqe};

use crate::backing::Iova;
use crate::shadow::Shadow;

/// Memory for one ring, zeroed, and mapped for the controller by the caller.
///
/// It stays mapped until the queue pair has been deleted or the controller is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Address of the first entry, as submitters use it.
    pub address: u64,
    /// Address of the first entry, as the controller uses it; a multiple of
    /// [`Controller::page_bytes`](crate::Controller::page_bytes).
    pub iova: Iova,
}

/// A queue pair to create. Submission and completion queue have the same identifier and depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairRequest {
    /// Queue identifier, 1 to [`Controller::n_io_queues`](crate::Controller::n_io_queues).
    pub qid: u16,
    /// Entries of either ring: a power of two, from 2 to
    /// [`Controller::max_entries`](crate::Controller::max_entries).
    pub entries: u32,
    /// Submission ring, [`QueuePairRequest::sq_bytes`] long.
    pub sq: Ring,
    /// Completion ring, [`QueuePairRequest::cq_bytes`] long. A completion that an earlier queue
    /// left here would count as one of this queue, so the zeroes matter.
    pub cq: Ring,
}

impl QueuePairRequest {
    /// Bytes of a submission ring.
    pub const fn sq_bytes(entries: u32) -> u64 {
        (entries as u64) << Sqe::SIZE_LOG2
    }

    /// Bytes of a completion ring.
    pub const fn cq_bytes(entries: u32) -> u64 {
        (entries as u64) << Cqe::SIZE_LOG2
    }
}

/// A queue pair that exists in the controller, as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// Queue identifier.
    pub qid: u16,
    /// Entries of either ring.
    pub entries: u32,
    /// Rings as given; doorbells as the CPU reaches them. A GPU that reaches the doorbells
    /// elsewhere (a proxy's page, a BAR mapping of its own) replaces those two addresses.
    pub rings: RingAddresses,
    /// Where doorbells are rung first, SQ tail and CQ head, if the controller takes them from memory
    /// ([`Controller::use_shadow_doorbells`](crate::Controller::use_shadow_doorbells)). Submitters
    /// do not: a [`Proxy`](crate::Proxy) does for them.
    pub shadows: [Option<Shadow>; 2],
}
