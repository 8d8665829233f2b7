//! What the client makes of servers that are none.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use driver_vfio::user::{Client, UserError};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};

use crate::{OtherSide, Place};

/// What the client says of a server that reads its first message and answers `reply`.
fn verdict(reply: &[u8]) -> UserError {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut header = [0; 16];
            stream.read_exact(&mut header).unwrap();
            // To the end: a client that is still sending would learn of nothing but the hang-up.
            let size = u32::from_le_bytes(header[4..8].try_into().unwrap());
            let mut body = vec![0; size as usize - header.len()];
            stream.read_exact(&mut body).unwrap();
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

/// A server that answers what one must and shares `bytes` of doorbells, of which no page is there.
/// Returns what the client says, and whether the file has pages then.
fn shares(bytes: u64) -> (Result<(), UserError>, bool) {
    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("doorbells", flags).unwrap());
    file.set_len(0x1000 + bytes).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            while let Some(reply) = next_reply(&mut stream, bytes) {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                let descriptors = [file.as_fd()];
                assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
                let parts = [IoSlice::new(&reply)];
                sendmsg(&stream, &parts, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
            }
        });
        Client::connect(&place.socket()).map(drop)
    });
    (said, file.metadata().unwrap().blocks() != 0)
}

/// The reply to the next message, if there is one.
fn next_reply(stream: &mut UnixStream, bytes: u64) -> Option<Vec<u8>> {
    let mut message = [0; 16];
    stream.read_exact(&mut message).ok()?;
    let command = u16::from_le_bytes([message[2], message[3]]);
    let size = u32::from_le_bytes([message[4], message[5], message[6], message[7]]);
    let mut body = vec![0; size as usize - 16];
    stream.read_exact(&mut body).unwrap();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let body: Vec<u8> = match command {
        // VERSION, of which 0 is ours.
        1 => words(&[0]),
        // DEVICE_GET_INFO: a function of PCI that can be reset, with regions enough.
        4 => words(&[16, 3, 10, 0]),
        // DEVICE_GET_REGION_INFO: one part may be mapped, from 0x1000 on.
        5 => {
            let (low, high) = (bytes as u32, (bytes >> 32) as u32);
            let region = [64, 0b1111, 0, 32, low, high, 0, 0];
            words(&[&region[..], &[1 | 1 << 16, 0, 1, 0, 0x1000, 0, low, high]].concat())
        }
        // REGION_READ: CAP is 0.
        _ => [body, vec![0; 8]].concat(),
    };
    let mut reply = header(command, 16 + body.len() as u32, 1, 0);
    reply[..2].copy_from_slice(&message[..2]);
    reply.extend(body);
    Some(reply)
}

#[test]
fn more_doorbells_than_queues_can_have_are_not_mapped() {
    let all = 2 * 65536 * 4;
    let (said, made) = shares(all);
    said.unwrap();
    assert!(made, "they are mapped at once");
    let (said, made) = shares(all + 4096);
    let text = said.expect_err("they are too many").to_string();
    assert!(text.contains("524288 are the most"), "{text}");
    assert!(!made);
}
