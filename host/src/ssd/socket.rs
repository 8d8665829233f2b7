//! Emulated SSDs in processes of their own, reached through sockets and shared pages.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use driver_vfio::Backing;
use driver_vfio::user::{Client, Statistics};

use super::{Medium, Opened, Ssd, bring_up, outside};
use crate::Error;
use crate::buffer::Buffer;
use crate::config::Configuration;

/// What the host knows of such an SSD, beside what it does by commands.
pub(crate) struct Process {
    client: Arc<Client>,
    /// What the SSD has counted, but not for kernels of this session: before it was opened, and for
    /// commands of the host's own.
    apart: Mutex<Statistics>,
}

/// Connects to the SSDs and brings them up.
pub(super) fn open(config: &Configuration, sockets: &[PathBuf]) -> Result<Opened, Error> {
    check_distinct(sockets)?;
    let ssd = |path: &PathBuf| -> Result<Ssd, Error> {
        let client = Arc::new(Client::connect(path)?);
        client.wait_for_replies(config.timeout);
        let backing: Arc<dyn Backing> = client.clone();
        // One more queue pair than kernels use, for the host's own commands.
        let driver = bring_up(&backing, Buffer::dma, config.queues + 1)?;
        let apart = Mutex::new(client.statistics()?);
        let medium = Medium::Process(Process { client, apart });
        outside::ready(driver, backing, config, None, medium)
    };
    Ok(Opened {
        ssds: sockets.iter().map(ssd).collect::<Result<_, _>>()?,
        serving: None,
        new_files: None,
    })
}

/// Refuses an SSD that is named twice: it would wait for itself. What is not there says so later.
fn check_distinct(sockets: &[PathBuf]) -> Result<(), Error> {
    let mut seen = HashMap::new();
    for path in sockets {
        let Ok(metadata) = path.metadata() else {
            continue;
        };
        if let Some(other) = seen.insert((metadata.dev(), metadata.ino()), path) {
            return Err(Error::Configuration(format!(
                "{} and {} are the same SSD; name each one once",
                other.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

impl Process {
    /// What the SSD has counted for kernels of this session.
    pub(crate) fn statistics(&self) -> Result<Statistics, Error> {
        let apart = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.client.statistics()?.since(&apart))
    }

    /// Runs commands of the host's own, while no kernel uses the SSD.
    pub(super) fn apart(&self, act: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let before = self.statistics()?;
        let result = act();
        // For the kernels nothing has changed meanwhile.
        let now = self.client.statistics()?;
        *self.apart.lock().unwrap_or_else(PoisonError::into_inner) = now.since(&before);
        result
    }
}
