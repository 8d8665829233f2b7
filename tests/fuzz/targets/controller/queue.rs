//! A completion queue as its submitter sees it.

use nvme_wire::Cqe;

use crate::rig::Page;

/// Ring, and what has been seen of it.
pub struct CompletionQueue {
    ring: Box<[Page]>,
    entries: u32,
    tail: u32,
    phase: bool,
    before: Vec<[u64; 2]>,
}

impl CompletionQueue {
    pub fn new(entries: u32) -> Self {
        let ring = Page::zeroed(1);
        Self {
            before: vec![[0; 2]; entries as usize],
            ring,
            entries,
            tail: 0,
            phase: true,
        }
    }

    pub fn address(&self) -> u64 {
        self.ring[0].address()
    }

    /// CQEs that may still be posted when the submitter has taken those before `head`.
    fn room(&self, head: u32) -> u32 {
        self.entries - 1 - (self.tail + self.entries - head) % self.entries
    }

    /// True if a head that was at `old` may go to `new`: over entries that have been posted.
    pub fn releases(&self, old: u32, new: u32) -> bool {
        let from_old = |index| (index + self.entries - old) % self.entries;
        new < self.entries && from_old(new) <= from_old(self.tail)
    }

    /// Takes what the controller has posted since the last call, while it knew `head`; with an
    /// invalid head it must not have posted anything.
    pub fn take(&mut self, head: u32) -> Vec<Cqe> {
        let room = if head < self.entries {
            self.room(head)
        } else {
            0
        };
        let mut taken = Vec::new();
        loop {
            let words = self.words(self.tail);
            let cqe = Cqe::from_words(words);
            if cqe.phase() != self.phase || taken.len() as u32 > room {
                break;
            }
            self.before[self.tail as usize] = words;
            self.tail = (self.tail + 1) % self.entries;
            self.phase ^= self.tail == 0;
            taken.push(cqe);
        }
        assert!(
            taken.len() as u32 <= room,
            "more than {room} CQEs at head {head}"
        );
        let now: Vec<[u64; 2]> = (0..self.entries).map(|slot| self.words(slot)).collect();
        assert_eq!(now, self.before, "an entry changed that is not new");
        taken
    }

    fn words(&self, slot: u32) -> [u64; 2] {
        let word = |index| self.ring[0].word(2 * slot as usize + index);
        [word(0), word(1)]
    }
}
