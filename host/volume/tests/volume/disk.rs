//! A member in memory with a volatile write cache: what was not flushed is lost by chance.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::rc::Rc;

use warpstore_volume::{Member, Members};

/// Bytes that are written whole or not at all.
const ATOM: usize = 512;

/// How many writes and flushes are left before the power goes; shared by members of one machine.
pub type Power = Rc<Cell<u64>>;

/// What a disk holds.
#[derive(Clone, Default)]
pub struct Platter {
    /// What outlasts a power cut.
    pub durable: Vec<u8>,
    /// Blocks that were written since the last flush, in order.
    pending: Vec<(usize, Vec<u8>)>,
    /// Bytes of all writes.
    pub written: u64,
    /// Sectors that cannot be read.
    pub unreadable: Vec<Range<usize>>,
}

/// A disk that tests keep while members use it.
#[derive(Clone)]
pub struct Disk {
    pub name: String,
    pub platter: Rc<RefCell<Platter>>,
    pub power: Power,
}

impl Disk {
    pub fn new(name: &str, bytes: usize, power: &Power) -> Self {
        let platter = Platter {
            durable: vec![0; bytes],
            ..Platter::default()
        };
        Self {
            name: name.to_owned(),
            platter: Rc::new(RefCell::new(platter)),
            power: Rc::clone(power),
        }
    }

    /// A copy that shares nothing but the power.
    pub fn copy(&self, power: &Power) -> Self {
        Self {
            name: self.name.clone(),
            platter: Rc::new(RefCell::new(self.platter.borrow().clone())),
            power: Rc::clone(power),
        }
    }

    /// The power is gone: of what was not flushed some stays, in any order.
    pub fn cut(&self, random: &mut Random) {
        let mut platter = self.platter.borrow_mut();
        let mut pending = std::mem::take(&mut platter.pending);
        let keep = random.below(4);
        while !pending.is_empty() {
            let (at, block) = pending.swap_remove(random.below(pending.len() as u64) as usize);
            // All, none, or half of them by chance.
            if keep == 0 || keep > 1 && random.below(2) == 0 {
                platter.durable[at..at + block.len()].copy_from_slice(&block);
            }
        }
    }

    pub fn flip(&self, byte: usize) {
        self.platter.borrow_mut().durable[byte] ^= 0x10;
    }

    /// From now on the sector with this byte cannot be read.
    pub fn spoil(&self, byte: usize) {
        let sector = byte / ATOM * ATOM;
        let mut platter = self.platter.borrow_mut();
        platter.unreadable.push(sector..sector + ATOM);
    }

    fn spend(&self) -> io::Result<()> {
        let left = self.power.get();
        self.power.set(left.saturating_sub(1));
        match left {
            0 => Err(io::Error::other("the power is gone")),
            _ => Ok(()),
        }
    }
}

impl Member for Disk {
    fn name(&self) -> String {
        format!("file:{}", self.name)
    }

    fn bytes(&self) -> u64 {
        self.platter.borrow().durable.len() as u64
    }

    fn block_bytes(&self) -> u32 {
        ATOM as u32
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        assert!(offset.is_multiple_of(ATOM as u64) && into.len().is_multiple_of(ATOM));
        let platter = self.platter.borrow();
        let offset = offset as usize;
        let end = offset + into.len();
        let mut unreadable = platter.unreadable.iter();
        if unreadable.any(|sector| sector.start < end && offset < sector.end) {
            return Err(io::Error::other("medium error"));
        }
        into.copy_from_slice(&platter.durable[offset..offset + into.len()]);
        for (at, block) in &platter.pending {
            if (offset..offset + into.len()).contains(at) {
                into[at - offset..at - offset + ATOM].copy_from_slice(block);
            }
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        assert!(offset.is_multiple_of(ATOM as u64) && from.len().is_multiple_of(ATOM));
        self.spend()?;
        let mut platter = self.platter.borrow_mut();
        assert!(offset as usize + from.len() <= platter.durable.len());
        platter.written += from.len() as u64;
        let blocks = (offset as usize..).step_by(ATOM).zip(from.chunks(ATOM));
        let blocks = blocks.map(|(at, block)| (at, block.to_vec()));
        platter.pending.extend(blocks);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spend()?;
        let mut platter = self.platter.borrow_mut();
        for (at, block) in std::mem::take(&mut platter.pending) {
            platter.durable[at..at + block.len()].copy_from_slice(&block);
        }
        Ok(())
    }
}

/// The disks as members.
pub fn members(disks: &[Disk]) -> Members {
    let members = disks
        .iter()
        .cloned()
        .map(|disk| Box::new(disk) as Box<dyn Member>);
    Members::new(members.collect()).unwrap()
}

/// Random numbers by a seed (xorshift64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
