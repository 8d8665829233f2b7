//! The volatile write cache of an emulated drive (Base 5.27.1.4, NVM 2.1.4), in host memory.
//!
//! ```text
//! write ──► view, LBA dirty ── Flush, FUA, shutdown, cache disabled ──► durable media, LBA clean
//! read  ◄── view              power cut: a dirty LBA goes to the media or is lost, as a whole
//! ```
//!
//! The view is what commands read and write. The durable media are what a power cut leaves; of a
//! file, they are its content at any moment, so that another process can open it. One lock keeps
//! writes, flushes and the power cut apart ([PL-3]). So an LBA is never copied while it is written,
//! and the atomic write unit on a power failure (AWUPF) is one LBA.
//!
//! This does not model the size of a cache, nor that a drive writes back by itself: an LBA stays
//! dirty until something asks for it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvme_wire::Status;

use crate::command::{Command, Kind};
use crate::media::{Media, View};
use crate::memory::Span;
use crate::random::hash;

/// The cache in front of the media of one controller.
pub(crate) struct WriteCache {
    view: View,
    durable: Span,
    state: Mutex<State>,
}

struct State {
    /// Bytes of each LBA that is newer in the view, by its byte offset.
    dirty: BTreeMap<u64, u32>,
    /// Feature 06h: without it every write goes through.
    enabled: bool,
    powered: bool,
}

impl WriteCache {
    /// A cache over `media`, all of it clean; `None` if there are no media to be lost.
    ///
    /// # Errors
    /// What the operating system says if the view cannot be mapped.
    pub(crate) fn over(media: &Media) -> std::io::Result<Option<Self>> {
        let Some(view) = media.view()? else {
            return Ok(None);
        };
        Ok(Some(Self {
            view,
            durable: media.span(),
            state: Mutex::new(State {
                dirty: BTreeMap::new(),
                enabled: true,
                powered: true,
            }),
        }))
    }

    /// What commands read and write.
    pub(crate) fn view(&self) -> Span {
        self.view.span()
    }

    /// Carries out a command that moves its data by `transfer` or, a flush, makes `namespace`
    /// (bytes of the media) durable; its status.
    pub(crate) fn execute(
        &self,
        command: &Command,
        namespace: Range<u64>,
        transfer: impl FnOnce() -> Status,
    ) -> Status {
        if command.kind == Kind::Read && !command.fua {
            return transfer();
        }
        let mut state = self.lock();
        if !state.powered {
            return Status::ABORTED_POWER_LOSS;
        }
        let blocks = command.offset..command.offset + command.bytes as u64;
        let status = match command.kind {
            // [PL-1] Its completion is posted after this.
            Kind::Flush => {
                self.write_back(&mut state, namespace);
                Status::SUCCESS
            }
            Kind::Read => {
                self.write_back(&mut state, blocks.clone());
                transfer()
            }
            Kind::Write => {
                let status = transfer();
                let lba = command.bytes / command.blocks;
                // [PL-2] Also after a failure, which may have come after some of the data.
                for at in blocks.clone().step_by(lba as usize) {
                    state.dirty.insert(at, lba);
                }
                status
            }
            Kind::None => transfer(),
        };
        if command.kind == Kind::Write && (command.fua || !state.enabled) {
            self.write_back(&mut state, blocks);
        }
        status
    }

    /// Makes everything durable; true unless the power is off.
    pub(crate) fn flush(&self) -> bool {
        let mut state = self.lock();
        self.write_back(&mut state, 0..u64::MAX);
        state.powered
    }

    /// Feature 06h. Disabled, it holds nothing and takes nothing (Base 5.27.1.4).
    pub(crate) fn set_enabled(&self, enabled: bool) {
        let mut state = self.lock();
        state.enabled = enabled;
        if !enabled {
            self.write_back(&mut state, 0..u64::MAX);
        }
    }

    /// Takes the power away. With a `seed` each dirty LBA becomes durable or is lost by chance,
    /// without one all are lost. Later writes and flushes fail. The view becomes what is left.
    pub(crate) fn cut(&self, seed: Option<u64>) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.powered, false) {
            return;
        }
        for (at, bytes) in std::mem::take(&mut state.dirty) {
            let survives = seed.is_some_and(|seed| hash(seed, at) & 1 == 1);
            let (from, to) = if survives {
                (self.view(), self.durable)
            } else {
                (self.durable, self.view())
            };
            to.part(at, bytes as u64)
                .copy_from(from.part(at, bytes as u64));
        }
    }

    /// Gives the power back, with an empty cache that is enabled.
    pub(crate) fn power_on(&self) {
        let mut state = self.lock();
        state.powered = true;
        state.enabled = true;
    }

    /// Puts `bytes` on both sides from byte `offset` on, as a factory would.
    pub(crate) fn load(&self, offset: u64, bytes: &[u8]) {
        let _state = self.lock();
        self.view().part(offset, bytes.len() as u64).fill(bytes);
        self.durable.part(offset, bytes.len() as u64).fill(bytes);
    }

    fn write_back(&self, state: &mut State, range: Range<u64>) {
        if !state.powered {
            return;
        }
        // A command's range holds whole LBAs, so what begins inside lies inside.
        let clean: Vec<_> = state.dirty.range(range).map(|(&at, &n)| (at, n)).collect();
        for (at, bytes) in clean {
            let from = self.view().part(at, bytes as u64);
            self.durable.part(at, bytes as u64).copy_from(from);
            state.dirty.remove(&at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at most one LBA dirty that is clean already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriteCache {
    /// A drive that is put away with its power on writes its cache back by itself.
    fn drop(&mut self) {
        self.flush();
    }
}
