//! An emulated SSD in another process: it conforms, and either side may die.
//!
//! The other process is this test's own executable, which runs [`the_other_side`] alone.

mod foreign;
mod hostile;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use driver_vfio::user::{Client, Server, Ssd, UserError};
use driver_vfio::vfio::DmaMemory;
use driver_vfio::{Backing, BarOffset, Error, Registers};
use nvme_model::{Configuration, Media};
use nvme_wire::Sqe;
use nvme_wire::regs::{Cc, offset};
use warpstore_qemu_tests::memory::{Arena, Words};
use warpstore_qemu_tests::site::{Expected, Site};
use warpstore_qemu_tests::{ours, suite};

/// Names the role of the other process and its socket.
const ROLE: &str = "WARPSTORE_TEST_ROLE";
const SOCKET: &str = "WARPSTORE_TEST_SOCKET";
/// What the other process says when it is ready.
const READY: &str = "ready";
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

fn configuration() -> Configuration {
    Configuration {
        shadow_doorbells: true,
        ..ours::configuration("WS-PROCESS")
    }
}

/// Serves so many clients at `socket`, which is there when this returns.
fn server(socket: &Path) -> Server {
    server_at(UnixListener::bind(socket).unwrap())
}

fn server_at(listener: UnixListener) -> Server {
    let configuration = configuration();
    let ssd = Ssd {
        listener,
        media: Media::ram(configuration.media_bytes().unwrap()).unwrap(),
        configuration,
    };
    Server::start(vec![ssd], 1).unwrap()
}

fn serve(server: &mut Server, clients: usize) {
    server.serve(clients, &|error| panic!("{error}"));
}

fn site(socket: &Path) -> Site {
    over(Arc::new(Client::connect(socket).unwrap()))
}

fn over(client: Arc<Client>) -> Site {
    let memory = Arc::new(DmaMemory::new(64 << 20).unwrap());
    let arena = Arena::new(memory.cells(), memory);
    Site {
        backing: client,
        allocate: Box::new(move |bytes| arena.allocate(bytes)),
        expected: Expected::of_ours(&configuration()),
        shadow_doorbells: false,
    }
}

/// A place for a socket.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("ssd")
    }
}

/// Another process in a role; it is killed at the end.
struct OtherSide(Child);

impl OtherSide {
    fn start(role: &str, socket: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_side", "--nocapture"])
            .env(ROLE, role)
            .env(SOCKET, socket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let ready = output.lines().any(|line| line.unwrap().contains(READY));
        let other = Self(child);
        assert!(ready, "the other process ended too soon");
        other
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for OtherSide {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other process does; nothing if this is no other process.
#[test]
fn the_other_side() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let socket = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    match role.as_str() {
        "serve" => {
            let mut server = server(&socket);
            println!("{READY}");
            serve(&mut server, usize::MAX);
        }
        "hold" => {
            let site = site(&socket);
            let mut controller = site.enable(1);
            let _pair = site.pair(&mut controller, 1, 4);
            println!("{READY}");
            thread::sleep(LONG);
        }
        "ask" => {
            println!("{READY}");
            let error = Client::connect(&socket).err().expect("it is no SSD");
            assert!(error.to_string().contains("version 7"), "{error}");
            // Nobody reads what the test would print at its end.
            std::process::exit(0);
        }
        other => panic!("no role: {other}"),
    }
}

#[test]
fn an_ssd_in_another_process_conforms() {
    let place = Place::new();
    let mut server = server(&place.socket());
    thread::scope(|scope| {
        scope.spawn(|| serve(&mut server, 2));
        for shadow_doorbells in [false, true] {
            suite::run(&Site {
                shadow_doorbells,
                ..site(&place.socket())
            });
        }
    });
}

#[test]
fn what_the_ssd_counts_is_told() {
    let place = Place::new();
    let _other = OtherSide::start("serve", &place.socket());
    let client = Arc::new(Client::connect(&place.socket()).unwrap());
    let site = over(client.clone());
    let mut controller = site.enable(1);
    let (_, submitter, _rings) = site.pair(&mut controller, 1, 8);
    let data = site.buffer(4096);
    for lba in 0..5 {
        assert!(
            submitter
                .run(Sqe::write(1, lba, 0, data.iova.0, 0))
                .is_success()
        );
    }
    assert!(
        submitter
            .run(Sqe::read(1, 0, 0, data.iova.0, 0))
            .is_success()
    );
    assert!(submitter.run(Sqe::flush(1)).is_success());
    assert!(
        !submitter
            .run(Sqe::read(1, 1 << 40, 0, data.iova.0, 0))
            .is_success()
    );
    let statistics = client.statistics().unwrap();
    let counters = statistics.counters;
    assert_eq!(
        (
            counters.reads,
            counters.writes,
            counters.flushes,
            counters.errors
        ),
        (1, 5, 1, 1)
    );
    assert_eq!((statistics.threads, statistics.faults), (1, vec![]));
    controller.shutdown().unwrap();
}

/// A client that is killed with an enabled controller leaves nothing behind: the next one finds it
/// disabled and runs the whole suite.
#[test]
fn a_killed_client_leaves_the_ssd_to_the_next() {
    let place = Place::new();
    let mut server = server(&place.socket());
    thread::scope(|scope| {
        scope.spawn(|| serve(&mut server, 3));
        for _ in 0..2 {
            OtherSide::start("hold", &place.socket()).kill();
        }
        let site = site(&place.socket());
        let cc = Cc::from_bits(site.backing.read32(BarOffset(offset::CC)));
        assert!(!cc.en(), "it was stopped before the next client came");
        suite::run(&site);
    });
}

/// Of a server that is killed every access says so, and nothing waits for it.
#[test]
fn a_killed_server_is_a_controller_that_was_removed() {
    let place = Place::new();
    let mut other = OtherSide::start("serve", &place.socket());
    let client = Arc::new(Client::connect(&place.socket()).unwrap());
    let site = over(client.clone());
    let mut controller = site.enable(1);
    let (pair, ..) = site.pair(&mut controller, 1, 4);
    other.kill();
    // The doorbell is memory, and nobody minds.
    let doorbell = client.doorbell(BarOffset(offset::DOORBELLS + 32)).unwrap();
    assert_eq!(doorbell.address() as u64, pair.rings.sq_doorbell);
    assert_eq!(client.read32(BarOffset(offset::CSTS)), u32::MAX);
    let error = controller.namespace(1).expect_err("nobody is there");
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    let error = controller.shutdown().err().expect("nobody is there");
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    let error = client.statistics().expect_err("nobody is there");
    assert!(matches!(error, UserError::Gone { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("gone or stuck"), "{text}");
    let error = client.reset().expect_err("nobody is there").to_string();
    assert!(error.contains("gone or stuck"), "{error}");
}

#[test]
fn memory_that_cannot_be_shared_is_refused() {
    let place = Place::new();
    let mut server = server(&place.socket());
    thread::scope(|scope| {
        scope.spawn(|| serve(&mut server, 1));
        let client = Client::connect(&place.socket()).unwrap();
        let refused = |words: &Words| {
            let refused = client.map_dma(words.cells().into());
            refused.expect_err("it must be refused").to_string()
        };
        let text = refused(&Words::new(512));
        assert!(text.contains("only `DmaMemory` can"), "{text}");
        let memory = Arc::new(DmaMemory::new(1).unwrap());
        let arena = Arena::new(memory.cells(), memory);
        let words = arena.allocate(64 << 10);
        let iova = client.map_dma(words.cells().into()).unwrap();
        let text = refused(&words);
        assert!(text.contains("refused DMA_MAP"), "{text}");
        let short = client.unmap_dma(iova, 4096).expect_err("it is longer");
        assert!(short.to_string().contains("not mapped"), "{short}");
        client.unmap_dma(iova, 64 << 10).unwrap();
        client.map_dma(words.cells().into()).unwrap();
    });
}
