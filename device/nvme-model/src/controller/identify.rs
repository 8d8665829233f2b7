//! Identify (Base 5.17) and Get Log Page (Base 5.16).

use nvme_wire::admin::{Cns, IdentifyCdw10};
use nvme_wire::identify::{
    EntrySizes, IdentifyController, IdentifyNamespace, LbaFormat, NamespaceList, Oacs, Vwc,
};
use nvme_wire::{Cqe, Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::Controller;
use super::admin::EVENT_REQUESTS;
use super::registers::VERSION;

impl Controller {
    pub(super) fn identify(&self, sqe: &Sqe) -> Status {
        let nsid = sqe.nsid();
        match Cns(IdentifyCdw10::from_bits(sqe.cdw10).cns()) {
            Cns::CONTROLLER => self.deliver(sqe, self.identify_controller().as_bytes()),
            Cns::NAMESPACE => match self.identify_namespace(nsid) {
                Some(page) => self.deliver(sqe, page.as_bytes()),
                None => Status::INVALID_NAMESPACE,
            },
            Cns::ACTIVE_NAMESPACES if nsid >= u32::MAX - 1 => Status::INVALID_NAMESPACE,
            Cns::ACTIVE_NAMESPACES => {
                let mut list = NamespaceList::new_zeroed();
                let active = 1..=self.configuration().namespaces.len() as u32;
                for (entry, above) in list.nsid.iter_mut().zip(active.filter(|&id| id > nsid)) {
                    *entry = above;
                }
                self.deliver(sqe, list.as_bytes())
            }
            Cns::NAMESPACE_DESCRIPTORS => match self.nguid(nsid) {
                Some(nguid) => {
                    // One descriptor: NIDT 2 is the NGUID, of 16 bytes.
                    let mut page = [0; 4096];
                    page[..4].copy_from_slice(&[2, 16, 0, 0]);
                    page[4..20].copy_from_slice(&nguid);
                    self.deliver(sqe, &page)
                }
                None => Status::INVALID_NAMESPACE,
            },
            _ => Status::INVALID_FIELD,
        }
    }

    fn identify_controller(&self) -> IdentifyController {
        let configuration = self.configuration();
        let mut page = IdentifyController::new_zeroed();
        padded(&mut page.sn, &configuration.serial);
        padded(&mut page.mn, &configuration.model);
        padded(&mut page.fr, env!("CARGO_PKG_VERSION"));
        page.mdts = configuration.mdts;
        page.ver = VERSION.into_bits();
        page.cntrltype = 1;
        page.acl_z = 3;
        page.aerl_z = EVENT_REQUESTS as u8 - 1;
        page.sqes = EntrySizes::new()
            .with_min(Sqe::SIZE_LOG2)
            .with_max(Sqe::SIZE_LOG2);
        page.cqes = EntrySizes::new()
            .with_min(Cqe::SIZE_LOG2)
            .with_max(Cqe::SIZE_LOG2);
        page.nn = configuration.namespaces.len() as u32;
        page.vwc_bits = Vwc::FLUSH_ALL.bits();
        if configuration.volatile_write_cache {
            page.vwc_bits |= Vwc::PRESENT.bits();
        }
        if configuration.shadow_doorbells {
            page.oacs_bits |= Oacs::DOORBELL_BUFFER.bits();
        }
        let name = format!(
            "nqn.2014-08.org.nvmexpress:warpstore:{}",
            configuration.serial
        );
        page.subnqn[..name.len()].copy_from_slice(name.as_bytes());
        page
    }

    fn identify_namespace(&self, nsid: u32) -> Option<IdentifyNamespace> {
        let nguid = self.nguid(nsid)?;
        let space = self.configuration().namespaces.get(nsid as usize - 1)?;
        let mut page = IdentifyNamespace::new_zeroed();
        page.nsze = space.lbas;
        page.ncap = space.lbas;
        page.nuse = space.lbas;
        page.nvmcap[0] = space.lbas * space.lba_bytes as u64;
        page.nguid = nguid;
        page.lbaf[0] = LbaFormat::new().with_lbads(space.lba_bytes.ilog2() as u8);
        Some(page)
    }

    /// A namespace's globally unique identifier, made from the serial number; `None` for a
    /// namespace that does not exist.
    fn nguid(&self, nsid: u32) -> Option<[u8; 16]> {
        let configuration = self.configuration();
        if nsid == 0 || nsid as usize > configuration.namespaces.len() {
            return None;
        }
        // FNV-1a.
        let hash = configuration
            .serial
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3)
            });
        Some(((hash as u128) << 64 | nsid as u128).to_be_bytes())
    }

    /// Error Information, SMART and Firmware Slot: all zero, as nothing ever happens here.
    pub(super) fn get_log_page(&self, sqe: &Sqe) -> Status {
        let dwords = (sqe.cdw10 >> 16 | (sqe.cdw11 & 0xffff) << 16) as u64 + 1;
        match sqe.cdw10 as u8 {
            1..=3 if dwords > 1024 => Status::INVALID_FIELD,
            1..=3 => self.deliver(sqe, &[0; 4096][..4 * dwords as usize]),
            _ => Status::INVALID_LOG_PAGE,
        }
    }
}

/// ASCII padded with spaces; longer text is cut.
fn padded(field: &mut [u8], text: &str) {
    for (to, from) in field
        .iter_mut()
        .zip(text.bytes().chain(std::iter::repeat(b' ')))
    {
        *to = from;
    }
}
