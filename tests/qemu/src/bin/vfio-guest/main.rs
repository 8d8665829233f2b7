//! What runs in the guest: the suite, benches and a volume over VFIO, and the kernel's own driver as a witness.
//!
//! `vfio-guest TASK WORD…`, where each word describes a controller (`Setup::to_word`). It prints
//! what it does, and panics if something is wrong.

mod bench;
mod kernel;
mod volume;

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use driver_vfio::vfio::{DmaMemory, PageSize, Vfio, bound_controllers};
use driver_vfio::{Access, Backing, BlockIo, Controller, Enabled};
use nvme_wire::Sqe;
use warpstore_qemu_tests::memory::Arena;
use warpstore_qemu_tests::setup::Setup;
use warpstore_qemu_tests::site::{Expected, Site};
use warpstore_qemu_tests::suite;

/// Memory for one run over one controller.
const MEMORY: u64 = 64 << 20;
/// The blocks that are written by one driver and read by the other.
const BLOCKS: std::ops::Range<u64> = 100..164;
/// Generations of the pattern in them.
const BY_VFIO: u64 = 21;
const BY_KERNEL: u64 = 22;
/// Longest wait for the kernel's driver to find its controllers.
const LIMIT: Duration = Duration::from_secs(30);
/// What a process says that holds an enabled controller.
const HOLDING: &str = "holding";

fn main() {
    let mut arguments = env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let setups: Vec<_> = arguments
        .map(|word| Setup::from_word(&word).unwrap_or_else(|| panic!("no setup: {word}")))
        .collect();
    match task.as_str() {
        "suite" => over_vfio(&setups, |site| {
            suite::run(site);
            unmapped_memory_is_out_of_reach(site);
            site.shadow_doorbells = true;
            suite::run(site);
        }),
        "write" => over_vfio(&setups, |site| write(site)),
        "read" => over_vfio(&setups, |site| read(site)),
        "kernel-wait" => kernel::wait(&setups),
        "kernel-read" => kernel::read(&setups),
        "kernel-write" => kernel::write(&setups),
        "kernel-edges" => kernel::edges(&setups),
        "kernel-damage" => kernel::damage(&setups, &volume::UNIT),
        "bench" => bench::answers(&setups),
        "bench-queues" => bench::queues(&setups),
        "bench-errors" => bench::errors(&setups),
        "bench-unplug" => bench::unplug(&setups),
        "volume-flash" => volume::flash(&setups),
        "volume-damaged" => volume::damaged(&setups),
        "limit" => limit(),
        "hold" => over_vfio(&setups, |site| hold(site)),
        "kill-holder" => kill_holder(&setups[0]),
        _ => panic!("no such task: {task}"),
    }
}

/// Calls `act` for each controller; all are open at first.
fn over_vfio(setups: &[Setup], act: impl Fn(&mut Site)) {
    let addresses = bound_controllers();
    assert_eq!(addresses.len(), setups.len(), "{addresses:?}");
    let backings = Vfio::open_all(&addresses).unwrap_or_else(|error| panic!("{}", chain(&error)));
    for (address, backing) in addresses.iter().zip(backings) {
        let memory = Arc::new(DmaMemory::new(MEMORY).expect("the guest has memory"));
        assert_eq!(memory.pages(), &PageSize::Huge);
        let arena = Arena::new(memory.cells(), memory);
        let mut site = Site {
            backing: Arc::new(backing),
            allocate: Box::new(move |bytes| arena.allocate(bytes)),
            expected: Expected::of(&setups[0]),
            shadow_doorbells: false,
        };
        // Which of the controllers this is, it says itself.
        let serial = site.enable(1).info().serial.clone();
        let setup = setups.iter().find(|setup| setup.serial == serial);
        site.expected = Expected::of(setup.unwrap_or_else(|| panic!("who is {serial}?")));
        act(&mut site);
        println!("{address} {serial}: done");
    }
}

/// A command whose memory was unmapped does not reach it, whatever it says itself.
fn unmapped_memory_is_out_of_reach(site: &Site) {
    const CANARY: u64 = 0xca4a_ca4a_ca4a_ca4a;
    let mut controller = site.enable(1);
    let namespace = site.namespaces(&mut controller)[0];
    let (_, submitter, _rings) = site.pair(&mut controller, 1, 4);
    let buffer = site.buffer(4096);
    buffer.words.fill(CANARY);
    let (at, bytes) = (buffer.iova, buffer.len() * 8);
    let read = |expected: bool| {
        let status = submitter.run(Sqe::read(namespace.nsid, 0, 0, at.0, 0));
        println!(
            "a read of {} memory: {}",
            if expected { "mapped" } else { "unmapped" },
            status.name()
        );
        assert_eq!(buffer.get(0) != CANARY, expected);
    };
    site.backing.unmap_dma(at, bytes).expect("it is mapped");
    read(false);
    assert_eq!(
        site.backing.map_dma(buffer.words.cells().into()).ok(),
        Some(at)
    );
    read(true);
    if let Err(error) = controller.shutdown() {
        panic!("{error}");
    }
}

/// Writes what the kernel's driver shall find.
fn write(site: &Site) {
    each_namespace(site, |io, bytes| {
        io.write(BLOCKS.start, &bytes(BY_VFIO))?;
        io.flush()
    });
}

/// Reads what the kernel's driver wrote.
fn read(site: &Site) {
    each_namespace(site, |io, bytes| {
        let expected = bytes(BY_KERNEL);
        let mut found = vec![0; expected.len()];
        io.read(BLOCKS.start, &mut found)?;
        assert!(found == expected, "namespace {}", io.namespace().nsid);
        Ok(())
    });
}

/// Block I/O on one namespace.
type Io<'c> = BlockIo<&'c mut Controller<Enabled>>;

/// Calls `act` with each namespace and what its blocks hold in a generation.
fn each_namespace(
    site: &Site,
    act: impl Fn(&mut Io<'_>, &dyn Fn(u64) -> Vec<u8>) -> Result<(), driver_vfio::Error>,
) {
    let mut controller = site.enable(1);
    for namespace in site.namespaces(&mut controller) {
        let (nsid, block) = (namespace.nsid, 1 << namespace.block_shift);
        let bytes = |generation| {
            BLOCKS
                .flat_map(|lba| kernel::content(nsid, lba, block, generation))
                .collect()
        };
        let mut io = site.block_io(&mut controller, nsid, Access::ReadWrite);
        act(&mut io, &bytes).unwrap_or_else(|error| panic!("{error}"));
    }
    if let Err(error) = controller.shutdown() {
        panic!("{error}");
    }
}

/// As a user who is not root and may lock 8 MiB: more is refused with the command that allows it,
/// and what is given back can be used again.
fn limit() {
    let vfio =
        Vfio::open(&bound_controllers()[0]).unwrap_or_else(|error| panic!("{}", chain(&error)));
    let map = |memory: &DmaMemory| vfio.map_dma(memory.cells().into());
    let [small, large] =
        [4, 16].map(|mib| DmaMemory::new(mib << 20).expect("the guest has memory"));
    for _ in 0..3 {
        let iova = map(&small).unwrap_or_else(|error| panic!("{error}"));
        let refused = map(&large).expect_err("it is beyond the limit").to_string();
        println!("{refused}");
        assert!(refused.contains("ulimit -l 20480"));
        vfio.unmap_dma(iova, 4 << 20).expect("it is mapped");
    }
}

/// Enables the controller, says so, and stays until it is killed.
fn hold(site: &Site) {
    let mut controller = site.enable(1);
    let _pair = site.pair(&mut controller, 1, 4);
    println!("{HOLDING}");
    loop {
        sleep(LIMIT);
    }
}

/// A process that is killed leaves a controller that can be opened again.
fn kill_holder(setup: &Setup) {
    let this = env::current_exe().expect("it runs");
    let mut child = Command::new(this)
        .args(["hold", &setup.to_word()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = child.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line == HOLDING),
        "the child holds the controller"
    );
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let begin = Instant::now();
    // Until the guardian has stopped the controller, the device is busy.
    while let Err(error) = Vfio::open(&bound_controllers()[0]) {
        println!("not yet: {}", chain(&error));
        assert!(begin.elapsed() < LIMIT, "the device stays busy");
        sleep(Duration::from_millis(10));
    }
}

/// Runs a program of ours to its end; its exit status, and what it said, which is printed too.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program starts");
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.concat();
    println!("{text}");
    (status.code(), text)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
