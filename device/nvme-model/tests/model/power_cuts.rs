//! Power cuts at any moment [PL-1] [PL-2]: what was flushed stays, what was not may go, and no LBA
//! is torn.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::power::{cached, flush};
use crate::rig::{Completion, PAGE, Pair, Rig, Server, io_sqe};
use nvme_model::{Configuration, Controller, Media, Profile, Serving};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// LBAs of each queue: 512 bytes in namespace 1 or 4096 in namespace 2.
const LBAS: u64 = 12;

/// What a submitter knows of the LBAs of its queue.
struct Stream {
    nsid: u32,
    first: u64,
    pair: Pair,
    /// Two pages of data for each CID.
    pages: u64,
    /// In flight, by CID: stamp and LBAs of a write; none for a flush, with all that had been
    /// completed when it was submitted.
    flying: [Option<Flying>; 4],
    next_stamp: u64,
    submitted: [u64; LBAS as usize],
    completed: [u64; LBAS as usize],
    durable: [u64; LBAS as usize],
}

#[derive(Clone)]
enum Flying {
    Write { stamp: u64, at: u64, blocks: u64 },
    Flush { promised: [u64; LBAS as usize] },
}

impl Stream {
    fn new(rig: &mut Rig, qid: u16) -> Self {
        let nsid = if qid == 1 { 1 } else { 2 };
        Self {
            nsid,
            first: 10 * qid as u64,
            pages: rig.memory.pages(8 * PAGE),
            pair: rig.create_pair(qid, 8),
            flying: [const { None }; 4],
            next_stamp: 1,
            submitted: [0; LBAS as usize],
            completed: [0; LBAS as usize],
            durable: [0; LBAS as usize],
        }
    }

    fn lba_bytes(&self) -> u64 {
        if self.nsid == 1 { 512 } else { 4096 }
    }

    /// Submits a write or a flush if a CID is free.
    fn submit(&mut self, rig: &Rig, random: &mut Random) {
        let Some(cid) = self.flying.iter().position(Option::is_none) else {
            return;
        };
        let page = self.pages + 2 * PAGE * cid as u64;
        let (flying, sqe) = if random.below(4) == 0 {
            let promised = self.completed;
            let nsid = [self.nsid, u32::MAX][random.below(2) as usize];
            (Flying::Flush { promised }, flush(nsid))
        } else {
            let blocks = 1 + random.below(2);
            let at = random.below(LBAS - blocks + 1);
            let stamp = self.next_stamp;
            self.next_stamp += 1;
            for word in 0..blocks * self.lba_bytes() / 8 {
                rig.memory.set_entry(page + 8 * word, stamp);
            }
            let lbas = at as usize..(at + blocks) as usize;
            self.submitted[lbas].fill(stamp);
            let sqe = io_sqe(
                1,
                self.nsid,
                self.first + at,
                blocks as u32,
                page,
                page + PAGE,
            );
            (Flying::Write { stamp, at, blocks }, sqe)
        };
        self.flying[cid] = Some(flying);
        self.pair.push(rig, cid as u16, sqe);
        self.pair.ring(rig);
    }

    /// Takes the completions that have come. Those with an error came too late.
    fn reap(&mut self, rig: &Rig) {
        while let Some(Completion { cid, status, .. }) = self.pair.reap(rig) {
            let flying = self.flying[cid as usize].take().expect("a command of ours");
            match flying {
                _ if status != 0 => assert_eq!(status, 0x05, "aborted by the power loss"),
                Flying::Write { stamp, at, blocks } => {
                    for lba in at as usize..(at + blocks) as usize {
                        self.completed[lba] = self.completed[lba].max(stamp);
                    }
                }
                Flying::Flush { promised } => {
                    for (durable, promised) in self.durable.iter_mut().zip(promised) {
                        *durable = promised.max(*durable);
                    }
                }
            }
        }
    }

    /// The stamp of an LBA on the media, which must not be torn.
    fn stamp(&self, media: &[u8], lba: usize) -> u64 {
        let bytes = self.lba_bytes() as usize;
        let namespace = if self.nsid == 1 { 0 } else { 4096 * 512 };
        let at = namespace + (self.first as usize + lba) * bytes;
        let words = media[at..at + bytes].as_chunks::<8>().0;
        assert!(
            words.iter().all(|word| *word == words[0]),
            "LBA {lba} of namespace {} is torn",
            self.nsid
        );
        u64::from_le_bytes(words[0])
    }

    /// Begins with what is on the media.
    fn resume(&mut self, media: &[u8]) {
        self.durable = std::array::from_fn(|lba| self.stamp(media, lba));
        (self.completed, self.submitted) = (self.durable, self.durable);
        self.next_stamp = 1 + self.durable.iter().max().unwrap();
    }

    /// Compares with the media after the cut; the numbers of LBAs that were completed and lost, and
    /// that were not flushed and stayed.
    fn check(&self, media: &[u8]) -> (u32, u32) {
        let (mut lost, mut stayed) = (0, 0);
        for lba in 0..LBAS as usize {
            let stamp = self.stamp(media, lba);
            let (durable, last) = (self.durable[lba], self.submitted[lba]);
            assert!(
                stamp >= durable,
                "LBA {lba}: flushed {durable} is lost, {stamp} found"
            );
            assert!(
                stamp <= last,
                "LBA {lba} holds {stamp}, {last} was its last"
            );
            lost += (stamp < self.completed[lba]) as u32;
            stayed += (stamp > durable) as u32;
        }
        (lost, stayed)
    }
}

/// The durable media, as they are.
#[allow(unsafe_code, reason = "the media are the controller's")]
fn media(controller: &Controller) -> Vec<u8> {
    let (address, bytes) = controller.media();
    // SAFETY: the media live as long as the controller, and its power is off.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) }.to_vec()
}

/// Power cuts after a number of steps that the seed decides, everything in one thread.
#[test]
fn four_hundred_cuts_between_steps_lose_nothing_that_was_flushed() {
    let mut totals = (0, 0);
    for profile in [Profile::IDEAL, Profile::by_name("p5800x").unwrap()] {
        let mut rig = Rig::new(
            Configuration {
                profile,
                ..cached()
            },
            Server::Thread,
        );
        for moment in 0..200 {
            rig.enable();
            let before = rig.memory.pages(PAGE);
            let mut streams = [1, 2].map(|qid| Stream::new(&mut rig, qid));
            let start = media(&rig.controller);
            streams.iter_mut().for_each(|stream| stream.resume(&start));
            let mut random = Random(moment + 1);
            for _ in 0..random.below(60) {
                for stream in &mut streams {
                    stream.submit(&rig, &mut random);
                    stream.reap(&rig);
                }
                rig.now += random.below(20_000);
                (0..random.below(3)).for_each(|_| rig.step());
            }
            rig.controller
                .power_cut((moment % 4 != 0).then_some(moment));
            rig.step();
            let left = media(&rig.controller);
            for stream in &mut streams {
                stream.reap(&rig);
                let (lost, stayed) = stream.check(&left);
                totals = (totals.0 + lost, totals.1 + stayed);
            }
            rig.controller.power_on();
            rig.memory.release(before);
        }
    }
    assert!(
        totals.0 > 0 && totals.1 > 0,
        "lost and unflushed but kept: {totals:?}"
    );
}

/// Power cuts by another thread while threads serve the queues; the media are a file that is
/// opened again each time.
#[test]
fn a_hundred_and_twenty_cuts_while_threads_serve() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    let mut lost = 0;
    for moment in 0..120 {
        let bytes = cached().media_bytes().unwrap();
        let media = Media::file(&path, bytes, "WS0001", false).unwrap();
        let mut rig = Rig::with(cached(), Server::Thread, media, None);
        rig.enable();
        let mut streams = [1, 2].map(|qid| Stream::new(&mut rig, qid));
        let start = std::fs::read(&path).unwrap();
        streams.iter_mut().for_each(|stream| stream.resume(&start));
        let serving = Serving::start(vec![rig.controller.clone()], 2).unwrap();
        let mut random = Random(moment + 1);
        let spins = random.below(1500);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (controller, over) = (rig.controller.clone(), &over);
            scope.spawn(move || {
                (0..spins).for_each(|_| std::thread::yield_now());
                controller.power_cut(Some(moment));
                over.store(true, Relaxed);
            });
            let deadline = Instant::now() + Duration::from_secs(30);
            while !over.load(Relaxed) {
                assert!(Instant::now() < deadline, "the power is never cut");
                for stream in &mut streams {
                    stream.submit(&rig, &mut random);
                    stream.reap(&rig);
                }
                std::thread::yield_now();
            }
        });
        drop(serving);
        streams.iter_mut().for_each(|stream| stream.reap(&rig));
        let seen = std::fs::read(&path).unwrap();
        drop(rig);
        let left = std::fs::read(&path).unwrap();
        assert!(seen == left, "putting the drive away changes nothing");
        lost += streams
            .iter()
            .map(|stream| stream.check(&left).0)
            .sum::<u32>();
    }
    assert!(lost > 0, "no completed write was ever lost");
}
