//! The other side of a socket: emulated SSDs for sessions in other processes.

use std::os::unix::net::UnixListener;

use driver_vfio::user::{self, Server, ServerError};
use nvme_model::Media;

use super::emulated;
use super::media::{NewFiles, media_file};
use crate::Error;
use crate::config::{Medium, SsdConfig};

/// Emulated SSDs for sessions in other processes ([`SsdSource::Sockets`](crate::SsdSource::Sockets)).
pub struct SsdServer(Server);

impl SsdServer {
    /// Makes an SSD like `each` behind each of `listeners`, with `queues` I/O queue pairs: one more than
    /// a session uses, since it has commands of its own. `threads` threads serve the queues of all.
    ///
    /// # Errors
    /// A media file, the memory, or the configuration.
    pub fn start(
        each: &SsdConfig,
        listeners: Vec<UnixListener>,
        queues: u16,
        threads: u32,
    ) -> Result<Self, Error> {
        let of = listeners.len() as u32;
        let mut new_files = NewFiles::default();
        let ssd = |(index, listener)| -> Result<user::Ssd, Error> {
            let media = match (media_file(each, index, of, &mut new_files)?, &each.medium) {
                (Some(media), _) => media,
                (None, Medium::None) => Media::none(),
                (None, _) => Media::ram(each.bytes)?,
            };
            Ok(user::Ssd {
                listener,
                configuration: emulated::controller(each, index, queues),
                media,
            })
        };
        let ssds = (0..).zip(listeners).map(ssd).collect::<Result<_, _>>()?;
        let server = Server::start(ssds, threads)?;
        new_files.keep();
        Ok(Self(server))
    }

    /// Takes sessions, one after the other, without end; tells `report` what goes wrong with one.
    pub fn serve(mut self, report: &(dyn Fn(ServerError) + Sync)) {
        self.0.serve(usize::MAX, report);
    }
}
