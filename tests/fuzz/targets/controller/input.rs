//! What the fuzzer's bytes mean.

use crate::rig::Rig;

/// Bytes that are taken from the front; zeros when there are none left.
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        *first
    }

    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Mostly the queue that is there.
    pub fn doorbell_queue(&mut self) -> u16 {
        match self.byte() {
            choice @ 0..4 => u16::from(choice),
            0xff => self.half(),
            _ => 1,
        }
    }

    /// A ring index, sometimes beyond the ring.
    pub fn index(&mut self, entries: u32) -> u32 {
        match self.byte() {
            0xff => self.word() as u32,
            0xfe => entries,
            choice => u32::from(choice) % entries,
        }
    }

    /// Offset of a register, or any.
    pub fn offset(&mut self) -> u64 {
        const REGISTERS: [u64; 10] = [0x00, 0x08, 0x14, 0x1c, 0x20, 0x24, 0x28, 0x2c, 0x30, 0x34];
        let choice = self.byte();
        match REGISTERS.get(usize::from(choice)) {
            Some(&register) => register,
            None if choice == 0xff => self.word(),
            None => u64::from(self.half()),
        }
    }

    /// An address: of data, at its end, of memory that is not mapped, of the ring of commands, or
    /// any.
    pub fn address(&mut self, rig: &Rig) -> u64 {
        let (choice, at) = (self.byte(), u64::from(self.half()));
        let (data, bytes) = rig.data();
        match choice % 8 {
            0..=2 => data + (at << 12) % bytes,
            3 => data + (at << 2) % bytes,
            4 => data + bytes - at % 4096,
            5 => rig.hole() + (at & 0xffc),
            6 => rig.commands() + (at & 0xff8),
            _ => self.word(),
        }
    }
}
