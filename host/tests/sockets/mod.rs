//! Emulated SSDs behind sockets, played by threads of the test: to the session they are other
//! processes.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use driver_vfio::user::{Server, Ssd};
use nvme_model::{Media, Namespace};
use warpstore::{Configuration, Faults, Profile, SsdSource};

/// Bytes of each SSD.
const BYTES: u64 = 1 << 20;

/// The same configuration over SSDs behind sockets, which serve this session alone and are as faulty.
pub fn behind_sockets(configuration: Configuration, faults: &Faults) -> Configuration {
    let folder = tempfile::tempdir().unwrap();
    let sockets: Vec<PathBuf> = (0..configuration.ssds)
        .map(|index| folder.path().join(index.to_string()))
        .collect();
    let ssds = sockets
        .iter()
        .map(|socket| ssd(socket, configuration.queues as u16 + 1, faults.clone()))
        .collect();
    std::thread::spawn(move || {
        // Sockets vanish with the folder, after the client has come and gone.
        let _folder = folder;
        let mut server = Server::start(ssds, 1).unwrap();
        server.serve(1, &|error| panic!("{error}"));
    });
    Configuration {
        ssd: SsdSource::Sockets(sockets),
        // Several threads take turns at every command, on whatever cores there are.
        timeout: Duration::from_secs(120),
        ..configuration
    }
}

/// A small SSD with so many queue pairs, that listens at `socket`.
pub fn ssd(socket: &Path, queues: u16, faults: Faults) -> Ssd {
    Ssd {
        listener: UnixListener::bind(socket).unwrap(),
        configuration: nvme_model::Configuration {
            serial: "WS-PROCESS".to_owned(),
            model: "another process".to_owned(),
            namespaces: vec![Namespace {
                lbas: BYTES / 512,
                lba_bytes: 512,
            }],
            mdts: 5,
            queue_entries: 4096,
            dstrd: 5,
            to: 4,
            queues,
            profile: Profile::IDEAL,
            volatile_write_cache: true,
            shadow_doorbells: true,
            faults,
        },
        media: Media::ram(BYTES).unwrap(),
    }
}
