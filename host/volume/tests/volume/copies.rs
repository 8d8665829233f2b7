//! Arrays copied to somewhere that fails.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use warpstore_device::Layout;
use warpstore_volume::{Error, Member, Members, UNIT, Volume};

use crate::disk::Disk;
use crate::fixture::{Content, disks};

/// A disk that counts the bytes that are read.
struct Counted {
    disk: Disk,
    read: Rc<Cell<u64>>,
}

impl Member for Counted {
    fn name(&self) -> String {
        self.disk.name()
    }

    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.disk.block_bytes()
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read.set(self.read.get() + into.len() as u64);
        self.disk.read_at(offset, into)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.disk.write_at(offset, from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.flush()
    }
}

/// A disk without room.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_cannot_be_written_is_not_read() {
    let bytes = 400 * UNIT;
    let content = Content::random(1, &[bytes as usize]);
    let disks = disks(1, 404);
    content.flash(&disks, Layout::Stripe, UNIT).unwrap();
    let read = Rc::new(Cell::new(0));
    let member = Counted {
        disk: disks[0].clone(),
        read: Rc::clone(&read),
    };
    let members = Members::new(vec![Box::new(member)]).unwrap();
    let mut volume = Volume::open(members).unwrap();
    match volume.copy("a0", &mut Full) {
        Err(Error::Copy { array, source }) => {
            assert_eq!(array, "a0");
            assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        }
        _ => panic!("it was written"),
    }
    assert!(read.get() < bytes / 2, "{} bytes", read.get());
}
