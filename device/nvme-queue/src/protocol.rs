//! Which protocol a queue pair is used with.

/// How commands enter a queue and leave it. One for all who use the queue, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// One ticket a warp, ordered publication without a lock; whoever waits drains
    /// ([`Queue`](crate::Queue)).
    Hop = 0,
    /// BaM's: one ticket a thread, marks taken under a try-lock, each thread finds its own CQE
    /// ([`Bam`](crate::Bam)).
    Bam = 1,
    /// A lock around each ring, one doorbell an entry ([`Locked`](crate::Locked)).
    Lock = 2,
}

impl Protocol {
    /// Whether every lane acts for itself, so that lanes need not share a queue to go together.
    #[inline(always)]
    pub const fn is_per_lane(self) -> bool {
        !matches!(self, Self::Hop)
    }

    /// From the number in a description; unknown ones are [`Protocol::Hop`].
    #[inline(always)]
    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Bam,
            2 => Self::Lock,
            _ => Self::Hop,
        }
    }
}
