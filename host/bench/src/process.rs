//! A process that is the SSDs of a run: this binary again, as `serve-ssds`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::options::{Media, Model};
use crate::serve;

/// Longest wait for the sockets: making the media may take a while.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(5);

/// What the process shall be.
pub(crate) struct Wanted<'a> {
    pub model: &'a Model,
    pub ssds: u32,
    /// Bytes of each SSD.
    pub bytes: u64,
    /// I/O queue pairs of each.
    pub queues: u32,
    /// Threads that serve them.
    pub serving: u32,
    pub overwrite: bool,
    pub fail_one_in: Option<u64>,
    pub seed: u64,
}

/// The running process. Dropped, it is killed.
pub(crate) struct SsdProcess {
    child: Child,
    ssds: u32,
    folder: tempfile::TempDir,
}

impl SsdProcess {
    /// Starts the process, and waits until it listens.
    pub(crate) fn start(wanted: &Wanted<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let mut command = Command::new(program);
        command.arg(serve::NAME).arg("--with-parent");
        for index in 0..wanted.ssds {
            command.arg("--socket").arg(socket(folder.path(), index));
        }
        command.args(["--profile", &wanted.model.profile.to_string()]);
        for (option, value) in [
            ("--lba", u64::from(wanted.model.lba)),
            ("--bytes", wanted.bytes),
            ("--queues", wanted.queues.into()),
            ("--serving", wanted.serving.into()),
            ("--seed", wanted.seed),
        ] {
            command.args([option, &value.to_string()]);
        }
        if let Some(count) = wanted.fail_one_in {
            command.args(["--fail-one-in", &count.to_string()]);
        }
        if let Some(Media::File(path)) = &wanted.model.media {
            command.arg("--media").arg(path);
        }
        if wanted.overwrite {
            command.arg("--overwrite");
        }
        // In a group of its own Ctrl-C does not reach it: it ends after this process, and tidies up.
        let child = command.stdin(Stdio::piped()).process_group(0).spawn();
        let mut process = Self {
            child: child.context("cannot start the SSDs' process")?,
            ssds: wanted.ssds,
            folder,
        };
        process.wait_for_sockets()?;
        Ok(process)
    }

    /// The socket of each SSD.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let sockets = (0..self.ssds).map(|index| socket(self.folder.path(), index));
        sockets.collect()
    }

    fn wait_for_sockets(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !self.sockets().iter().all(|socket| socket.exists()) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the SSDs' process ended at once, with {status}; it says above why");
            }
            if begin.elapsed() > LIMIT {
                bail!("the SSDs' process does not listen after {LIMIT:?}");
            }
            sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for SsdProcess {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(folder: &Path, index: u32) -> PathBuf {
    folder.join(index.to_string())
}
