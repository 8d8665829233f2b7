//! Abort (Base 5.1): what is tried for a late command of block I/O before its queue is given up.
//!
//! It is a request, and no answer to it says that the command has ended: the controller may move
//! the data of a command that it said to have aborted, until that command's own completion.
//!
//! Not here: commands of GPU submitters, whose CIDs the CPU does not know.

use std::fmt;

use nvme_wire::admin::ABORT_NOT_DONE;
use nvme_wire::{Sqe, Status};

use crate::controller::{Controller, Enabled};
use crate::error::Error;

/// What became of the Abort of a command that did not complete in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// None was sent: the queue had been given up before, or [`QueueCells::abort`] ended the wait.
    ///
    /// [`QueueCells::abort`]: crate::QueueCells::abort
    Unsent,
    /// The controller said that it has aborted the command, and did not complete it.
    Done,
    /// The controller said that it has not aborted the command.
    NotDone,
    /// The controller refused to abort.
    Refused(Status),
    /// The Abort was not completed in time either, or an admin command before it was not: the admin queue
    /// is dead too.
    Late,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsent => "no Abort was sent, since its queue was given up or the wait was ended",
            Self::Done => "its Abort succeeded, but it never completed",
            Self::NotDone => "its Abort was answered with \"not aborted\"",
            Self::Refused(status) => {
                let (name, bits) = (status.name(), status.bits());
                return write!(f, "its Abort was refused: {name} (status {bits:#06x})");
            }
            Self::Late => "its Abort was not completed in time either, or the admin queue was dead",
        })
    }
}

impl Controller<Enabled> {
    /// Asks the controller to end command `cid` of submission queue `sqid`.
    ///
    /// Abort Command Limit, at least 1, is kept: admin commands run one at a time, and none runs
    /// after one that hangs.
    ///
    /// # Errors
    /// `Removed` or `Fatal`.
    pub(crate) fn abort(&mut self, sqid: u16, cid: u16) -> Result<Abort, Error> {
        match self.state.live.admin().run(Sqe::abort(sqid, cid)) {
            Ok(dw0) if dw0 & ABORT_NOT_DONE == 0 => Ok(Abort::Done),
            Ok(_) => Ok(Abort::NotDone),
            Err(Error::Refused { status, .. }) => Ok(Abort::Refused(status)),
            Err(Error::NoCompletion { .. }) => Ok(Abort::Late),
            Err(error) => Err(error),
        }
    }
}
