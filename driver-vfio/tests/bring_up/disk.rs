//! An I/O queue pair of a controller of registers, which holds commands back as a test says.

use nvme_wire::admin::{CreateCqCdw11, CreateSqCdw11};
use nvme_wire::sqe::IoOpcode;
use nvme_wire::{Cqe, Sqe, Status};
use warpstore_simt::{Cell, Cells, Order};

use crate::answering::{Answer, sqe_at};
use crate::memory::at_iova;
use crate::registers::Fake;

/// Words of a block.
const BLOCK_WORDS: u64 = 4096 / 8;

/// Queue pair 1, of blocks that read as [`Disk::bytes`] says, at most two of them a command.
#[derive(Default)]
pub struct Disk {
    /// IOVAs; 0 while there is no queue.
    sq: u64,
    cq: u64,
    entries: u32,
    fetched: u32,
    posted: u32,
    /// LBAs of commands to hold, each once.
    to_hold: Vec<u64>,
    held: Vec<Sqe>,
    /// CIDs of held commands that were to be aborted, in order.
    pub aborted: Vec<u16>,
    /// To be completed as aborted, in this many turns.
    pub due: Option<(u16, u32)>,
}

impl Disk {
    pub fn create_cq(&mut self, sqe: Sqe) -> Answer {
        assert!(CreateCqCdw11::from_bits(sqe.cdw11).pc());
        *self = Self {
            cq: sqe.prp1(),
            entries: (sqe.cdw10 >> 16) + 1,
            ..Self::default()
        };
        Answer::status(Status::SUCCESS)
    }

    pub fn create_sq(&mut self, sqe: Sqe) -> Answer {
        assert!(CreateSqCdw11::from_bits(sqe.cdw11).pc());
        self.sq = sqe.prp1();
        Answer::status(Status::SUCCESS)
    }

    /// Deletes the queue pair: its memory is not touched any more.
    pub fn delete(&mut self) -> Answer {
        self.sq = 0;
        Answer::status(Status::SUCCESS)
    }

    /// Holds the next command at each of these LBAs back.
    pub fn hold(&mut self, lbas: &[u64]) {
        self.to_hold = lbas.to_vec();
    }

    /// CIDs of the commands that are held, in the order in which they came.
    pub fn held(&self) -> Vec<u16> {
        self.held.iter().map(|sqe| sqe.cid()).collect()
    }

    /// Number of commands that came.
    pub fn fetched(&self) -> u32 {
        self.fetched
    }

    /// Does what there is to do.
    pub fn turn(&mut self, fake: &Fake) {
        if self.sq == 0 {
            fake.clear_io_tail();
            return;
        }
        match self.due.take() {
            Some((cid, 0)) => self.complete(cid, Status::ABORT_REQUESTED),
            Some((cid, turns)) => self.due = Some((cid, turns - 1)),
            None => {}
        }
        while self.fetched % self.entries != fake.io_tail() {
            let at = u64::from(self.fetched % self.entries) * 64;
            let sqe = sqe_at(self.sq + at);
            self.fetched += 1;
            self.held.push(sqe);
            match self.to_hold.iter().position(|lba| *lba == sqe.slba()) {
                Some(index) => drop(self.to_hold.remove(index)),
                None => self.complete(sqe.cid(), Status::SUCCESS),
            }
        }
    }

    /// Completes a command that is held, with its data if it succeeds.
    pub fn complete(&mut self, cid: u16, status: Status) {
        let index = self.held.iter().position(|sqe| sqe.cid() == cid);
        let sqe = self.held.remove(index.expect("it is held"));
        if status.is_success() && sqe.opcode() == IoOpcode::READ.0 {
            let blocks = sqe.slba()..=sqe.slba() + u64::from(sqe.nlb_z());
            for (lba, page) in blocks.zip([sqe.prp1(), sqe.prp2()]) {
                for index in 0..BLOCK_WORDS {
                    let word = at_iova(page, BLOCK_WORDS).at(index);
                    word.store(pattern(lba, index), Order::Relaxed);
                }
            }
        }
        let phase = (self.posted / self.entries).is_multiple_of(2);
        let head = self.fetched % self.entries;
        let cqe = Cqe::new(cid, status, phase).with_sq(1, head as u16);
        let [low, high] = cqe.to_words();
        let entry = at_iova(self.cq + u64::from(self.posted % self.entries) * 16, 2);
        entry.at(0).store(low, Order::Relaxed);
        entry.at(1).store(high, Order::Release);
        self.posted += 1;
    }

    /// What `len` bytes from `lba` on read as.
    pub fn bytes(lba: u64, len: usize) -> Vec<u8> {
        let words = (0..len as u64 / 8).map(|word| {
            let (block, index) = (word / BLOCK_WORDS, word % BLOCK_WORDS);
            pattern(lba + block, index)
        });
        words.flat_map(u64::to_le_bytes).collect()
    }
}

fn pattern(lba: u64, index: u64) -> u64 {
    (lba + 1) << 32 | index
}
