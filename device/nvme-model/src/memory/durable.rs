//! What outlasts a power cut: the host's part of a command's execution.
// UNSAFETY: one reference to the controller's write cache, and a call of msync.

use std::ops::Range;

use nvme_wire::Status;

use super::Image;
use crate::command::{Command, Kind};
use crate::layout::{header, namespace, namespace_entry};
use crate::write_cache::WriteCache;

impl Image {
    /// Carries out a command that moves its data by `transfer`, and makes durable what it asks
    /// for; its status.
    pub(crate) fn keep(self, command: &Command, transfer: impl FnOnce() -> Status) -> Status {
        if !command.status.is_success() {
            return transfer();
        }
        let namespace = self.namespace_bytes(command.nsid);
        let cache = self.read(header::WRITE_CACHE) as *const WriteCache;
        // SAFETY: a controller writes the word once, with a cache that lives as long as its image.
        let status = match unsafe { cache.as_ref() } {
            Some(cache) => cache.execute(command, namespace, transfer),
            None => transfer(),
        };
        let asks = command.kind == Kind::Flush || command.writing() && command.fua;
        if asks && status.is_success() && !self.persist() {
            return Status::WRITE_FAULT;
        }
        status
    }

    /// The bytes of the media that a namespace has, or all of them for another identifier.
    fn namespace_bytes(self, nsid: u32) -> Range<u64> {
        if nsid == 0 || nsid as u64 > self.read(header::NAMESPACES) {
            return 0..u64::MAX;
        }
        let entry = namespace_entry(nsid as u64);
        let [base, lbas] = self.read_pair(entry + namespace::BASE);
        base..base + (lbas << self.read(entry + namespace::SHIFT))
    }

    /// Has the operating system write a media file to its disk; false if it could not. Media in
    /// memory need nothing.
    pub(crate) fn persist(self) -> bool {
        let address = self.read(header::FILE);
        let size = self.read(header::MEDIA_BYTES);
        if address == 0 || size == 0 {
            return true;
        }
        // SAFETY: a mapping of `size` bytes by the contract of `new`; msync only writes its pages
        // back.
        let result = unsafe {
            rustix::mm::msync(
                address as *mut _,
                size as usize,
                rustix::mm::MsyncFlags::SYNC,
            )
        };
        result.is_ok()
    }
}
