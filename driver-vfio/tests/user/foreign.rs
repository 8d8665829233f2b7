//! What the client makes of servers that are none.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use driver_vfio::user::{Client, UserError};
use rustix::process::{Pid, Signal, kill_process};

use crate::{OtherSide, Place};

/// What the client says of a server that reads its first message and answers `reply`.
fn verdict(reply: &[u8]) -> UserError {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = [0; 16];
            stream.read_exact(&mut message).unwrap();
            stream.write_all(reply).unwrap();
        });
        Client::connect(&place.socket())
            .err()
            .expect("it is no SSD")
    })
}

/// A header with the first message's identifier.
pub(super) fn header(command: u16, size: u32, flags: u32, error: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(command.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(error.to_le_bytes());
    bytes
}

#[test]
fn nobody_is_told_apart_from_somebody_who_says_nothing() {
    let place = Place::new();
    let error = Client::connect(&place.socket()).err().expect("nobody");
    assert!(matches!(error, UserError::Connect { .. }), "{error}");
    let error = verdict(b"");
    assert!(matches!(error, UserError::Gone { .. }), "{error}");
    let error = verdict(&header(1, 20, 1, 0)[..9]);
    assert!(matches!(error, UserError::Gone { .. }), "{error}");
}

#[test]
fn answers_to_something_else_are_not_believed() {
    for (reply, what) in [
        (header(2, 16, 1, 0), "another command"),
        (header(1, 16, 0, 0), "a command"),
        (header(1, 15, 1, 0), "a size below the header's"),
        (header(1, u32::MAX, 1, 0), "an endless message"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "a web server"),
    ] {
        let error = verdict(&reply);
        assert!(
            matches!(error, UserError::Foreign { .. }),
            "{what}: {error}"
        );
    }
}

#[test]
fn a_refusal_and_another_version_are_told() {
    let error = verdict(&header(1, 16, 1 | 1 << 5, 22));
    let text = error.to_string();
    assert!(text.contains("refused VERSION: Invalid argument"), "{text}");
    let mut reply = header(1, 20, 1, 0);
    reply.extend([7, 0, 0, 0]);
    let text = verdict(&reply).to_string();
    assert!(text.contains("version 7 of the protocol"), "{text}");
    let text = verdict(&header(1, 16, 1, 0)).to_string();
    assert!(text.contains("too short"), "{text}");
}

/// A client that is stopped while it waits, as by Ctrl-Z, waits on when it continues.
#[test]
fn a_client_that_was_stopped_waits_on() {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    let mut other = OtherSide::start("ask", &place.socket());
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 16]).unwrap();
    let pid = Pid::from_child(&other.0);
    for _ in 0..3 {
        // Enough for it to wait; too short, the test sees less and passes.
        thread::sleep(Duration::from_millis(50));
        kill_process(pid, Signal::STOP).unwrap();
        thread::sleep(Duration::from_millis(50));
        kill_process(pid, Signal::CONT).unwrap();
    }
    let mut reply = header(1, 20, 1, 0);
    reply.extend([7, 0, 0, 0]);
    stream.write_all(&reply).unwrap();
    assert!(other.0.wait().unwrap().success());
}
