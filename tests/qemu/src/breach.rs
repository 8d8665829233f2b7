//! What QEMU's log says about the driver: the commands it sent, and what it must not have done.

/// QEMU's event for an admin command.
const ADMIN: &str = "pci_nvme_admin_cmd ";
/// How the names of events begin that the specification leaves undefined.
const UNDEFINED: &str = "pci_nvme_ub_";

/// Lines about accesses whose effect the specification leaves undefined: a doorbell of no queue,
/// a register of no meaning.
pub fn breaches(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| line.contains(UNDEFINED))
        .collect()
}

/// Opcodes of the admin commands, in order.
///
/// # Panics
/// If QEMU writes its log in another form than it did, since nothing would be found then.
pub fn admin_opcodes(log: &str) -> Vec<u8> {
    let lines = log.lines().filter_map(|line| line.split_once(ADMIN));
    lines
        .map(|(_, fields)| {
            let opcode = fields.split(' ').skip_while(|word| *word != "opc").nth(1);
            let digits = opcode.and_then(|opcode| opcode.strip_prefix("0x"));
            let parsed = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            parsed.unwrap_or_else(|| panic!("no opcode in QEMU's line: {fields}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
pci_nvme_admin_cmd cid 0 sqid 0 opc 0x6 opname 'NVME_ADM_CMD_IDENTIFY'
pci_nvme_ub_db_wr_invalid_sq submission queue doorbell write for nonexistent queue, sqid=9
pci_nvme_admin_cmd cid 1 sqid 0 opc 0x9 opname 'NVME_ADM_CMD_SET_FEATURES'
";

    #[test]
    fn a_log_tells_commands_and_breaches() {
        assert_eq!(admin_opcodes(LOG), [6, 9]);
        assert_eq!(breaches(LOG).len(), 1);
        assert!(breaches("").is_empty());
    }
}
