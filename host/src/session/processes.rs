//! SSDs that are processes: whether they are there.

use std::sync::Arc;

use driver_vfio::user::Client;

use super::Session;
use crate::Error;
use crate::ssd::{Ssd, ask};

/// The connections to those SSDs that are processes: all of a session, or none.
pub(super) fn clients(ssds: &[Ssd]) -> Vec<Arc<Client>> {
    let processes = ssds.iter().filter_map(Ssd::process);
    processes
        .map(|process| Arc::clone(process.client()))
        .collect()
}

impl Session {
    /// Whether the processes that are SSDs answer, if there are such. Nothing is awaited any more of
    /// one that does not: a flush would wait for it once more.
    pub(super) fn check_processes(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for (ssd, answer) in ask(&clients(&self.ssds)).into_iter().enumerate() {
            if answer.is_err() {
                self.store.give_up(ssd)?;
            }
            result = result.and(answer);
        }
        result
    }

    /// Whether there is an SSD left that can be flushed.
    pub(super) fn has_ssd_left(&self) -> bool {
        let answers = ask(&clients(&self.ssds));
        answers.is_empty() || answers.iter().any(Result::is_ok)
    }
}
