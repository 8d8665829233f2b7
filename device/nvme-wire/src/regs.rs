//! Controller registers (Base 3.1.3) and the place of the doorbells (Base 3.1.3.25 and
//! PCIe Transport 3.1.2).

use bitfield_struct::bitfield;

/// Byte offsets of the registers in BAR 0 (Base 3.1.3, figure "Property Definition").
pub mod offset {
    /// Controller Capabilities, 64 bits.
    pub const CAP: u64 = 0x00;
    /// Version, 32 bits.
    pub const VS: u64 = 0x08;
    /// Interrupt Mask Set, 32 bits.
    pub const INTMS: u64 = 0x0c;
    /// Interrupt Mask Clear, 32 bits.
    pub const INTMC: u64 = 0x10;
    /// Controller Configuration, 32 bits.
    pub const CC: u64 = 0x14;
    /// Controller Status, 32 bits.
    pub const CSTS: u64 = 0x1c;
    /// NVM Subsystem Reset, 32 bits.
    pub const NSSR: u64 = 0x20;
    /// Admin Queue Attributes, 32 bits.
    pub const AQA: u64 = 0x24;
    /// Admin Submission Queue Base Address, 64 bits.
    pub const ASQ: u64 = 0x28;
    /// Admin Completion Queue Base Address, 64 bits.
    pub const ACQ: u64 = 0x30;
    /// Controller Memory Buffer Location, 32 bits.
    pub const CMBLOC: u64 = 0x38;
    /// Controller Memory Buffer Size, 32 bits.
    pub const CMBSZ: u64 = 0x3c;
    /// Controller Ready Timeouts, 32 bits.
    pub const CRTO: u64 = 0x68;
    /// The first doorbell.
    pub const DOORBELLS: u64 = 0x1000;
}

/// Byte offset in BAR 0 of a doorbell: the SQ tail of queue `qid`, or its CQ head.
///
/// `dstrd` is [`Cap::dstrd`]; its field has four bits, and only those are used.
#[inline(always)]
pub const fn doorbell_offset(qid: u16, is_cq: bool, dstrd: u8) -> u64 {
    offset::DOORBELLS + ((2 * qid as u64 + is_cq as u64) << (2 + (dstrd & 0xf)))
}

/// Controller Capabilities (Base 3.1.3.1).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// Maximum Queue Entries Supported, zero-based; 0 is not allowed.
    #[bits(16)]
    pub mqes_z: u16,
    /// Contiguous Queues Required.
    pub cqr: bool,
    /// Arbitration mechanisms besides round robin.
    #[bits(2)]
    pub ams: u8,
    #[bits(5)]
    __: u8,
    /// Timeout: longest wait for CSTS.RDY after CC.EN changes, in units of 500 ms.
    #[bits(8)]
    pub to: u8,
    /// Doorbell Stride: doorbells are 4 << DSTRD bytes apart.
    #[bits(4)]
    pub dstrd: u8,
    /// NVM Subsystem Reset Supported.
    pub nssrs: bool,
    /// Command Sets Supported; see [`Cap::CSS_NVM`] and its neighbours.
    #[bits(8)]
    pub css: u8,
    /// Boot Partition Support.
    pub bps: bool,
    /// Controller Power Scope.
    #[bits(2)]
    pub cps: u8,
    /// Memory Page Size Minimum: 2^(12 + MPSMIN) bytes.
    #[bits(4)]
    pub mpsmin: u8,
    /// Memory Page Size Maximum: 2^(12 + MPSMAX) bytes.
    #[bits(4)]
    pub mpsmax: u8,
    /// Persistent Memory Region Supported.
    pub pmrs: bool,
    /// Controller Memory Buffer Supported.
    pub cmbs: bool,
    /// NVM Subsystem Shutdown Supported.
    pub nsss: bool,
    /// Controller Ready Modes Supported: bit 0 with media, bit 1 independent of media.
    #[bits(2)]
    pub crms: u8,
    #[bits(3)]
    __: u8,
}

impl Cap {
    /// Bit of [`Cap::css`]: the NVM Command Set.
    pub const CSS_NVM: u8 = 1 << 0;
    /// Bit of [`Cap::css`]: one or more I/O Command Sets, chosen by CC.CSS = 110b.
    pub const CSS_IO_SETS: u8 = 1 << 6;
    /// Bit of [`Cap::css`]: no I/O Command Set, admin commands only.
    pub const CSS_ADMIN_ONLY: u8 = 1 << 7;
    /// Bit of [`Cap::crms`]: ready with media, whose time limit is CRTO.CRWMT.
    pub const CRMS_WITH_MEDIA: u8 = 1 << 0;
}

/// Version (Base 3.1.3.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Vs {
    /// Tertiary version number.
    pub ter: u8,
    /// Minor version number.
    pub mnr: u8,
    /// Major version number.
    pub mjr: u16,
}

/// Controller Configuration (Base 3.1.3.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// Enable.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// I/O Command Set Selected; see [`Cc::CSS_NVM`] and its neighbours.
    #[bits(3)]
    pub css: u8,
    /// Memory Page Size: 2^(12 + MPS) bytes.
    #[bits(4)]
    pub mps: u8,
    /// Arbitration Mechanism Selected; 0 is round robin.
    #[bits(3)]
    pub ams: u8,
    /// Shutdown Notification; see [`Cc::SHN_NORMAL`].
    #[bits(2)]
    pub shn: u8,
    /// I/O Submission Queue Entry Size: 2^IOSQES bytes.
    #[bits(4)]
    pub iosqes: u8,
    /// I/O Completion Queue Entry Size: 2^IOCQES bytes.
    #[bits(4)]
    pub iocqes: u8,
    /// Controller Ready Independent of Media Enable.
    pub crime: bool,
    #[bits(7)]
    __: u8,
}

impl Cc {
    /// Value of [`Cc::css`]: the NVM Command Set.
    pub const CSS_NVM: u8 = 0b000;
    /// Value of [`Cc::css`]: all I/O Command Sets that the controller supports.
    pub const CSS_ALL: u8 = 0b110;
    /// Value of [`Cc::css`]: admin commands only.
    pub const CSS_ADMIN_ONLY: u8 = 0b111;
    /// Value of [`Cc::shn`]: normal shutdown.
    pub const SHN_NORMAL: u8 = 0b01;
    /// Value of [`Cc::shn`]: abrupt shutdown.
    pub const SHN_ABRUPT: u8 = 0b10;
}

/// Controller Status (Base 3.1.3.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// Ready.
    pub rdy: bool,
    /// Controller Fatal Status.
    pub cfs: bool,
    /// Shutdown Status; see [`Csts::SHST_COMPLETE`].
    #[bits(2)]
    pub shst: u8,
    /// NVM Subsystem Reset Occurred.
    pub nssro: bool,
    /// Processing Paused.
    pub pp: bool,
    /// Shutdown Type.
    pub st: bool,
    #[bits(25)]
    __: u32,
}

impl Csts {
    /// Value of [`Csts::shst`]: no shutdown has been requested.
    pub const SHST_NORMAL: u8 = 0b00;
    /// Value of [`Csts::shst`]: shutdown is in progress.
    pub const SHST_OCCURRING: u8 = 0b01;
    /// Value of [`Csts::shst`]: shutdown is complete.
    pub const SHST_COMPLETE: u8 = 0b10;
}

/// Admin Queue Attributes (Base 3.1.3.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// Admin Submission Queue Size in entries, zero-based.
    #[bits(12)]
    pub asqs_z: u16,
    #[bits(4)]
    __: u8,
    /// Admin Completion Queue Size in entries, zero-based.
    #[bits(12)]
    pub acqs_z: u16,
    #[bits(4)]
    __: u8,
}

/// Controller Ready Timeouts (Base 3.1.3.21).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Crto {
    /// Controller Ready With Media Timeout, in units of 500 ms.
    pub crwmt: u16,
    /// Controller Ready Independent of Media Timeout, in units of 500 ms.
    pub crimt: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_sit_where_the_specification_puts_them() {
        assert_eq!(Cap::new().with_mqes_z(0xffff).into_bits(), 0xffff);
        assert_eq!(Cap::new().with_cqr(true).into_bits(), 1 << 16);
        assert_eq!(Cap::new().with_ams(3).into_bits(), 3 << 17);
        assert_eq!(Cap::new().with_to(0xff).into_bits(), 0xff << 24);
        assert_eq!(Cap::new().with_dstrd(0xf).into_bits(), 0xf << 32);
        assert_eq!(Cap::new().with_nssrs(true).into_bits(), 1 << 36);
        assert_eq!(Cap::new().with_css(0xff).into_bits(), 0xff << 37);
        assert_eq!(Cap::new().with_mpsmin(0xf).into_bits(), 0xf << 48);
        assert_eq!(Cap::new().with_mpsmax(0xf).into_bits(), 0xf << 52);
        assert_eq!(Cap::new().with_cmbs(true).into_bits(), 1 << 57);
        assert_eq!(Cap::new().with_crms(3).into_bits(), 3 << 59);

        assert_eq!(Cc::new().with_css(7).into_bits(), 7 << 4);
        assert_eq!(Cc::new().with_mps(0xf).into_bits(), 0xf << 7);
        assert_eq!(Cc::new().with_ams(7).into_bits(), 7 << 11);
        assert_eq!(Cc::new().with_shn(3).into_bits(), 3 << 14);
        assert_eq!(Cc::new().with_iosqes(0xf).into_bits(), 0xf << 16);
        assert_eq!(Cc::new().with_iocqes(0xf).into_bits(), 0xf << 20);
        assert_eq!(Cc::new().with_crime(true).into_bits(), 1 << 24);

        assert_eq!(Csts::new().with_cfs(true).with_shst(3).into_bits(), 0b1110);
        assert_eq!(
            Aqa::new().with_asqs_z(0xfff).with_acqs_z(0xfff).into_bits(),
            0x0fff_0fff
        );
        assert_eq!(Vs::new().with_mjr(2).with_mnr(1).into_bits(), 0x0002_0100);
        assert_eq!(Crto::new().with_crwmt(0x1234).into_bits(), 0x1234);
    }

    #[test]
    fn doorbells_do_not_wrap() {
        assert_eq!(doorbell_offset(0, false, 0), 0x1000);
        assert_eq!(doorbell_offset(0, true, 0), 0x1004);
        assert_eq!(doorbell_offset(3, false, 2), 0x1000 + 6 * 16);
        assert_eq!(
            doorbell_offset(0xffff, true, 15),
            0x1000 + 0x1_ffff * (4 << 15)
        );
    }
}
