//! The status field of a completion (Base 3.3.3.2.1).

/// The 15 status bits of a completion: SC 7:0, SCT 10:8, CRD 12:11, M 13, DNR 14.
///
/// Open and total: every value of the bits is a `Status`. Named constants carry SCT and SC only;
/// compare with [`Status::code`], which drops the other bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(u16);

impl Status {
    const CODE: u16 = 0x07ff;
    const MORE: u16 = 1 << 13;
    const DNR: u16 = 1 << 14;

    /// Status code type "Generic Command Status".
    pub const SCT_GENERIC: u8 = 0;
    /// Status code type "Command Specific Status".
    pub const SCT_COMMAND: u8 = 1;
    /// Status code type "Media and Data Integrity Errors".
    pub const SCT_MEDIA: u8 = 2;
    /// Status code type "Path Related Status".
    pub const SCT_PATH: u8 = 3;
    /// Status code type "Vendor Specific".
    pub const SCT_VENDOR: u8 = 7;

    /// A status of this type and code; of `sct` only the low three bits count.
    #[inline(always)]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 7) << 8 | sc as u16)
    }

    /// The status that these bits hold; bit 15 is ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The 15 bits.
    #[inline(always)]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The same status with Do Not Retry set.
    #[inline(always)]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }

    /// Status Code.
    #[inline(always)]
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Status Code Type.
    #[inline(always)]
    pub const fn sct(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Command Retry Delay: 0, or which of CRDT1 to CRDT3 to wait.
    #[inline(always)]
    pub const fn crd(self) -> u8 {
        (self.0 >> 11 & 3) as u8
    }

    /// More: the Error Information log page says more.
    #[inline(always)]
    pub const fn more(self) -> bool {
        self.0 & Self::MORE != 0
    }

    /// Do Not Retry.
    #[inline(always)]
    pub const fn dnr(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// Type and code without CRD, M and DNR, to compare with the constants.
    #[inline(always)]
    pub const fn code(self) -> Self {
        Self(self.0 & Self::CODE)
    }

    /// True if the command did what it was asked to.
    #[inline(always)]
    pub const fn is_success(self) -> bool {
        self.0 & Self::CODE == 0
    }

    /// True if the same command may succeed later: the controller does not forbid a retry, and
    /// the cause is known to pass. Media errors are not retried: the controller has done so.
    #[inline(always)]
    pub const fn is_retryable(self) -> bool {
        if self.dnr() {
            return false;
        }
        if self.sct() == Self::SCT_PATH {
            return true;
        }
        let code = self.code().0;
        code == Self::INTERNAL_ERROR.0
            || code == Self::ABORTED_SQ_DELETION.0
            || code == Self::NAMESPACE_NOT_READY.0
            || code == Self::FORMAT_IN_PROGRESS.0
    }
}

/// One table for the constants and their names.
macro_rules! statuses {
    ($($constant:ident = ($sct:literal, $sc:literal), $name:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!("\"", $name, "\".")]
                pub const $constant: Self = Self::new($sct, $sc);
            )*

            /// What the specification calls this type and code; for a code not listed here, what
            /// it calls the type.
            pub const fn name(self) -> &'static str {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => $name,)*
                    (Self::SCT_GENERIC, _) => "unknown generic status",
                    (Self::SCT_COMMAND, _) => "unknown command specific status",
                    (Self::SCT_MEDIA, _) => "unknown media or data integrity error",
                    (Self::SCT_PATH, _) => "unknown path related status",
                    (Self::SCT_VENDOR, _) => "vendor specific status",
                    _ => "reserved status code type",
                }
            }
        }

        #[cfg(test)]
        const TABLE: &[(Status, &str)] = &[$((Status::$constant, $name),)*];
    };
}

// Generic: Base 3.3.3.2.1 and NVM 3.1.1. Command specific: Base, figure "Command Specific Status
// Values". Media: NVM 3.1.1.
statuses! {
    SUCCESS = (0, 0x00), "Successful Completion";
    INVALID_OPCODE = (0, 0x01), "Invalid Command Opcode";
    INVALID_FIELD = (0, 0x02), "Invalid Field in Command";
    CID_CONFLICT = (0, 0x03), "Command ID Conflict";
    DATA_TRANSFER_ERROR = (0, 0x04), "Data Transfer Error";
    ABORTED_POWER_LOSS = (0, 0x05), "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = (0, 0x06), "Internal Error";
    ABORT_REQUESTED = (0, 0x07), "Command Abort Requested";
    ABORTED_SQ_DELETION = (0, 0x08), "Command Aborted due to SQ Deletion";
    INVALID_NAMESPACE = (0, 0x0b), "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = (0, 0x0c), "Command Sequence Error";
    INVALID_PRP_OFFSET = (0, 0x13), "PRP Offset Invalid";
    NAMESPACE_WRITE_PROTECTED = (0, 0x20), "Namespace is Write Protected";
    COMMAND_INTERRUPTED = (0, 0x21), "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = (0, 0x22), "Transient Transport Error";
    LBA_OUT_OF_RANGE = (0, 0x80), "LBA Out of Range";
    CAPACITY_EXCEEDED = (0, 0x81), "Capacity Exceeded";
    NAMESPACE_NOT_READY = (0, 0x82), "Namespace Not Ready";
    FORMAT_IN_PROGRESS = (0, 0x84), "Format In Progress";
    INVALID_CQ = (1, 0x00), "Completion Queue Invalid";
    INVALID_QUEUE_ID = (1, 0x01), "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = (1, 0x02), "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = (1, 0x03), "Abort Command Limit Exceeded";
    AER_LIMIT_EXCEEDED = (1, 0x05), "Asynchronous Event Request Limit Exceeded";
    INVALID_INTERRUPT_VECTOR = (1, 0x08), "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = (1, 0x09), "Invalid Log Page";
    INVALID_QUEUE_DELETION = (1, 0x0c), "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = (1, 0x0d), "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = (1, 0x0e), "Feature Not Changeable";
    WRITE_TO_READ_ONLY_RANGE = (1, 0x82), "Attempted Write to Read Only Range";
    WRITE_FAULT = (2, 0x80), "Write Fault";
    UNRECOVERED_READ_ERROR = (2, 0x81), "Unrecovered Read Error";
    GUARD_CHECK_ERROR = (2, 0x82), "End-to-end Guard Check Error";
    COMPARE_FAILURE = (2, 0x85), "Compare Failure";
    ACCESS_DENIED = (2, 0x86), "Access Denied";
    UNWRITTEN_BLOCK = (2, 0x87), "Deallocated or Unwritten Logical Block";
    INTERNAL_PATH_ERROR = (3, 0x00), "Internal Path Error";
    CONTROLLER_PATHING_ERROR = (3, 0x60), "Controller Pathing Error";
    HOST_PATHING_ERROR = (3, 0x70), "Host Pathing Error";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn table_has_no_twins_and_names_itself() {
        for (index, (status, name)) in TABLE.iter().enumerate() {
            assert_eq!(status.name(), *name);
            assert!(
                TABLE[..index].iter().all(|(earlier, _)| earlier != status),
                "{name} twice"
            );
        }
    }

    #[test]
    fn only_passing_causes_are_retried() {
        let retried = TABLE.iter().filter(|(status, _)| status.is_retryable());
        let retried: std::vec::Vec<_> = retried.map(|(status, _)| *status).collect();
        assert_eq!(
            retried,
            [
                Status::INTERNAL_ERROR,
                Status::ABORTED_SQ_DELETION,
                Status::NAMESPACE_NOT_READY,
                Status::FORMAT_IN_PROGRESS,
                Status::INTERNAL_PATH_ERROR,
                Status::CONTROLLER_PATHING_ERROR,
                Status::HOST_PATHING_ERROR,
            ]
        );
        assert!(
            TABLE
                .iter()
                .all(|(status, _)| !status.with_dnr().is_retryable())
        );
    }

    proptest! {
        #[test]
        fn every_value_is_a_status(raw: u16) {
            let status = Status::from_bits(raw);
            prop_assert_eq!(status.bits(), raw & 0x7fff);
            prop_assert_eq!(status.code(), Status::new(status.sct(), status.sc()));
            prop_assert_eq!(status.is_success(), status.sc() == 0 && status.sct() == 0);
            prop_assert_eq!((status.dnr(), status.more()), (raw >> 14 & 1 == 1, raw >> 13 & 1 == 1));
            prop_assert_eq!(status.crd(), (raw >> 11 & 3) as u8);
            prop_assert!(!status.name().is_empty());
            prop_assert!(!(status.is_success() && status.is_retryable()));
        }
    }
}
