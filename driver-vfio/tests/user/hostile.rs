//! What the server makes of clients that are none.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use driver_vfio::BarOffset;
use driver_vfio::Registers;
use driver_vfio::user::{Client, ServerError};
use nvme_wire::regs::offset;

use crate::foreign::header;
use crate::{Place, server, server_at};

/// A VERSION that says to have `size` bytes, with this text after the version.
fn version(size: u32, text: &[u8]) -> Vec<u8> {
    let mut message = header(1, size, 0, 0);
    message.extend([0, 0, 1, 0]);
    message.extend(text);
    message
}

/// Each ends its connection, is told once, and the next client is served.
#[test]
fn a_malformed_version_is_the_end_of_its_connection_alone() {
    let zero_inside: &[u8] = b"{\"capa\0bilities\":{}}\0";
    let messages = [
        version(16, b""),
        version(22, b"{}"),
        version(20 + zero_inside.len() as u32, zero_inside),
    ];
    let place = Place::new();
    let mut server = server(&place.socket());
    let told = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let report = |error: ServerError| told.lock().unwrap().push(error.to_string());
        scope.spawn(move || server.serve(4, &report));
        for message in &messages {
            let mut stream = UnixStream::connect(place.socket()).unwrap();
            stream.write_all(message).unwrap();
            // Longer than the server takes, so that a dead one is an error.
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let left = stream.read(&mut [0; 64]).map_err(|error| error.kind());
            let ended = [Ok(0), Err(io::ErrorKind::ConnectionReset)];
            assert!(ended.contains(&left), "{left:?}");
        }
        let client = Client::connect(&place.socket()).unwrap();
        assert_ne!(client.read32(BarOffset(offset::VS)), u32::MAX);
    });
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), messages.len(), "{told:?}");
    let all = told
        .iter()
        .all(|text| text.contains("no message of vfio-user"));
    assert!(all, "{told:?}");
}

/// As without file descriptors; here a listener that does not wait.
#[test]
fn a_server_that_can_take_nobody_says_so_once_and_tries_on() {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut server = server_at(listener);
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    thread::scope(|scope| {
        let report = |error: ServerError| tell.lock().unwrap().send(error).unwrap();
        scope.spawn(move || server.serve(1, &report));
        let error = told.recv().unwrap();
        let expected = io::ErrorKind::WouldBlock;
        let is_accept = matches!(&error, ServerError::Accept(error) if error.kind() == expected);
        assert!(is_accept, "{error}");
        // Time for more tries; with less, the test sees less and passes.
        thread::sleep(Duration::from_millis(300));
        let client = Client::connect(&place.socket()).unwrap();
        assert_ne!(client.read32(BarOffset(offset::VS)), u32::MAX);
    });
    let more = told.try_iter().map(|error| error.to_string());
    assert_eq!(more.collect::<Vec<_>>(), [""; 0]);
}
