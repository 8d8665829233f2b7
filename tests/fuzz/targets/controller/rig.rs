//! A controller with its submitter's memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nvme_model::{
    Commands, Configuration, Controller, Fault, Faults, Media, Namespace, Profile, Rule, When,
};
use nvme_wire::regs::{Aqa, Cc, doorbell_offset, offset};
use nvme_wire::{Cqe, Sqe};

use crate::input::Input;
use crate::queue::CompletionQueue;

pub const SQ_ENTRIES: u32 = 8;
/// Fewer than the commands that fit, so that the queue fills up.
pub const CQ_ENTRIES: u32 = 4;
const DATA_PAGES: usize = 8;
const SENTINEL: u64 = 0xa5a5_a5a5_a5a5_a5a5;

#[repr(align(4096))]
pub struct Page([AtomicU64; 512]);

impl Page {
    pub fn zeroed(pages: usize) -> Box<[Self]> {
        Self::filled(pages, 0)
    }

    fn filled(pages: usize, value: u64) -> Box<[Self]> {
        let page = |_| Self(std::array::from_fn(|_| AtomicU64::new(value)));
        (0..pages).map(page).collect()
    }

    pub fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    pub fn word(&self, index: usize) -> u64 {
        self.0[index].load(Relaxed)
    }

    fn set(&self, index: usize, value: u64) {
        self.0[index].store(value, Relaxed);
    }
}

pub struct Rig {
    pub controller: Controller,
    admin_sq: Box<[Page]>,
    io_sq: Box<[Page]>,
    data: Box<[Page]>,
    hole: Box<[Page]>,
    admin: CompletionQueue,
    io: CompletionQueue,
    /// Both completion queues are where they were created.
    alive: bool,
    admin_tail: u32,
    /// What the CQ head doorbells hold, and the last value that was valid for queue 1.
    heads: [u32; 2],
    valid_head: u32,
    now: u64,
}

impl Rig {
    /// A controller with its admin queue and queue pair 1.
    pub fn up(input: &mut Input<'_>) -> Self {
        let controller = controller(input);
        let rig = Self {
            admin_sq: Page::zeroed(1),
            io_sq: Page::zeroed(1),
            data: Page::filled(DATA_PAGES, SENTINEL),
            hole: Page::filled(2, SENTINEL),
            admin: CompletionQueue::new(CQ_ENTRIES),
            io: CompletionQueue::new(CQ_ENTRIES),
            alive: true,
            admin_tail: 0,
            heads: [0; 2],
            valid_head: 0,
            now: 0,
            controller,
        };
        rig.map();
        rig.bring_up()
    }

    fn map(&self) {
        let rings = [&self.admin_sq, &self.io_sq].map(|ring| ring[0].address());
        let queues = [&self.admin, &self.io].map(CompletionQueue::address);
        let data = (self.data[0].address(), 4096 * DATA_PAGES as u64);
        let pages = rings.into_iter().chain(queues).map(|page| (page, 4096));
        for (address, bytes) in pages.chain([data]) {
            // SAFETY: the memory is the rig's own and atomic; it outlives the controller's last
            // step, because the same value holds both.
            unsafe { self.controller.map_dma(address, address, bytes) }.unwrap();
        }
    }

    fn bring_up(mut self) -> Self {
        let aqa = Aqa::new()
            .with_asqs_z(SQ_ENTRIES as u16 - 1)
            .with_acqs_z(CQ_ENTRIES as u16 - 1);
        self.controller.write32(offset::AQA, aqa.into_bits());
        self.controller
            .write64(offset::ASQ, self.admin_sq[0].address());
        self.controller.write64(offset::ACQ, self.admin.address());
        let cc = Cc::new()
            .with_en(true)
            .with_iosqes(Sqe::SIZE_LOG2)
            .with_iocqes(Cqe::SIZE_LOG2);
        self.controller.write32(offset::CC, cc.into_bits());
        let (cq, sq) = (self.io.address(), self.io_sq[0].address());
        for sqe in [
            Sqe::create_io_cq(1, CQ_ENTRIES as u16 - 1, cq),
            Sqe::create_io_sq(1, SQ_ENTRIES as u16 - 1, 1, sq),
        ] {
            self.submit_admin(sqe);
            self.controller.step(0);
            let taken = self.admin.take(self.heads[0]);
            assert!(
                taken.len() == 1 && taken[0].status().is_success(),
                "{taken:?}"
            );
            self.ring(0, true, self.admin_tail % CQ_ENTRIES);
        }
        self
    }

    pub fn data(&self) -> (u64, u64) {
        (self.data[0].address(), 4096 * DATA_PAGES as u64)
    }

    pub fn hole(&self) -> u64 {
        self.hole[0].address()
    }

    pub fn commands(&self) -> u64 {
        self.io_sq[0].address()
    }

    /// Writes a register. From a change of CC on nothing is known of the queues.
    pub fn write32(&mut self, at: u64, value: u32) {
        self.alive &= at != offset::CC;
        let dstrd = self.controller.configuration().dstrd;
        for qid in 0..2 {
            if at == doorbell_offset(qid, true, dstrd) {
                self.heads[usize::from(qid)] = value;
            }
        }
        self.controller.write32(at, value);
    }

    pub fn write64(&mut self, at: u64, value: u64) {
        self.write32(at, value as u32);
        if at < offset::DOORBELLS {
            self.write32(at + 4, (value >> 32) as u32);
        }
    }

    pub fn ring(&mut self, qid: u16, is_cq: bool, value: u32) {
        let dstrd = self.controller.configuration().dstrd;
        self.write32(doorbell_offset(qid, is_cq, dstrd), value);
    }

    /// Submits an admin command. From a deletion on nothing is known of queue pair 1.
    pub fn submit_admin(&mut self, sqe: Sqe) {
        self.alive &= !matches!(sqe.opcode(), 0x00 | 0x04);
        put(&self.admin_sq, self.admin_tail, sqe);
        self.admin_tail = (self.admin_tail + 1) % SQ_ENTRIES;
        self.ring(0, false, self.admin_tail);
    }

    pub fn put_io(&mut self, slot: u8, sqe: Sqe) {
        put(&self.io_sq, u32::from(slot) % SQ_ENTRIES, sqe);
    }

    /// Sets a word of the data, as a PRP list has.
    pub fn poke(&mut self, at: u16, value: u64) {
        let at = usize::from(at) % (512 * DATA_PAGES);
        self.data[at / 512].set(at % 512, value);
    }

    /// Lets the controller work once, `later` ns after the last time.
    pub fn step(&mut self, later: u64) {
        self.now += later;
        self.controller.step(self.now);
        if !self.alive {
            return;
        }
        if self.io.releases(self.valid_head, self.heads[1]) {
            self.valid_head = self.heads[1];
        }
        self.admin.take(self.heads[0]);
        for cqe in self.io.take(self.valid_head) {
            assert!(cqe.sqid == 1 && u32::from(cqe.sqhd) < SQ_ENTRIES, "{cqe:?}");
        }
    }

    /// Compares what nobody may have written.
    pub fn finish(self) {
        let mut words = self.hole.iter().flat_map(|page| &page.0);
        assert!(
            words.all(|word| word.load(Relaxed) == SENTINEL),
            "unmapped memory was written"
        );
    }
}

fn put(ring: &[Page], slot: u32, sqe: Sqe) {
    for (index, word) in sqe.to_words().into_iter().enumerate() {
        ring[0].set(8 * slot as usize + index, word);
    }
}

/// One byte of input chooses timing, doorbell stride, MDTS, write cache and faults.
fn controller(input: &mut Input<'_>) -> Controller {
    let choice = input.byte();
    let timed = Profile::by_name("p5800x").unwrap();
    let configuration = Configuration {
        serial: "F".into(),
        model: "fuzzed".into(),
        namespaces: vec![
            Namespace {
                lbas: 64,
                lba_bytes: 512,
            },
            Namespace {
                lbas: 8,
                lba_bytes: 4096,
            },
        ],
        mdts: choice >> 4 & 3,
        queue_entries: 16,
        dstrd: choice >> 1 & 3,
        to: 1,
        queues: 3,
        volatile_write_cache: choice & 0x40 != 0,
        shadow_doorbells: false,
        faults: faults(choice),
        profile: if choice & 1 == 0 {
            Profile::IDEAL
        } else {
            timed
        },
    };
    let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
    Controller::new(configuration, media, None, None).unwrap()
}

/// Faults that need room for more completions than there are commands, or none.
fn faults(choice: u8) -> Faults {
    let fault = match choice & 0x88 {
        0x08 => Fault::Duplicate,
        0x80 => Fault::StaleCid,
        0x88 => Fault::UnknownCid,
        _ => return Faults::none(),
    };
    let rule = Rule {
        fault,
        when: When::OneIn(2),
        queue: None,
        commands: Commands::All,
        lbas: None,
    };
    Faults {
        seed: 1,
        rules: vec![rule],
    }
}
