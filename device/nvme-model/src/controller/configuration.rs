//! What a controller is like, and what it must not be like.

use crate::Media;
use crate::faults::Faults;
use crate::layout::{self, MAX_NAMESPACES};
use crate::profile::Profile;

/// A controller's properties. Plain data without defaults: whoever builds a controller decides.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Serial number, at most 20 printable ASCII characters.
    pub serial: String,
    /// Model number, at most 40 printable ASCII characters.
    pub model: String,
    /// Namespaces 1, 2, …, one after another in the media.
    pub namespaces: Vec<Namespace>,
    /// MDTS: transfers up to 4096 × 2^MDTS bytes; 0 for no limit.
    pub mdts: u8,
    /// Entries of the largest queue, 2 to 65536 (CAP.MQES + 1).
    pub queue_entries: u32,
    /// Doorbells are 4 << DSTRD bytes apart; at most 15. 5 gives each its own GPU cache line.
    pub dstrd: u8,
    /// CAP.TO: longest wait for CSTS.RDY, in units of 500 ms.
    pub to: u8,
    /// I/O queue pairs, at least 1.
    pub queues: u16,
    /// Timing.
    pub profile: Profile,
    /// What is written is lost with the power until a Flush, FUA or a shutdown makes it durable
    /// ([`crate::Controller::power_cut`]). Not for lent media, and only where host threads serve
    /// the I/O queues. Otherwise a completed write is durable, as far as the model goes: blocks
    /// in a file are in the machine's page cache until a Flush.
    pub volatile_write_cache: bool,
    /// Offers Doorbell Buffer Config, as virtual controllers do: asked for it, it takes the doorbells
    /// of I/O queues from memory, which whoever serves them has to reach.
    pub shadow_doorbells: bool,
    /// What goes wrong in the I/O queues.
    pub faults: Faults,
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Size in LBAs.
    pub lbas: u64,
    /// Bytes of an LBA: 512 or 4096.
    pub lba_bytes: u32,
}

/// A configuration that no controller can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// A name is too long or not printable ASCII.
    #[error("{field} \"{value}\" is not 1 to {limit} printable ASCII characters")]
    Name {
        /// Which name.
        field: &'static str,
        /// Its value, escaped.
        value: String,
        /// Longest length.
        limit: usize,
    },
    /// A number is out of its range.
    #[error("{field} is {value}; it must be {expected}")]
    Value {
        /// Which number.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// The namespaces do not fit in the media.
    #[error("the namespaces take {needed} bytes, the media have {found}; use larger media")]
    MediaTooSmall {
        /// Bytes of the namespaces.
        needed: u64,
        /// Bytes of the media.
        found: u64,
    },
    /// The plan of faults cannot be followed.
    #[error("the faults hold {0}")]
    Faults(&'static str),
    /// A volatile write cache over media of somebody else.
    #[error("lent media have no volatile write cache; use media of the model's own, RAM or a file")]
    LentWriteCache,
    /// The volatile write cache cannot be mapped.
    #[error("cannot map the volatile write cache: {0}; use smaller media")]
    WriteCache(String),
}

impl Configuration {
    /// Bytes of media that the namespaces take; `None` beyond 2^64.
    pub fn media_bytes(&self) -> Option<u64> {
        let sizes = self
            .namespaces
            .iter()
            .map(|space| space.lbas.checked_mul(space.lba_bytes as u64));
        sizes
            .into_iter()
            .try_fold(0u64, |sum, size| sum.checked_add(size?))
    }

    /// True if completions may have to wait: for modelled time, or by a fault.
    pub(crate) fn is_timed(&self) -> bool {
        self.profile.is_timed() || !self.faults.rules.is_empty()
    }

    /// Entries of a pending ring: none are needed where completions do not wait.
    pub(crate) fn pending_entries(&self) -> u64 {
        if self.is_timed() {
            self.queue_entries.next_power_of_two() as u64
        } else {
            1
        }
    }

    /// Words of the image.
    pub(crate) fn image_words(&self) -> u64 {
        let (queues, entries) = (self.queues as u64, self.pending_entries());
        let late = if self.faults.has_late() {
            queues * entries * layout::LATE_WORDS
        } else {
            0
        };
        layout::words(queues, entries) + late
    }

    /// Largest transfer in bytes.
    pub(crate) fn max_transfer(&self) -> u64 {
        // NLB is 16 bits, so even without MDTS a transfer is below 2^32 bytes.
        if self.mdts == 0 {
            u32::MAX as u64
        } else {
            4096 << self.mdts
        }
    }

    /// Checks everything against itself and against the media.
    pub(crate) fn check(&self, media: &Media) -> Result<(), ConfigurationError> {
        if self.volatile_write_cache && media.is_lent() {
            return Err(ConfigurationError::LentWriteCache);
        }
        if let Some(problem) = self.faults.problem() {
            return Err(ConfigurationError::Faults(problem));
        }
        let (_, media) = media.place();
        name("serial", &self.serial, 20)?;
        name("model", &self.model, 40)?;
        let value = |field, value: u64, valid: bool, expected| {
            if valid {
                Ok(())
            } else {
                Err(ConfigurationError::Value {
                    field,
                    value,
                    expected,
                })
            }
        };
        let count = self.namespaces.len() as u64;
        value(
            "number of namespaces",
            count,
            (1..=MAX_NAMESPACES).contains(&count),
            "1 to 16",
        )?;
        for space in &self.namespaces {
            let lba = space.lba_bytes as u64;
            value(
                "LBA size",
                lba,
                lba == 512 || lba == 4096,
                "512 or 4096 bytes",
            )?;
            value(
                "namespace size",
                space.lbas,
                space.lbas != 0,
                "at least 1 LBA",
            )?;
        }
        value("MDTS", self.mdts as u64, self.mdts <= 19, "0 to 19")?;
        let entries = self.queue_entries as u64;
        value(
            "queue entries",
            entries,
            (2..=65536).contains(&entries),
            "2 to 65536",
        )?;
        value("DSTRD", self.dstrd as u64, self.dstrd <= 15, "0 to 15")?;
        value(
            "queue pairs",
            self.queues as u64,
            (1..=65534).contains(&self.queues),
            "1 to 65534",
        )?;
        let Some(needed) = self.media_bytes() else {
            return Err(ConfigurationError::MediaTooSmall {
                needed: u64::MAX,
                found: media,
            });
        };
        if media != 0 && needed > media {
            return Err(ConfigurationError::MediaTooSmall {
                needed,
                found: media,
            });
        }
        Ok(())
    }
}

fn name(field: &'static str, value: &str, limit: usize) -> Result<(), ConfigurationError> {
    let printable = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if value.is_empty() || value.len() > limit || !printable {
        let value = value.escape_debug().to_string();
        return Err(ConfigurationError::Name {
            field,
            value,
            limit,
        });
    }
    Ok(())
}
