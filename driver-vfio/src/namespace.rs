//! What Identify says about the controller and its namespaces, checked and in our own units.

use nvme_wire::identify::{IdentifyController, IdentifyNamespace, Oacs, PAGE_WORDS, Vwc};
use nvme_wire::regs::Cap;

use crate::error::NamespaceFault;

/// Blocks in the largest read or write: NLB has 16 bits and counts from zero.
const MAX_BLOCKS: u64 = 1 << 16;
/// log2 of the LBA sizes that can be used.
const LBADS: std::ops::RangeInclusive<u8> = 9..=16;

/// What the controller says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Serial number, printable.
    pub serial: String,
    /// Model number, printable.
    pub model: String,
    /// Firmware revision, printable.
    pub firmware: String,
    /// Most bytes of one read or write: by MDTS, and by one page of PRP entries.
    pub max_transfer: u64,
    /// True if a completed write is durable only after a Flush.
    pub volatile_write_cache: bool,
    /// Largest valid NSID.
    pub n_namespaces: u32,
    /// How long the controller may take to shut down, microseconds; 0 if it does not say.
    pub shutdown_us: u32,
    /// True if the controller, a virtual one, would also take doorbells from memory, if it is asked to
    /// ([`Controller::use_shadow_doorbells`](crate::Controller::use_shadow_doorbells)).
    pub shadow_doorbells: bool,
}

impl ControllerInfo {
    pub(crate) fn new(page: &IdentifyController, cap: Cap) -> Self {
        Self {
            serial: printable(&page.sn),
            model: printable(&page.mn),
            firmware: printable(&page.fr),
            max_transfer: max_transfer(page.mdts, cap),
            volatile_write_cache: page.vwc().contains(Vwc::PRESENT),
            n_namespaces: page.nn,
            shutdown_us: page.rtd3e,
            shadow_doorbells: page.oacs().contains(Oacs::DOORBELL_BUFFER),
        }
    }
}

/// A namespace that can be read: blocks of one size, without metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace identifier.
    pub nsid: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// log2 of the block size in bytes, 9 to 16.
    pub block_shift: u8,
    /// Most blocks of one read or write.
    pub max_blocks: u32,
    /// Blocks that a power failure leaves written whole or not at all.
    pub atomic_blocks: u32,
}

impl Namespace {
    pub(crate) fn new(
        nsid: u32,
        page: &IdentifyNamespace,
        max_transfer: u64,
        awupf_z: u16,
    ) -> Result<Self, NamespaceFault> {
        if page.nsze == 0 {
            return Err(NamespaceFault::Inactive);
        }
        let format = page.format().ok_or(NamespaceFault::Format {
            index: page.format_index(),
            formats: u16::from(page.nlbaf_z) + 1,
        })?;
        if !LBADS.contains(&format.lbads()) {
            return Err(NamespaceFault::LbaSize {
                lbads: format.lbads(),
            });
        }
        if page.nsze > u64::MAX >> format.lbads() {
            return Err(NamespaceFault::Size {
                blocks: page.nsze,
                lbads: format.lbads(),
            });
        }
        // Metadata would come along with the data, behind the end of the caller's buffer.
        if format.ms() != 0 {
            return Err(NamespaceFault::Metadata { ms: format.ms() });
        }
        if page.protection_type() != 0 {
            return Err(NamespaceFault::Protection(page.protection_type()));
        }
        let max_blocks = (max_transfer >> format.lbads()).min(MAX_BLOCKS);
        if max_blocks == 0 {
            return Err(NamespaceFault::LbaSize {
                lbads: format.lbads(),
            });
        }
        // Bit 1 of NSFEAT: the namespace has atomic units of its own (NVM 4.1.5.1).
        let awupf_z = if page.nsfeat & 2 != 0 {
            page.nawupf_z
        } else {
            awupf_z
        };
        Ok(Self {
            nsid,
            blocks: page.nsze,
            block_shift: format.lbads(),
            max_blocks: max_blocks as u32,
            atomic_blocks: u32::from(awupf_z) + 1,
        })
    }
}

/// The command set of a namespace by its list of descriptors (Base 5.17.2.3): type and length of
/// each, 4 bytes before its value, until a length is 0. NVM if none says so.
pub(crate) fn command_set(page: &[u64; PAGE_WORDS]) -> Result<(), NamespaceFault> {
    /// Type of the descriptor that holds the Command Set Identifier.
    const CSI: u8 = 4;
    const HEADER: usize = 4;
    let bytes: Vec<u8> = page.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut rest = bytes.as_slice();
    while let [kind, len, _, _, value @ ..] = rest
        && *len != 0
    {
        match (*kind, value) {
            (CSI, [0, ..]) => return Ok(()),
            (CSI, [set, ..]) => return Err(NamespaceFault::CommandSet(*set)),
            _ => {}
        }
        rest = rest.get(HEADER + usize::from(*len)..).unwrap_or_default();
    }
    Ok(())
}

/// Most bytes of one transfer: 2^MDTS pages of CAP.MPSMIN, where 0 is no limit (Base 5.17.2.1);
/// and what one page of PRP entries describes, as lists are not chained.
fn max_transfer(mdts: u8, cap: Cap) -> u64 {
    let page = page_bytes(cap);
    let by_list = page / 8 * page;
    let by_mdts = if mdts == 0 {
        None
    } else {
        1u64.checked_shl(mdts.into())
    };
    by_mdts
        .and_then(|pages| pages.checked_mul(page))
        .map_or(by_list, |bytes| bytes.min(by_list))
}

/// The memory page size that the driver chooses: the smallest one. Bytes.
pub(crate) fn page_bytes(cap: Cap) -> u64 {
    4096 << cap.mpsmin()
}

/// Text of an Identify page, which nobody has checked: trimmed, with what is not printable ASCII
/// escaped.
fn printable(field: &[u8]) -> String {
    let text = field.trim_ascii();
    text.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use nvme_wire::identify::{Flbas, LbaFormat};

    use super::*;

    fn page(format: LbaFormat) -> IdentifyNamespace {
        let mut page = IdentifyNamespace::from_words([0; 512]);
        page.nsze = 1000;
        page.lbaf[0] = format;
        page
    }

    fn namespace(page: &IdentifyNamespace) -> Result<Namespace, NamespaceFault> {
        Namespace::new(7, page, 2 << 20, 0)
    }

    #[test]
    fn mdts_of_zero_is_no_limit_and_a_large_one_does_not_overflow() {
        let cap = Cap::new();
        assert_eq!(max_transfer(0, cap), 2 << 20);
        assert_eq!(max_transfer(1, cap), 8192);
        assert_eq!(max_transfer(5, cap), 128 << 10);
        for mdts in [9, 52, 63, 64, 255] {
            assert_eq!(max_transfer(mdts, cap), 2 << 20, "MDTS {mdts}");
        }
        assert_eq!(max_transfer(1, Cap::new().with_mpsmin(4)), 128 << 10);
    }

    #[test]
    fn block_sizes_from_512_bytes_to_64_kib_are_taken() {
        for lbads in 0..=255 {
            let found = namespace(&page(LbaFormat::new().with_lbads(lbads)));
            match lbads {
                9..=16 => assert_eq!(found.unwrap().block_shift, lbads),
                _ => assert_eq!(found, Err(NamespaceFault::LbaSize { lbads })),
            }
        }
    }

    #[test]
    fn what_would_overrun_a_buffer_is_refused() {
        let plain = LbaFormat::new().with_lbads(9);
        assert_eq!(
            namespace(&page(plain.with_ms(8))),
            Err(NamespaceFault::Metadata { ms: 8 })
        );
        let mut protected = page(plain);
        protected.dps = 1;
        assert_eq!(namespace(&protected), Err(NamespaceFault::Protection(1)));
        let mut inactive = page(plain);
        inactive.nsze = 0;
        assert_eq!(namespace(&inactive), Err(NamespaceFault::Inactive));
        let mut endless = page(plain);
        endless.nsze = u64::MAX;
        let fault = NamespaceFault::Size {
            blocks: u64::MAX,
            lbads: 9,
        };
        assert_eq!(namespace(&endless), Err(fault));
        let mut undefined = page(plain);
        undefined.flbas = Flbas::new().with_index_low(3);
        let fault = NamespaceFault::Format {
            index: 3,
            formats: 1,
        };
        assert_eq!(namespace(&undefined), Err(fault));
    }

    /// A page that begins with these bytes.
    fn descriptors(bytes: &[u8]) -> [u64; PAGE_WORDS] {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        std::array::from_fn(|word| {
            u64::from_le_bytes(std::array::from_fn(|offset| byte(word * 8 + offset)))
        })
    }

    #[test]
    fn the_command_set_is_found_behind_other_descriptors() {
        let uuid = [&[3, 16, 0, 0][..], &[9; 16]].concat();
        let with = |csi: &[u8]| command_set(&descriptors(&[uuid.as_slice(), csi].concat()));
        assert_eq!(with(&[4, 1, 0, 0, 0]), Ok(()));
        assert_eq!(with(&[4, 1, 0, 0, 2]), Err(NamespaceFault::CommandSet(2)));
        assert_eq!(with(&[]), Ok(()), "no descriptor says so");
        assert_eq!(with(&[0, 0, 0, 0, 4, 1, 0, 0, 2]), Ok(()), "behind the end");
    }

    #[test]
    fn a_list_that_fills_its_page_ends() {
        assert_eq!(
            command_set(&[u64::from_le_bytes([1; 8]); PAGE_WORDS]),
            Ok(())
        );
        assert_eq!(command_set(&[u64::MAX; PAGE_WORDS]), Ok(()));
    }

    #[test]
    fn transfers_and_atomic_units_are_in_blocks() {
        let mut page = page(LbaFormat::new().with_lbads(12));
        let found = Namespace::new(7, &page, 128 << 10, 7).unwrap();
        assert_eq!((found.max_blocks, found.atomic_blocks), (32, 8));
        page.nsfeat = 2;
        page.nawupf_z = 3;
        assert_eq!(
            Namespace::new(7, &page, 128 << 10, 7)
                .unwrap()
                .atomic_blocks,
            4
        );
        page.lbaf[0] = LbaFormat::new().with_lbads(9);
        assert_eq!(
            Namespace::new(7, &page, 1 << 40, 7).unwrap().max_blocks,
            65536
        );
    }

    #[test]
    fn hostile_text_is_escaped() {
        assert_eq!(
            printable(b"  S3RIAL \x1b[31m\xff  "),
            "S3RIAL \\x1b[31m\\xff"
        );
        assert_eq!(printable(&[0; 20]), "\\x00".repeat(20));
    }
}
