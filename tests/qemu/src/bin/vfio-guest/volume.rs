//! A volume over real VFIO: written, read again, searched, and found damaged.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;

use driver_vfio::vfio::bound_controllers;
use warpstore_qemu_tests::setup::Setup;

use crate::kernel::GRAPH;
use crate::run;

/// What a search of the graph from vertex 0 finds.
const REACHED: &str = "33696 vertices reached";

/// A unit of a volume of two members that has nothing but the graph.
pub struct Unit {
    /// The bytes of the edges that it has.
    pub edges: Range<u64>,
    /// The member where it lies.
    pub member: usize,
    /// Its first byte there.
    pub at: u64,
}

/// Bytes of a unit, and of a stripe unit where nothing else is said.
const BYTES: u64 = 64 << 10;

/// Unit 9 by docs/volumes.md: five have the offsets, and the region of the data begins at 128 KiB.
pub const UNIT: Unit = Unit {
    edges: 4 * BYTES..5 * BYTES,
    member: 9 % 2,
    at: (128 << 10) + 9 / 2 * BYTES,
};

/// Writes the graph to a volume of all controllers, and reads it again, by the CPU and by kernels.
pub fn flash(setups: &[Setup]) {
    let groups: BTreeSet<PathBuf> = bound_controllers().iter().map(group).collect();
    assert_eq!(groups.len(), 1, "all controllers in one IOMMU group");
    let serials = setups.iter().map(|setup| setup.serial.as_str());
    let allowed: String = serials.map(|s| format!("--yes-destroy {s} ")).collect();
    let in_order = members(setups.iter());
    succeeds(
        "warpstore-flash",
        &format!("flash --to {in_order} {allowed}mail={GRAPH}"),
        &["every checksum is right", "generation 1 is in force"],
    );
    let layout = format!(
        "striped by 65536 bytes, from byte 131072 of {}",
        in_order.replace(',', ", ")
    );
    let reversed = members(setups.iter().rev());
    succeeds(
        "warpstore-flash",
        &format!("ls {reversed}"),
        &[", sealed", &layout, "mail.offsets", "mail.edges"],
    );
    succeeds(
        "warpstore-flash",
        &format!("verify {in_order}"),
        &["every checksum is right"],
    );
    succeeds(
        "warpstore-bench",
        &format!("bfs --volume {reversed} --array mail --queues 1 --depth 64"),
        &["verified: every result agrees", REACHED],
    );
}

/// The IOMMU group of a controller.
fn group(address: &String) -> PathBuf {
    let link = format!("/sys/bus/pci/devices/{address}/iommu_group");
    fs::read_link(link).expect("there is an IOMMU")
}

/// One byte of [`UNIT`] is wrong, and `verify` says where.
pub fn damaged(setups: &[Setup]) {
    let (code, text) = run(&mut command(
        "warpstore-flash",
        &format!("verify {}", members(setups.iter())),
    ));
    assert_eq!(code, Some(3));
    let Range { start, end } = UNIT.edges;
    let place = format!(
        "wrong: array mail.edges, bytes {start} to {}, at byte {} of vfio:{}\n",
        end - 1,
        UNIT.at,
        setups[UNIT.member].serial
    );
    assert!(text.contains(&place), "{place}");
    assert!(text.contains("damaged in 1 places"));
}

/// Runs a program that must succeed and say all these words.
fn succeeds(program: &str, line: &str, words: &[&str]) {
    let (code, text) = run(&mut command(program, line));
    assert_eq!(code, Some(0));
    for word in words {
        assert!(text.contains(word), "{word}");
    }
}

fn command(program: &str, line: &str) -> Command {
    println!("{program} {line}");
    let mut command = Command::new(program);
    command.args(line.split(' ')).current_dir("/");
    command
}

/// The controllers as a volume's members, in this order.
fn members<'s>(setups: impl Iterator<Item = &'s Setup>) -> String {
    let names: Vec<_> = setups
        .map(|setup| format!("vfio:{}", setup.serial))
        .collect();
    names.join(",")
}
