//! What a kernel gets instead of data: one word that says what failed, where.

use core::num::NonZeroU64;

use nvme_wire::Status;

/// Why an access failed. Fits one register; the host decodes it into words.
///
/// Layout: bits 0..4 kind, 4..19 NVMe status (0 unless the kind is [`ErrorKind::Status`] or
/// [`ErrorKind::Flush`]),
/// 19..31 queue (SSD × queues per SSD + queue), 31..64 line of the store (its low 33 bits); of
/// [`Blocks::read`](crate::Blocks::read) the block of the SSD.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct IoError(NonZeroU64);

/// The kinds of [`IoError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ErrorKind {
    /// The controller completed the command with an error status.
    Status = 1,
    /// No completion came before the deadline.
    Timeout = 2,
    /// The host asked the kernel to stop.
    Aborted = 3,
    /// The queue was given up before, by whoever timed out or was aborted with a command in it.
    QueueDead = 4,
    /// The index lies outside the array; the line field holds the index's low bits.
    OutOfRange = 5,
    /// A Flush of an SSD failed, with this status, or did not end if that is success.
    Flush = 6,
}

impl ErrorKind {
    /// The kind with this number; unknown numbers are out-of-range errors.
    #[inline(always)]
    pub(crate) const fn from_code(code: u16) -> Self {
        match code {
            1 => Self::Status,
            2 => Self::Timeout,
            3 => Self::Aborted,
            4 => Self::QueueDead,
            6 => Self::Flush,
            _ => Self::OutOfRange,
        }
    }
}

const KIND_BITS: u32 = 4;
const STATUS_BITS: u32 = 15;
const QUEUE_BITS: u32 = 12;
const QUEUE_SHIFT: u32 = KIND_BITS + STATUS_BITS;
const LINE_SHIFT: u32 = QUEUE_SHIFT + QUEUE_BITS;

impl IoError {
    /// Packs an error. `queue` and `line` keep their low 12 and 33 bits.
    #[inline(always)]
    pub const fn new(kind: ErrorKind, status: Status, queue: u32, line: u64) -> Self {
        let bits = kind as u64
            | ((status.bits() as u64 & ((1 << STATUS_BITS) - 1)) << KIND_BITS)
            | ((queue as u64 & ((1 << QUEUE_BITS) - 1)) << QUEUE_SHIFT)
            | (line << LINE_SHIFT);
        match NonZeroU64::new(bits) {
            Some(bits) => Self(bits),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The index `index` lies outside its array.
    #[inline(always)]
    pub const fn out_of_range(index: u64) -> Self {
        Self::new(ErrorKind::OutOfRange, Status::from_bits(0), 0, index)
    }

    /// The word, for memory that the host reads; never 0.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Reads a word written by [`IoError::to_bits`]; `None` if it is 0.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// What failed.
    pub const fn kind(self) -> ErrorKind {
        ErrorKind::from_code((self.to_bits() & ((1 << KIND_BITS) - 1)) as u16)
    }

    /// The NVMe status, if the kind is [`ErrorKind::Status`].
    pub const fn status(self) -> Status {
        Status::from_bits(((self.to_bits() >> KIND_BITS) & ((1 << STATUS_BITS) - 1)) as u16)
    }

    /// The queue pair: SSD × queues per SSD + queue.
    pub const fn queue(self) -> u32 {
        ((self.to_bits() >> QUEUE_SHIFT) & ((1 << QUEUE_BITS) - 1)) as u32
    }

    /// The line of the store (low 33 bits); the block for [`Blocks::read`](crate::Blocks::read),
    /// the index for [`ErrorKind::OutOfRange`].
    pub const fn line(self) -> u64 {
        self.to_bits() >> LINE_SHIFT
    }
}

impl core::fmt::Debug for IoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IoError")
            .field("kind", &self.kind())
            .field("status", &self.status())
            .field("queue", &self.queue())
            .field("line", &self.line())
            .finish()
    }
}

impl core::fmt::Display for IoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (queue, line) = (self.queue(), self.line());
        match self.kind() {
            ErrorKind::Status => write!(
                f,
                "the controller failed a command for line {line} on queue {queue}: {}",
                self.status().name()
            ),
            ErrorKind::Timeout => write!(
                f,
                "no completion for line {line} on queue {queue} before the deadline"
            ),
            ErrorKind::Aborted => {
                write!(
                    f,
                    "the host stopped the kernel while it waited for line {line}"
                )
            }
            ErrorKind::QueueDead => write!(
                f,
                "queue {queue} was given up after an earlier timeout, so line {line} is out of reach"
            ),
            ErrorKind::Flush if self.status().is_success() => {
                write!(f, "a Flush on queue {queue} did not end")
            }
            ErrorKind::Flush => write!(
                f,
                "the controller failed a Flush on queue {queue}: {}",
                self.status().name()
            ),
            ErrorKind::OutOfRange => write!(f, "index {line} lies outside the array"),
        }
    }
}

impl core::error::Error for IoError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_packing() {
        let status = Status::from_bits(0x4281);
        let error = IoError::new(ErrorKind::Status, status, 0xABC, 0x1_2345_6789);
        assert_eq!(error.kind(), ErrorKind::Status);
        assert_eq!(error.status(), status);
        assert_eq!(error.queue(), 0xABC);
        assert_eq!(error.line(), 0x1_2345_6789);
        assert_eq!(IoError::from_bits(error.to_bits()), Some(error));
        assert_eq!(IoError::from_bits(0), None);
    }

    #[test]
    fn a_result_of_a_word_fits_two_registers() {
        assert_eq!(size_of::<Option<IoError>>(), 8);
        assert_eq!(size_of::<Result<u32, IoError>>(), 16);
    }
}
