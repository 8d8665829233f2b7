//! What every backing must pass, with whatever controller behind it.
//!
//! Each case brings the controller up and leaves it disabled. Blocks are overwritten.

use driver_vfio::{Access, Controller, Enabled, Error, Namespace, NamespaceFault};
use nvme_wire::{Sqe, Status};

use crate::memory::Submitter;
use crate::site::{Buffer, Site};

/// An NSID that no controller here has.
const NO_NAMESPACE: u32 = 200;
/// Entries of the rings, where a case does not say otherwise.
const ENTRIES: u32 = 64;
/// Words of the smallest block.
const BLOCK_WORDS: u64 = 512 / 8;

/// A name and what it does.
type Case = (&'static str, fn(&Site));

/// All cases, in the order in which they run.
pub const CASES: [Case; 10] = [
    ("the controller says what it was made as", identity),
    ("namespaces have their formats", formats),
    ("queue pairs are granted up to what both want", grants),
    ("data survives transfers of every shape", transfers),
    ("rings wrap", wraps),
    ("every queue pair works", pairs),
    ("many commands are in flight", in_flight),
    ("block I/O moves any number of blocks", block_io),
    ("what cannot be is refused and harms nothing", refusals),
    ("the controller comes up again after every end", lives),
];

/// Runs all cases.
///
/// # Panics
/// If one fails.
pub fn run(site: &Site) {
    for (name, case) in CASES {
        println!("{}: {name}", site.backing.name());
        case(site);
    }
}

/// The word that belongs at `index` of block `lba` of namespace `nsid`, in a generation of data.
pub fn pattern(nsid: u32, lba: u64, index: u64, generation: u64) -> u64 {
    // The finalizer of SplitMix64.
    let mut word = lba << 13 ^ index ^ u64::from(nsid) << 48 ^ generation << 56;
    for (shift, factor) in [
        (30, 0xbf58_476d_1ce4_e5b9),
        (27, 0x94d0_49bb_1331_11eb),
        (31, 1),
    ] {
        word = (word ^ word >> shift).wrapping_mul(factor);
    }
    word
}

fn identity(site: &Site) {
    let controller = site.enable(1);
    let info = controller.info();
    assert_eq!(info.serial, site.expected.serial);
    assert_eq!(info.max_transfer, site.expected.max_transfer);
    end(controller);
}

fn formats(site: &Site) {
    let mut controller = site.enable(1);
    let expected = &site.expected.namespaces;
    let nsids: Vec<u32> = expected.iter().map(|(nsid, ..)| *nsid).collect();
    assert_eq!(controller.active_namespaces().expect("a list"), nsids);
    let found = site.namespaces(&mut controller);
    let found: Vec<_> = found
        .iter()
        .map(|namespace| (namespace.nsid, namespace.blocks, namespace.block_shift))
        .collect();
    assert_eq!(&found, expected);
    match controller.namespace(NO_NAMESPACE) {
        Err(Error::Refused { status, .. }) => {
            assert_eq!(status.code(), Status::INVALID_NAMESPACE);
        }
        Err(Error::Namespace { fault, .. }) => assert_eq!(fault, NamespaceFault::Inactive),
        other => panic!("{other:?}"),
    }
    end(controller);
}

fn grants(site: &Site) {
    let most = site.expected.queues;
    for (asked, granted) in [(1, 1), (most, most), (most + 1, most), (u16::MAX, most)] {
        let controller = site.enable(asked);
        assert_eq!(controller.n_io_queues(), granted, "{asked} asked for");
        end(controller);
    }
}

/// Writes and reads with PRP1 alone, with PRP2, and with lists; at the start of a page and not.
fn transfers(site: &Site) {
    let mut controller = site.enable(1);
    let page = controller.page_bytes();
    let (_, submitter, _rings) = site.pair(&mut controller, 1, ENTRIES);
    let list = site.buffer(page);
    for namespace in site.namespaces(&mut controller) {
        let block = 1 << namespace.block_shift;
        let most = u64::from(namespace.max_blocks) * block;
        let data = site.buffer(most + 4 * page);
        let sizes = [block, page, 2 * page, 3 * page, most / 2, most];
        for bytes in sizes.into_iter().filter(|bytes| *bytes <= most) {
            for offset in [0, 512, page - 512] {
                let transfer = Transfer {
                    namespace: &namespace,
                    lba: 3,
                    blocks: (bytes / block).max(1),
                    offset: page + offset,
                };
                transfer.round_trip(&submitter, &data, &list, page);
            }
        }
        assert!(submitter.run(Sqe::flush(namespace.nsid)).is_success());
    }
    end(controller);
}

struct Transfer<'a> {
    namespace: &'a Namespace,
    lba: u64,
    blocks: u64,
    /// Where in the buffer the data lies.
    offset: u64,
}

impl Transfer<'_> {
    /// Writes the pattern, reads it back, and checks that nothing around it changed.
    fn round_trip(&self, submitter: &Submitter, data: &Buffer, list: &Buffer, page: u64) {
        const UNTOUCHED: u64 = 0x5e17_5e17_5e17_5e17;
        let &Transfer {
            namespace: &Namespace {
                nsid, block_shift, ..
            },
            lba,
            blocks,
            offset,
        } = self;
        let bytes = blocks << block_shift;
        let words = offset / 8..(offset + bytes) / 8;
        let generation = bytes / page + offset / 512;
        let expected = |word: u64| {
            let index = word - words.start;
            pattern(
                nsid,
                lba + index / BLOCK_WORDS,
                index % BLOCK_WORDS,
                generation,
            )
        };
        data.words.fill(UNTOUCHED);
        words
            .clone()
            .for_each(|word| data.set(word, expected(word)));
        let (prp1, prp2) = prps(data, offset, bytes, list, page);
        let nlb_z = (blocks - 1) as u16;
        let what = format!("{bytes} bytes at offset {offset} of namespace {nsid}");
        let written = submitter.run(Sqe::write(nsid, lba, nlb_z, prp1, prp2));
        assert!(written.is_success(), "{}: {what}", written.name());
        data.words.fill(UNTOUCHED);
        let read = submitter.run(Sqe::read(nsid, lba, nlb_z, prp1, prp2));
        assert!(read.is_success(), "{}: {what}", read.name());
        for word in 0..data.len() {
            let wanted = if words.contains(&word) {
                expected(word)
            } else {
                UNTOUCHED
            };
            assert_eq!(data.get(word), wanted, "word {word}: {what}");
        }
    }
}

/// PRP1 and PRP2 of `bytes` bytes at `offset` of `data`; fills `list` if they need one (NVM 4.3).
fn prps(data: &Buffer, offset: u64, bytes: u64, list: &Buffer, page: u64) -> (u64, u64) {
    let prp1 = data.iova.plus(offset).0;
    let first_end = (prp1 / page + 1) * page;
    let end = prp1 + bytes;
    let rest: Vec<u64> = (first_end..end).step_by(page as usize).collect();
    match rest[..] {
        [] => (prp1, 0),
        [second] => (prp1, second),
        _ => {
            assert!(rest.len() as u64 * 8 <= page, "the list is one page");
            for (index, entry) in rest.iter().enumerate() {
                list.set(index as u64, *entry);
            }
            (prp1, list.iova.0)
        }
    }
}

/// Three laps of rings of every kind: phases and doorbells wrap.
fn wraps(site: &Site) {
    let mut controller = site.enable(1);
    let namespace = site.namespaces(&mut controller)[0];
    let data = site.buffer(64 << 10);
    for entries in [2, 4, ENTRIES] {
        let (_, submitter, _rings) = site.pair(&mut controller, 1, entries);
        for lba in 0..3 * u64::from(entries) / 2 {
            let value = pattern(namespace.nsid, lba, 0, entries.into());
            data.set(0, value);
            let write = Sqe::write(namespace.nsid, lba, 0, data.iova.0, 0);
            assert!(submitter.run(write).is_success());
            data.set(0, !value);
            let read = Sqe::read(namespace.nsid, lba, 0, data.iova.0, 0);
            assert!(submitter.run(read).is_success());
            assert_eq!(data.get(0), value, "block {lba}, {entries} entries");
        }
        controller.delete_queue_pair(1).expect("the pair exists");
    }
    end(controller);
}

/// What is written through one pair is read through the next.
fn pairs(site: &Site) {
    let mut controller = site.enable(u16::MAX);
    let namespace = site.namespaces(&mut controller)[0];
    let granted = controller.n_io_queues();
    let pairs: Vec<_> = (1..=granted)
        .map(|qid| site.pair(&mut controller, qid, 8))
        .collect();
    let data = site.buffer(64 << 10);
    let readers = pairs.iter().cycle().skip(1);
    for (lba, ((pair, writer, _), (_, reader, _))) in (0..).zip(pairs.iter().zip(readers)) {
        let value = pattern(namespace.nsid, lba, 0, pair.qid.into());
        data.set(0, value);
        let write = Sqe::write(namespace.nsid, lba, 0, data.iova.0, 0);
        assert!(writer.run(write).is_success(), "pair {}", pair.qid);
        data.set(0, !value);
        let read = Sqe::read(namespace.nsid, lba, 0, data.iova.0, 0);
        assert!(reader.run(read).is_success(), "after pair {}", pair.qid);
        assert_eq!(data.get(0), value, "pair {}", pair.qid);
    }
    end(controller);
}

/// More commands than entries, as many at a time as the ring takes.
fn in_flight(site: &Site) {
    const COMMANDS: u64 = 200;
    let mut controller = site.enable(1);
    let namespace = site.namespaces(&mut controller)[0];
    let (_, submitter, _rings) = site.pair(&mut controller, 1, ENTRIES);
    let block = 1u64 << namespace.block_shift;
    let data = site.buffer(COMMANDS * block);
    let command = |make: fn(u32, u64, u16, u64, u64) -> Sqe| -> Vec<Sqe> {
        let at = |index: u64| data.iova.plus(index * block).0;
        (0..COMMANDS)
            .map(|index| make(namespace.nsid, index, 0, at(index), 0))
            .collect()
    };
    let words = 0..COMMANDS * block / 8;
    let expected = |word| pattern(namespace.nsid, word, 0, 7);
    words
        .clone()
        .for_each(|word| data.set(word, expected(word)));
    let written = submitter.run_all(&command(Sqe::write));
    data.words.fill(0);
    let read = submitter.run_all(&command(Sqe::read));
    assert!(
        written
            .iter()
            .chain(&read)
            .all(|status| status.is_success())
    );
    for word in words {
        assert_eq!(data.get(word), expected(word), "word {word}");
    }
    end(controller);
}

/// The driver's own reads and writes, of more than one round of commands and of less than one.
fn block_io(site: &Site) {
    let mut controller = site.enable(1);
    for namespace in site.namespaces(&mut controller) {
        let mut io = site.block_io(&mut controller, namespace.nsid, Access::ReadWrite);
        let block = 1usize << namespace.block_shift;
        let most = (1 << 20) / block + 3;
        for (lba, blocks) in [(0, 1), (11, 3), (5, 257), (2, most)] {
            let bytes = content(namespace.nsid, lba, blocks * block);
            io.write(lba, &bytes)
                .unwrap_or_else(|error| panic!("{error}"));
            let mut found = vec![0; bytes.len()];
            io.read(lba, &mut found)
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(found == bytes, "{blocks} blocks at {lba}");
        }
        io.flush().unwrap_or_else(|error| panic!("{error}"));
        // Another way to the same blocks, which must not have moved.
        let last = content(namespace.nsid, 2, most * block);
        drop(io);
        let (_, submitter, _rings) = site.pair(&mut controller, 1, 4);
        let data = site.buffer(64 << 10);
        let read = Sqe::read(namespace.nsid, 3, 0, data.iova.0, 0);
        assert!(submitter.run(read).is_success());
        for (index, word) in (0..).zip(last[block..2 * block].chunks_exact(8)) {
            assert_eq!(data.get(index).to_le_bytes(), *word, "word {index}");
        }
        controller.delete_queue_pair(1).expect("the pair exists");
    }
    end(controller);
}

/// Bytes that belong from block `lba` of namespace `nsid` on.
fn content(nsid: u32, lba: u64, bytes: usize) -> Vec<u8> {
    let words = 0..bytes as u64 / 8;
    words
        .flat_map(|word| pattern(nsid, lba, word, 31).to_le_bytes())
        .collect()
}

fn refusals(site: &Site) {
    let mut controller = site.enable(site.expected.queues);
    let namespace = site.namespaces(&mut controller)[0];
    let (_, submitter, _rings) = site.pair(&mut controller, 1, ENTRIES);
    let page = controller.page_bytes();
    let data = site.buffer(site.expected.max_transfer + 2 * page);
    let list = site.buffer(page);

    let read = |nsid, lba| {
        submitter
            .run(Sqe::read(nsid, lba, 0, data.iova.0, 0))
            .code()
    };
    assert_eq!(
        read(namespace.nsid, namespace.blocks),
        Status::LBA_OUT_OF_RANGE
    );
    let nowhere = read(NO_NAMESPACE, 0);
    assert!(
        [Status::INVALID_NAMESPACE, Status::INVALID_FIELD].contains(&nowhere),
        "{}",
        nowhere.name()
    );
    if site.expected.limits_transfers {
        let bytes = site.expected.max_transfer + (1 << namespace.block_shift);
        let (prp1, prp2) = prps(&data, 0, bytes, &list, page);
        let too_long = Sqe::read(namespace.nsid, 0, namespace.max_blocks as u16, prp1, prp2);
        assert_eq!(submitter.run(too_long).code(), Status::INVALID_FIELD);
    }

    let refused = |result: Result<(), Error>| match result {
        Err(Error::Refused { status, .. }) => {
            assert_eq!(status.code(), Status::INVALID_QUEUE_ID);
        }
        other => panic!("{other:?}"),
    };
    refused(controller.delete_queue_pair(site.expected.queues + 1));
    let (beyond, _memory) = site.request(site.expected.queues + 1, ENTRIES);
    match controller.create_queue_pair(beyond) {
        // A backing may know that there is no such doorbell.
        Err(Error::Backing { .. }) => {}
        other => refused(other.map(drop)),
    }
    let harmless = || {
        let status = submitter.run(Sqe::read(namespace.nsid, 0, 0, data.iova.0, 0));
        assert!(status.is_success(), "{}", status.name());
    };
    harmless();
    let (again, _memory) = site.request(1, ENTRIES);
    refused(controller.create_queue_pair(again).map(drop));
    harmless();
    end(controller);
}

/// Shut down, dropped, reset under way: each is an end, and data outlives it.
fn lives(site: &Site) {
    let data = site.buffer(64 << 10);
    let mut previous = None;
    let ends: [fn(&Site, Controller<Enabled>); 4] = [
        |_, controller| end(controller),
        |_, controller| drop(controller),
        reset,
        |_, controller| end(controller),
    ];
    for (life, end) in ends.into_iter().enumerate() {
        let mut controller = site.enable(1);
        let namespace = site.namespaces(&mut controller)[0];
        let (_, submitter, _rings) = site.pair(&mut controller, 1, ENTRIES);
        let at = data.iova.0;
        assert!(
            submitter
                .run(Sqe::read(namespace.nsid, 1, 0, at, 0))
                .is_success()
        );
        if let Some(value) = previous {
            assert_eq!(data.get(0), value, "what life {life} found");
        }
        let value = pattern(namespace.nsid, 1, 0, life as u64);
        data.set(0, value);
        assert!(
            submitter
                .run(Sqe::write(namespace.nsid, 1, 0, at, 0))
                .is_success()
        );
        assert!(submitter.run(Sqe::flush(namespace.nsid)).is_success());
        previous = Some(value);
        end(site, controller);
    }
}

/// Resets the function under an enabled controller, which then is not enabled any more.
fn reset(site: &Site, controller: Controller<Enabled>) {
    site.backing
        .reset()
        .unwrap_or_else(|error| panic!("{error}"));
    drop(controller);
}

fn end(controller: Controller<Enabled>) {
    if let Err(error) = controller.shutdown() {
        panic!("{error}");
    }
}
