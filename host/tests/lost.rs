//! SSDs that are lost while kernels run on host threads: a fatal status, a removal, a process that is
//! killed. The launch ends with an error that names the SSD, long before any access's deadline.

mod sockets;
mod store;

use std::process::{Child, Command, Stdio};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use driver_vfio::user::Server;
use warpstore::device::prelude::*;
use warpstore::{Configuration, Error, Fault, Faults, Rule, Session, SsdConfig, SsdSource, When};

/// Elements of the array: 64 lines.
const ELEMENTS: u64 = 64 * 128;
/// No test waits so long: what ends earlier was not ended by it.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Longest wait for what ends by itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// Says to a child where it is to serve an SSD.
const SERVER: &str = "WARPSTORE_SERVES_AT";

/// Reads every element, again and again.
#[kernel]
fn reread(elements: Array<u32>, rounds: u32) -> Result<(), IoError> {
    for _ in 0..rounds {
        for index in thread::grid_stride(elements.len()) {
            elements.get(index)?;
        }
    }
    Ok(())
}

/// How a kernel that reads for ever ends, which something does to it once `then` was called.
fn ended(configuration: Configuration, then: impl FnOnce()) -> (Error, Session) {
    let session = Session::open(configuration, "").unwrap();
    let elements = vec![7u32; ELEMENTS as usize];
    let array = session.create_array("elements", &elements).unwrap();
    let config = session.fill(&reread).unwrap();
    let result = scope(|scope| {
        let running = scope.spawn(|| session.launch(&reread, config, (array, u32::MAX)));
        then();
        let begin = Instant::now();
        while !running.is_finished() {
            if begin.elapsed() > PATIENCE {
                session.abort().unwrap();
                let _ = running.join();
                panic!("nobody noticed");
            }
            sleep(Duration::from_millis(1));
        }
        running.join().unwrap()
    });
    (result.expect_err("it reads for ever"), session)
}

/// The fault, at a command of which others follow.
fn plan(fault: Fault) -> Faults {
    let rule = Rule {
        queue: Some(1),
        ..Rule::new(fault, When::Command(900))
    };
    Faults {
        seed: 7,
        rules: vec![rule],
    }
}

/// What a message about each fault says.
const WORDS: [(Fault, &str); 2] = [
    (Fault::Fatal, "fatal status while it was in use"),
    (Fault::Removal, "all-ones while it was in use"),
];

#[test]
fn an_emulated_ssd_that_is_lost_ends_the_kernel() {
    for (fault, words) in WORDS {
        let (error, session) = ended(
            Configuration {
                ssd: SsdSource::Emulated(SsdConfig {
                    faults: plan(fault),
                    ..store::ssd()
                }),
                timeout: DEADLINE,
                ..store::configuration()
            },
            || {},
        );
        assert!(matches!(error, Error::Driver(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("WS-ideal-0000"), "{text}");
        assert!(text.contains(words), "{text}");
        // The next launch says the same, and the end of the session too.
        let array = session.array::<u32>("elements").unwrap();
        let config = session.fill(&reread).unwrap();
        let again = session.launch(&reread, config, (array, 1));
        assert!(matches!(again, Err(Error::Driver(_))), "{again:?}");
        let ended = session.finish().expect_err("the controller is dead");
        assert!(matches!(ended, Error::Driver(_)), "{ended}");
    }
}

#[test]
fn an_ssd_of_a_process_that_is_lost_ends_the_kernel() {
    for (fault, words) in WORDS {
        let well = store::configuration();
        let (error, _session) = ended(
            Configuration {
                timeout: DEADLINE,
                ..sockets::behind_sockets(well, &plan(fault))
            },
            || {},
        );
        assert!(matches!(error, Error::Driver(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("the SSD at"), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

/// A process of its own that serves an SSD; it is killed at the end.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_is_killed_ends_the_kernel() {
    if let Some(socket) = std::env::var_os(SERVER) {
        let ssd = sockets::ssd(socket.as_ref(), 3, Faults::none());
        let mut server = Server::start(vec![ssd], 1).unwrap();
        return server.serve(1, &|error| panic!("{error}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ssd");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_is_killed_ends_the_kernel"])
        .env(SERVER, &socket)
        .stdout(Stdio::null())
        .spawn();
    let mut process = Process(child.unwrap());
    let begin = Instant::now();
    while !socket.exists() {
        assert!(begin.elapsed() < PATIENCE, "nobody serves");
        sleep(Duration::from_millis(1));
    }
    let configuration = Configuration {
        ssd: SsdSource::Sockets(vec![socket.clone()]),
        timeout: DEADLINE,
        ..store::configuration()
    };
    let (error, session) = ended(configuration, || {
        sleep(Duration::from_millis(100));
        process.0.kill().unwrap();
    });
    assert!(matches!(error, Error::User(_)), "{error}");
    let text = error.to_string();
    let named = text.contains("is gone") && text.contains(&*socket.to_string_lossy());
    assert!(named, "{text}");
    session.finish().expect_err("the process is gone");
}
