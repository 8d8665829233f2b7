//! Whole blocks, round the cache: what a kernel uses that manages its own buffers.

use core::num::NonZeroU32;

use nvme_queue::Patience;
use warpstore_simt::{Cell, Cells, Lanes, Native, Order, Platform, Team, warp};

use crate::bounce;
use crate::error::{ErrorKind, IoError};
use crate::finish::{Finisher, Purpose};
use crate::launch::KernelParam;
use crate::plan::{by_queue, kind_of};
use crate::store::Store;

/// The block buffers of a store: equal pieces of GPU memory that SSD blocks are read into.
///
/// Each buffer belongs to whoever uses it: a kernel gives every lane its own.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Blocks(Store);

#[allow(unsafe_code, reason = "marker impl for a plain handle")]
// UNSAFETY: an `unsafe impl` only; no memory is touched here.
mod parameter {
    use super::{Blocks, KernelParam};
    // SAFETY: repr(transparent) over an address of immutable data.
    unsafe impl KernelParam for Blocks {
        fn memory(&self) -> Option<(u64, u64)> {
            Some(self.0.place())
        }
    }
}

impl Blocks {
    /// The block buffers of `store`.
    #[inline(always)]
    pub const fn of(store: Store) -> Self {
        Self(store)
    }

    /// Number of buffers.
    #[inline(always)]
    pub fn buffers(&self) -> u64 {
        u64::from(self.0.desc().blocks.count)
    }

    /// Number of SSDs.
    #[inline(always)]
    pub fn ssds(&self) -> NonZeroU32 {
        self.0.desc().map.ssds
    }

    /// Bytes of a block.
    #[inline(always)]
    pub fn block_bytes(&self) -> u64 {
        1 << self.0.desc().blocks.shift
    }

    /// Reads block `block` (in blocks from the store's first LBA) of SSD `ssd` into `buffer`, which
    /// is below [`Blocks::buffers`], and waits for it. Collective over the whole warp, each lane
    /// with a block and a buffer of its own.
    ///
    /// # Errors
    /// Warp-uniform: if a lane fails, all get an error of one of the failing lanes. A buffer or
    /// an SSD that is not there is out of range, and nothing is read. After a time-out or an abort
    /// the buffer is lost: its command may still write it, so later reads into it fail.
    #[inline(always)]
    pub fn read(&self, ssd: u32, block: u64, buffer: u64) -> Result<(), IoError> {
        let store = self.0;
        let desc = store.desc();
        let index = store.home_queue(ssd);
        let outside = if buffer >= self.buffers() {
            IoError::out_of_range(buffer).to_bits()
        } else if ssd >= self.ssds().get() {
            IoError::out_of_range(u64::from(ssd)).to_bits()
        } else if desc.block_words.at(buffer).load(Order::Acquire) == bounce::IN_FLIGHT {
            // An earlier command for it never came back, and may still write it.
            self.error(ErrorKind::QueueDead as u16, 0, index, block)
        } else {
            0
        };
        uniform(outside)?;
        let finisher = Finisher {
            store,
            queue: index,
        };
        let patience = store.patience();
        let word = desc.block_words.at(buffer);
        // Ordering: [BB-1] relaxed: the buffer is this lane's own, and the submission's fence
        // orders the word before the command.
        word.store(bounce::IN_FLIGHT, Order::Relaxed);
        let command = store.read_block(ssd, block, &desc.blocks, buffer);
        let tag = Purpose::Block { buffer }.tag();
        let queue = store.queue(index);
        let mut error = 0;
        by_queue(Lanes::WARP, index, |peers| {
            if let Err(refused) = queue.submit(peers, command, tag, &finisher, &patience) {
                error = self.error(kind_of(refused.reason), 0, index, block);
            }
        });
        by_queue(Lanes::WARP, index, |peers| {
            if error == 0 {
                error = self.wait(peers, index, buffer, block, &finisher, &patience);
            }
        });
        uniform(error)
    }

    /// Waits until the command for `buffer` has ended; 0 or the bits of an error. Collective over
    /// the lanes that share the queue.
    #[inline(always)]
    fn wait(
        &self,
        peers: Lanes,
        index: u32,
        buffer: u64,
        block: u64,
        finisher: &Finisher,
        patience: &Patience<Native>,
    ) -> u64 {
        let queue = self.0.queue(index);
        let word = self.0.desc().block_words.at(buffer);
        let mut turn = 0;
        loop {
            let status = bounce::status_of(word.load(Order::Relaxed));
            if peers.all(status.is_some()) {
                // Ordering: [BB-2] acquires what the finisher released with the word.
                return match bounce::status_of(word.load(Order::Acquire)) {
                    Some(status) if !status.is_success() => {
                        self.error(ErrorKind::Status as u16, status.bits(), index, block)
                    }
                    _ => 0,
                };
            }
            let drained = queue.drain(peers, finisher);
            // Others' completions may come without end: then the clock is asked now and then.
            if drained == 0 || turn % 64 == 63 {
                let kind = patience.exhausted().map_or(0, kind_of);
                let kind = peers.max(u32::from(kind)) as u16;
                if kind != 0 {
                    queue.kill();
                    return self.error(kind, 0, index, block);
                }
            }
            if drained == 0 {
                Native::pause(turn);
            }
            turn = turn.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn error(&self, kind: u16, status: u16, queue: u32, block: u64) -> u64 {
        let status = nvme_wire::Status::from_bits(status);
        IoError::new(ErrorKind::from_code(kind), status, queue, block).to_bits()
    }

    /// Word `index` (8 bytes each) of `buffer`, after [`Blocks::read`] filled it. Per lane.
    #[inline(always)]
    pub fn word(&self, buffer: u64, index: u64) -> u64 {
        let [low, high] = self.0.desc().blocks.load_chunk(buffer, (index & !1) * 8);
        if index & 1 == 0 { low } else { high }
    }
}

/// One lane's error for the whole warp, if there is one.
#[inline(always)]
fn uniform(error: u64) -> Result<(), IoError> {
    let failed = Lanes::WARP.ballot(error != 0);
    if failed == 0 {
        return Ok(());
    }
    match IoError::from_bits(Lanes::WARP.shuffle(error, warp::leader(failed))) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
