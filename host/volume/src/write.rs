//! Writing a volume: claim, data, read back, superblocks.

use std::io::{self, Read};

use crate::UNIT;
use crate::audit::{Audit, Checks};
use crate::commit::{commit, repair, wipe};
use crate::error::Error;
use crate::journal::Journal;
use crate::member::Members;
use crate::plan::Plan;
use crate::superblock::Description;

/// Bytes that are read from a source and written at a time.
pub(crate) const CHUNK: u64 = 64 * UNIT;

/// What is being done, for those who show progress; each counts the volume's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Data are written.
    Write,
    /// Data are read, and their checksums compared.
    Verify,
}

impl Plan {
    /// Writes the volume: `sources` are the bytes of its arrays, in order. `watch` is told how many
    /// bytes each step has come to. Every `checkpoint` bytes what was written becomes durable, so that
    /// the same flash can go on there after an interruption.
    ///
    /// # Errors
    /// A source or a member fails, or something does not read back as it was written. Then, as after an
    /// interruption, the volume that was there is there still, unless it had to go first
    /// ([`Plan::wipes`]).
    pub fn write(
        mut self,
        members: &mut Members,
        sources: Vec<Box<dyn Read + '_>>,
        checkpoint: u64,
        watch: &mut dyn FnMut(Step, u64),
    ) -> Result<Description, Error> {
        if let Some(old) = &self.beside {
            repair(members, old, &self.surveyed)?;
        }
        let mut journal = Journal {
            uuid: self.description.uuid,
            members: self.description.members,
            fingerprint: self.fingerprint(),
            done: self.done,
            total: self.total(),
        };
        journal.write(members)?;
        if self.wipes {
            wipe(members)?;
        }
        members.flush()?;
        let mut stream = Stream {
            description: &mut self.description,
            members,
            journal: &mut journal,
            checkpoint,
            checks: Checks::default(),
            at: 0,
            watch,
        };
        for (index, source) in sources.into_iter().enumerate() {
            stream.array(index, source)?;
        }
        let checks = stream.finish()?;
        // [VL-2]: durable, and read back, before a superblock speaks of them.
        members.flush()?;
        let audit = Audit::of(members, &self.description, &checks, watch)?;
        if let Some(first) = audit.faults.first() {
            // Whoever tries again writes everything again.
            journal.done = 0;
            journal.write(members)?;
            members.flush()?;
            return Err(Error::ReadBack {
                first: first.to_string(),
                count: audit.count,
            });
        }
        commit(members, &self.description)?;
        Journal::clear(members)?;
        members.flush()?;
        Ok(self.description)
    }
}

/// Data on their way to the members.
struct Stream<'a> {
    description: &'a mut Description,
    members: &'a mut Members,
    journal: &'a mut Journal,
    checkpoint: u64,
    checks: Checks,
    /// Bytes of the volume so far.
    at: u64,
    watch: &'a mut dyn FnMut(Step, u64),
}

impl Stream<'_> {
    /// Writes array `index`.
    fn array(&mut self, index: usize, mut source: Box<dyn Read + '_>) -> Result<(), Error> {
        let bytes = self.description.arrays[index].bytes();
        let mut left = bytes;
        let mut crc = 0;
        let mut chunk = vec![0; CHUNK.min(bytes.next_multiple_of(UNIT)) as usize];
        while left > 0 {
            let take = left.min(CHUNK) as usize;
            let got = fill(&mut *source, &mut chunk[..take]);
            let got = got.map_err(|error| self.unreadable(index, error))?;
            if got < take {
                let found = bytes - left + got as u64;
                return Err(self.wrong_length(index, found.to_string()));
            }
            crc = crc32c::crc32c_append(crc, &chunk[..take]);
            let padded = take.next_multiple_of(UNIT as usize);
            chunk[take..padded].fill(0);
            self.put(&chunk[..padded])?;
            left -= take as u64;
        }
        let more = fill(&mut *source, &mut [0]).map_err(|error| self.unreadable(index, error))?;
        if more > 0 {
            return Err(self.wrong_length(index, "more".to_owned()));
        }
        self.description.arrays[index].crc = crc;
        Ok(())
    }

    /// Writes whole units, unless an interrupted flash has.
    fn put(&mut self, units: &[u8]) -> Result<(), Error> {
        self.checks.add(units);
        let end = self.at + units.len() as u64;
        if end > self.journal.done {
            let spread = self.description.spread();
            spread.write(self.members, self.at, units)?;
        }
        self.at = end;
        if end.saturating_sub(self.journal.done) >= self.checkpoint {
            self.members.flush()?;
            self.journal.done = end;
            self.journal.write(self.members)?;
        }
        (self.watch)(Step::Write, end);
        Ok(())
    }

    /// Writes the table of checksums behind the arrays.
    fn finish(self) -> Result<Checks, Error> {
        let table = self.checks.table();
        self.description.checks_crc = self.checks.crc();
        let spread = self.description.spread();
        spread.write(self.members, self.at, &table)?;
        (self.watch)(Step::Write, self.at + table.len() as u64);
        Ok(self.checks)
    }

    fn unreadable(&self, index: usize, source: io::Error) -> Error {
        Error::Source {
            array: self.description.arrays[index].name.clone(),
            source,
        }
    }

    fn wrong_length(&self, index: usize, found: String) -> Error {
        let array = &self.description.arrays[index];
        Error::SourceLength {
            array: array.name.clone(),
            expected: array.bytes(),
            found,
        }
    }
}

/// Reads until the buffer is full or the source ends; how many bytes.
fn fill(source: &mut dyn Read, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match source.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
