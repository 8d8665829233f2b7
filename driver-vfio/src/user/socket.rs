//! One connection: a command out, its reply in.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::IntoBytes;

use super::error::UserError;
use super::message::{Command, ERROR, Header, LONGEST, REPLY, TYPE};

/// Longest wait for the other side to take or send some bytes. It answers at once, but for a reset,
/// which waits for the commands that are being moved.
const LIMIT: Duration = Duration::from_secs(20);

/// A connection to a server. After an error it is of no more use.
pub(super) struct Socket {
    stream: UnixStream,
    path: PathBuf,
    next_id: u16,
}

/// A reply: what follows its header, and the descriptor that came with it.
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
}

impl Socket {
    pub(super) fn connect(path: &Path) -> Result<Self, UserError> {
        let stream = UnixStream::connect(path).map_err(|source| UserError::Connect {
            path: path.to_owned(),
            source,
        })?;
        let socket = Self {
            stream,
            path: path.to_owned(),
            next_id: 0,
        };
        let limited = socket.stream.set_read_timeout(Some(LIMIT));
        let limited = limited.and_then(|()| socket.stream.set_write_timeout(Some(LIMIT)));
        limited.map_err(|source| socket.gone(source))?;
        Ok(socket)
    }

    /// Sends `command` with what follows its header and waits for the reply.
    pub(super) fn call(
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
        self.send(&header, &parts.concat(), descriptor)
            .map_err(|source| self.gone(source))?;
        let (header, descriptor) = self.receive_header().map_err(|source| self.gone(source))?;
        self.check(command, &header)?;
        let mut body = vec![0; header.size as usize - size_of::<Header>()];
        self.stream
            .read_exact(&mut body)
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
        &mut self,
        header: &Header,
        body: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptor) = &descriptor {
            let rights = SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor));
            assert!(ancillary.push(rights), "there is room for one descriptor");
        }
        let bytes = [IoSlice::new(header.as_bytes())];
        let flags = SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.stream, &bytes, &mut ancillary, flags)?;
        self.stream.write_all(&header.as_bytes()[sent..])?;
        self.stream.write_all(body)
    }

    fn receive_header(&mut self) -> io::Result<(Header, Option<OwnedFd>)> {
        let mut header = Header::default();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(header.as_mut_bytes())];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.stream, &mut bytes, &mut ancillary, flags)?.bytes;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        self.stream
            .read_exact(&mut header.as_mut_bytes()[received..])?;
        Ok((header, descriptor))
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
