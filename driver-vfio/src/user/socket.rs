//! One connection: a command out, its reply in.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    send, sendmsg, socket_with,
};
use zerocopy::IntoBytes;

use super::error::UserError;
use super::message::{Command, ERROR, Header, LONGEST, REPLY, TYPE};

/// Longest wait for a server that takes the connection, since it may be serving another run, and
/// for a reset, which waits for the commands that are being moved.
const LIMIT: Duration = Duration::from_secs(20);
/// Shortest patience with every other reply. A thread that does nothing else answers, within
/// microseconds; so long it may take on a machine that is busy or swaps.
const ANSWER: Duration = Duration::from_secs(5);

/// Pause between two tries to connect.
const PAUSE: Duration = Duration::from_millis(10);

/// A connection to a server. After an error that is no refusal it is of no more use: a reply that
/// comes late would answer the next command.
pub(super) struct Socket {
    stream: UnixStream,
    path: PathBuf,
    next_id: u16,
    /// Longest wait for the connection to be taken, and for a reset.
    limit: Duration,
    /// Longest wait for any other reply, once the connection has been taken.
    answer: Option<Duration>,
    /// What ended the connection; later calls say so at once.
    ended: Option<io::ErrorKind>,
}

/// A reply: what follows its header, and the descriptor that came with it.
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
}

impl Socket {
    pub(super) fn connect(path: &Path) -> Result<Self, UserError> {
        let stream = connect_within(path, LIMIT)?;
        Ok(Self::over(stream, path, LIMIT))
    }

    /// A connection that waits at most `limit` for any reply.
    pub(super) fn over(stream: UnixStream, path: &Path, limit: Duration) -> Self {
        Self {
            stream,
            path: path.to_owned(),
            next_id: 0,
            limit,
            answer: None,
            ended: None,
        }
    }

    /// The server has taken the connection: from now on it answers at once, or is waited for as long
    /// as whoever uses it waits for anything, if that is longer than a busy machine may take.
    pub(super) fn taken(&mut self, patience: Duration) {
        self.answer = Some(patience.max(ANSWER));
    }

    /// Longest wait for the reply to `command`.
    fn limit_of(&self, command: Command) -> Duration {
        match (command, self.answer) {
            (Command::DeviceReset, _) | (_, None) => self.limit,
            (_, Some(answer)) => answer,
        }
    }

    /// Sends `command` with what follows its header and waits for the reply.
    pub(super) fn call(
        &mut self,
        command: Command,
        parts: &[&[u8]],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Reply, UserError> {
        if let Some(kind) = self.ended {
            return Err(self.gone(kind.into()));
        }
        let reply = self.exchange(command, parts, descriptor);
        self.ended = match &reply {
            Err(UserError::Gone { source, .. }) => Some(source.kind()),
            Err(UserError::Foreign { .. }) => Some(io::ErrorKind::InvalidData),
            _ => None,
        };
        reply
    }

    fn exchange(
        &mut self,
        command: Command,
        parts: &[&[u8]],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Reply, UserError> {
        self.next_id = self.next_id.wrapping_add(1);
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let header = Header {
            id: self.next_id,
            command: command as u16,
            size: (size_of::<Header>() + body) as u32,
            ..Header::default()
        };
        let deadline = Instant::now() + self.limit_of(command);
        self.send(&header, &parts.concat(), descriptor, deadline)
            .map_err(|source| self.gone(source))?;
        let (header, descriptor) = self
            .receive_header(deadline)
            .map_err(|source| self.gone(source))?;
        self.check(command, &header)?;
        let mut body = vec![0; header.size as usize - size_of::<Header>()];
        self.receive(&mut body, deadline)
            .map_err(|source| self.gone(source))?;
        if header.flags & ERROR != 0 {
            return Err(UserError::Refused {
                path: self.path.clone(),
                command: command.name(),
                errno: header.error as i32,
            });
        }
        Ok(Reply { body, descriptor })
    }

    /// The descriptor goes with the header alone, which is short enough to leave in one piece.
    fn send(
        &self,
        header: &Header,
        body: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> io::Result<()> {
        let sent = self.patiently(deadline, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if let Some(descriptor) = &descriptor {
                let rights = SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor));
                assert!(ancillary.push(rights), "there is room for one descriptor");
            }
            let bytes = [IoSlice::new(header.as_bytes())];
            sendmsg(&self.stream, &bytes, &mut ancillary, SendFlags::NOSIGNAL)
        })?;
        for mut rest in [&header.as_bytes()[sent..], body] {
            while !rest.is_empty() {
                let sent =
                    self.patiently(deadline, || send(&self.stream, rest, SendFlags::NOSIGNAL))?;
                rest = &rest[sent..];
            }
        }
        Ok(())
    }

    fn receive_header(&self, deadline: Instant) -> io::Result<(Header, Option<OwnedFd>)> {
        let mut header = Header::default();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = self.patiently(deadline, || {
            let mut bytes = [IoSliceMut::new(header.as_mut_bytes())];
            let flags = RecvFlags::CMSG_CLOEXEC;
            recvmsg(&self.stream, &mut bytes, &mut ancillary, flags)
        })?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        self.receive(&mut header.as_mut_bytes()[received.bytes..], deadline)?;
        Ok((header, descriptor))
    }

    /// Fills `into`.
    fn receive(&self, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let received = self.patiently(deadline, || (&self.stream).read(into))?;
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into = &mut into[received..];
        }
        Ok(())
    }

    /// Makes a system call on the stream, again after a signal, until `deadline`. A process that was
    /// stopped and goes on sees such a signal, even without a handler.
    fn patiently<T, E: Into<io::Error>>(
        &self,
        deadline: Instant,
        mut call: impl FnMut() -> Result<T, E>,
    ) -> io::Result<T> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            self.stream.set_write_timeout(Some(left))?;
            match call().map_err(E::into) {
                Err(error) if is_passing(error.kind()) => {}
                other => return other,
            }
        }
    }

    /// The reply must be one to the command that was sent.
    fn check(&self, command: Command, header: &Header) -> Result<(), UserError> {
        let bytes = size_of::<Header>() as u32..=LONGEST;
        let answers = header.id == self.next_id && header.command == command as u16;
        if answers && header.flags & TYPE == REPLY && bytes.contains(&header.size) {
            return Ok(());
        }
        Err(self.foreign(format!("{} was not answered by a reply", command.name())))
    }

    /// An error that says that the other side is something else.
    pub(super) fn foreign(&self, what: String) -> UserError {
        UserError::Foreign {
            path: self.path.clone(),
            what,
        }
    }

    fn gone(&self, source: io::Error) -> UserError {
        UserError::Gone {
            path: self.path.clone(),
            source,
        }
    }
}

/// A stream to who listens at `path`. If so many wait there that the system takes no more, and
/// `limit` passes, it is busy.
fn connect_within(path: &Path, limit: Duration) -> Result<UnixStream, UserError> {
    let path = path.to_owned();
    let deadline = Instant::now() + limit;
    let attempt = || -> rustix::io::Result<OwnedFd> {
        // A blocking call would wait for a place without end.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(&path)?)?;
        Ok(socket)
    };
    loop {
        let source = match attempt() {
            Ok(socket) => {
                let stream = UnixStream::from(socket);
                match stream.set_nonblocking(false) {
                    Ok(()) => return Ok(stream),
                    Err(source) => source,
                }
            }
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                sleep(PAUSE);
                continue;
            }
            Err(Errno::AGAIN) => return Err(UserError::Busy { path }),
            Err(errno) => errno.into(),
        };
        return Err(UserError::Connect { path, source });
    }
}

/// Whether a call may be made again: a signal, or a time-out, of which the deadline decides.
fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn after_a_wait_in_vain_nothing_is_sent_or_awaited() {
        let (near, far) = UnixStream::pair().unwrap();
        let path = Path::new("ssd");
        let mut socket = Socket::over(near, path, Duration::from_millis(50));
        let mut said = || match socket.call(Command::DeviceReset, &[], None) {
            Err(error @ UserError::Gone { .. }) => error.to_string(),
            _ => panic!("nobody answers"),
        };
        let first = said();
        assert!(first.contains("timed out"), "{first}");
        let mut message = [0; 100];
        let sent = (&far).read(&mut message).unwrap();
        assert_eq!(sent, size_of::<Header>());
        // The late reply is to the first command, and no second one is sent.
        let mut header = Header::default();
        header.as_mut_bytes().copy_from_slice(&message[..16]);
        header.flags = REPLY;
        (&far).write_all(header.as_bytes()).unwrap();
        assert_eq!(said(), first);
        far.set_nonblocking(true).unwrap();
        let nothing = (&far).read(&mut message).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn who_has_taken_a_connection_is_waited_for_as_long_as_an_access() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut socket = Socket::over(near, Path::new("ssd"), LIMIT);
        assert_eq!(socket.limit_of(Command::Version), LIMIT);
        for (patience, limit) in [(1, ANSWER), (60, Duration::from_secs(60))] {
            socket.taken(Duration::from_secs(patience));
            assert_eq!(socket.limit_of(Command::RegionRead), limit);
        }
        assert_eq!(socket.limit_of(Command::DeviceReset), LIMIT);
    }

    #[test]
    fn who_has_no_place_for_a_client_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssd");
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let listener = listener.unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let limit = Duration::from_millis(30);
        let mut waiting = Vec::new();
        let error = loop {
            match connect_within(&path, limit) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert!(!waiting.is_empty());
        assert!(matches!(error, UserError::Busy { .. }), "{error}");
        // Once there is a place, it is had.
        let taken = rustix::net::accept(&listener).unwrap();
        let stream = connect_within(&path, limit).unwrap();
        drop((taken, stream, waiting, listener));
        let error = connect_within(&path, limit).expect_err("nobody listens");
        assert!(matches!(error, UserError::Connect { .. }), "{error}");
    }

    #[test]
    fn a_refusal_is_not_the_end() {
        let (near, far) = UnixStream::pair().unwrap();
        let limit = Duration::from_secs(60);
        let mut socket = Socket::over(near, Path::new("ssd"), limit);
        for id in 1..3 {
            let refusal = Header {
                id,
                command: Command::DeviceReset as u16,
                size: size_of::<Header>() as u32,
                flags: REPLY | ERROR,
                error: 22,
            };
            (&far).write_all(refusal.as_bytes()).unwrap();
            let refused = socket.call(Command::DeviceReset, &[], None).err();
            assert!(matches!(refused, Some(UserError::Refused { .. })));
        }
    }
}
