//! The kernel's own nvme driver as a witness: what it reads, and what it writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use warpstore_graph::Budget;
use warpstore_qemu_tests::setup::Setup;
use warpstore_qemu_tests::suite;

use crate::volume::Unit;
use crate::{BLOCKS, BY_KERNEL, BY_VFIO, LIMIT};

/// The graph that benches put on SSDs, and the line in which they do.
pub const GRAPH: &str = "/tests/data/email-enron.el.gz";
const LINE: usize = 4096;

/// Waits until the kernel has a block device for each namespace.
pub fn wait(setups: &[Setup]) {
    each_block(setups, |_, _, _, _| {});
}

/// Reads what the driver wrote.
pub fn read(setups: &[Setup]) {
    each_block(setups, |device, nsid, lba, block| {
        let mut bytes = vec![0; block as usize];
        device
            .read_exact_at(&mut bytes, lba * block)
            .expect("it reads");
        let expected = content(nsid, lba, block, BY_VFIO);
        assert_eq!(bytes, expected, "block {lba} of namespace {nsid}");
    });
}

/// Writes what the driver shall read.
pub fn write(setups: &[Setup]) {
    each_block(setups, |device, nsid, lba, block| {
        let bytes = content(nsid, lba, block, BY_KERNEL);
        device.write_all_at(&bytes, lba * block).expect("it writes");
    });
}

/// Reads the edges that a bench has striped, line by line, over the first namespaces.
pub fn edges(setups: &[Setup]) {
    let bytes = edges_of_graph();
    let open = |setup: &Setup| open(&setup.serial, setup.namespaces[0].nsid);
    let devices: Vec<File> = setups.iter().map(open).collect();
    for (index, line) in bytes.chunks(LINE).enumerate() {
        let mut found = vec![0; line.len()];
        let at = (index / devices.len() * LINE) as u64;
        let device = &devices[index % devices.len()];
        device.read_exact_at(&mut found, at).expect("it reads");
        assert_eq!(found, line, "line {index} of the edges");
    }
    println!("{} bytes of edges: the kernel finds them", bytes.len());
}

/// Finds the edges of a volume in one of its units, and changes one byte there.
pub fn damage(setups: &[Setup], unit: &Unit) {
    let setup = &setups[unit.member];
    let device = open(&setup.serial, setup.namespaces[0].nsid);
    let mut found = vec![0; (unit.edges.end - unit.edges.start) as usize];
    device.read_exact_at(&mut found, unit.at).expect("it reads");
    let edges = edges_of_graph();
    let expected = &edges[unit.edges.start as usize..unit.edges.end as usize];
    assert!(found == expected, "the edges are not where they should be");
    let middle = found.len() / 2;
    found[middle] ^= 1;
    device.write_all_at(&found, unit.at).expect("it writes");
    println!("{}: the kernel finds edges, and changes one", setup.serial);
}

/// The edges of the graph, as they lie on SSDs.
fn edges_of_graph() -> Vec<u8> {
    let graph = warpstore_graph::open(Path::new(GRAPH), Budget::of_machine());
    let graph = graph.unwrap_or_else(|error| panic!("{error}"));
    let edges = graph.edges().iter();
    edges.flat_map(|edge| edge.to_le_bytes()).collect()
}

/// Calls `act` with the kernel's block device of each namespace.
fn each_block(setups: &[Setup], act: fn(&File, u32, u64, u64)) {
    for setup in setups {
        for namespace in &setup.namespaces {
            let device = open(&setup.serial, namespace.nsid);
            for lba in BLOCKS {
                act(&device, namespace.nsid, lba, 1 << namespace.block_shift);
            }
            println!("{}, namespace {}: done", setup.serial, namespace.nsid);
        }
    }
}

/// Opens the kernel's block device of a namespace, once it is there.
fn open(serial: &str, nsid: u32) -> File {
    let begin = Instant::now();
    let path = loop {
        if let Some(path) = block_device(serial, nsid) {
            break path;
        }
        assert!(begin.elapsed() < LIMIT, "{serial}: no block device");
        sleep(Duration::from_millis(10));
    };
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let opened = options
        .custom_flags(rustix::fs::OFlags::SYNC.bits() as i32)
        .open(&path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a block holds in a generation.
pub fn content(nsid: u32, lba: u64, block: u64, generation: u64) -> Vec<u8> {
    (0..block / 8)
        .flat_map(|index| suite::pattern(nsid, lba, index, generation).to_le_bytes())
        .collect()
}

/// The kernel's block device of a namespace, once it has one.
fn block_device(serial: &str, nsid: u32) -> Option<PathBuf> {
    let text = |path: &Path| -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    };
    let blocks = fs::read_dir("/sys/block").ok()?.flatten();
    blocks
        .map(|entry| entry.path())
        .find(|path| {
            text(&path.join("device/serial")).is_ok_and(|found| found == serial)
                && text(&path.join("nsid")).is_ok_and(|found| found == nsid.to_string())
        })
        .and_then(|path| Some(Path::new("/dev").join(path.file_name()?)))
}
