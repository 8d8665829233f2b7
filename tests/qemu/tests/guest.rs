//! The driver over VFIO, in a guest: `cargo xtask test qemu`.

use warpstore_qemu_tests::guest::{Ended, Guest};
use warpstore_qemu_tests::setup::{Fault, Namespace, Seat, Setup};

fn passes(task: &str, setups: &[Setup]) -> Ended {
    let ended = Guest::find().unwrap().run(task, setups).unwrap();
    println!("{}", ended.serial);
    assert!(ended.passed());
    ended
}

/// Two controllers of two namespaces, with so many queue pairs; the second one has small transfers.
fn two(queues: [u16; 2]) -> [Setup; 2] {
    let namespaces = |nsids: [u32; 2], shifts: [u8; 2]| {
        let each = nsids.into_iter().zip(shifts);
        each.map(|(nsid, shift)| Namespace::new(nsid, 16 << 20, shift))
            .collect()
    };
    let first = Setup {
        serial: "WS-A".into(),
        queues: queues[0],
        namespaces: namespaces([1, 2], [9, 12]),
        ..Setup::default()
    };
    let second = Setup {
        serial: "WS-B".into(),
        queues: queues[1],
        mdts: 1,
        namespaces: namespaces([3, 7], [12, 9]),
        ..Setup::default()
    };
    [first, second]
}

/// Benches over both controllers, with LBAs of 512 and 4096 bytes; then the kernel's own driver finds
/// what they put there.
#[test]
#[ignore = "boots guests, which `cargo xtask test qemu` makes ready"]
fn benches_answer_right_over_vfio() {
    // Each has one pair more than kernels use.
    passes("bench", &two([65, 2]));
}

/// Members of one IOMMU group are opened together. The kernel's own driver finds the volume where its
/// format says, and changes a byte of it.
#[test]
#[ignore = "boots guests, which `cargo xtask test qemu` makes ready"]
fn a_volume_is_written_and_read_again_over_vfio() {
    let member = |serial: &str, mdts, block_shift| Setup {
        serial: serial.into(),
        queues: 2,
        mdts,
        namespaces: vec![Namespace::new(1, 16 << 20, block_shift)],
        seat: Seat::Function,
    };
    passes("volume", &[member("WS-A", 7, 9), member("WS-B", 1, 12)]);
}

#[test]
#[ignore = "boots guests, which `cargo xtask test qemu` makes ready"]
fn errors_of_the_medium_end_benches_with_lba_and_status() {
    let fault = |operation, sector| Fault { operation, sector };
    let mut namespace = Namespace::new(1, 16 << 20, 9);
    // In the edges, and beyond them; `bind` reads the first and the last mebibyte.
    namespace.faults = vec![fault("read", 2501), fault("write", 4000)];
    let setup = Setup {
        namespaces: vec![namespace],
        ..Setup::default()
    };
    passes("errors", &[Setup { queues: 2, ..setup }]);
}

#[test]
#[ignore = "boots guests, which `cargo xtask test qemu` makes ready"]
fn an_ssd_that_is_unplugged_ends_the_bench_and_leaves() {
    let setup = Setup {
        queues: 2,
        seat: Seat::HotPlug,
        ..Setup::default()
    };
    assert!(passes("unplug", &[setup]).controller_was_stopped());
}

/// The suite, by registers and by shadow doorbells, and blocks that the kernel's own driver reads and writes in turn.
#[test]
#[ignore = "boots guests, which `cargo xtask test qemu` makes ready"]
fn two_controllers_with_two_namespaces_each_conform() {
    passes("conformance", &two([64, 1]));
}

/// `cargo xtask bind` against a real kernel: swap space in use, then not in use but still data.
/// Then a user who is not root meets the limit of locked memory.
#[test]
#[ignore = "boots guests, which `cargo xtask test qemu` makes ready"]
fn a_disk_in_use_is_not_taken_and_one_with_data_only_by_name() {
    let ended = passes("in-use", &[Setup::default()]);
    for found in ["used by swap on nvme0n1", "holds swap space"] {
        assert!(ended.serial.contains(found), "{found}");
    }
}

/// A session leaves a queue pair to the host, and this controller has one; then who holds it is
/// killed.
#[test]
#[ignore = "boots guests, which `cargo xtask test qemu` makes ready"]
fn a_killed_process_leaves_its_controller_stopped() {
    let ended = passes("killed", &[Setup::default()]);
    assert!(ended.controller_was_stopped());
}
