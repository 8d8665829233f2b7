//! A submitter made of bytes: it knows nothing of nvme-wire, nvme-queue or driver-vfio, so that
//! the model is checked against the specification's numbers and not against our own code.
#![allow(unsafe_code, reason = "DMA memory is vouched for")]
// UNSAFETY: maps the rig's own memory and serves a copy of the controller's image.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64, fence};

use nvme_model::{
    Configuration, Controller, Faults, Image, Link, MapError, Media, Namespace, Placement, Profile,
    step,
};
use warpstore_simt::host::{Grid, Interleaving, Workers, launch};

pub const PAGE: u64 = 4096;
pub const CSTS: u64 = 0x1c;
pub const CC: u64 = 0x14;
/// IOCQES 4, IOSQES 6, EN.
pub const ENABLE: u32 = 0x0046_0001;

/// DMA memory, 64 KiB aligned, filled with sentinels.
pub struct Memory {
    bytes: Box<[AtomicU8]>,
    start: usize,
    next: u64,
}

impl Memory {
    pub fn new(len: usize) -> Self {
        let bytes: Box<[AtomicU8]> = (0..len + 0x10000).map(|_| AtomicU8::new(0xa5)).collect();
        let start = bytes.as_ptr().align_offset(0x10000);
        Self {
            bytes,
            start,
            next: 0,
        }
    }
    pub fn address(&self) -> u64 {
        self.bytes[self.start..].as_ptr().expose_provenance() as u64
    }
    pub fn len(&self) -> u64 {
        (self.bytes.len() - 0x10000) as u64
    }
    /// Address of `bytes` fresh bytes at a page boundary.
    pub fn pages(&mut self, bytes: u64) -> u64 {
        let at = self.address() + self.next;
        self.next += bytes.next_multiple_of(PAGE);
        assert!(self.next <= self.len(), "the rig's memory is full");
        at
    }
    /// Gives back every page from `address` on.
    pub fn release(&mut self, address: u64) {
        self.next = address - self.address();
    }
    fn at(&self, address: u64) -> &AtomicU8 {
        &self.bytes[self.start + (address - self.address()) as usize]
    }
    pub fn byte(&self, address: u64) -> u8 {
        self.at(address).load(Relaxed)
    }
    pub fn set_byte(&self, address: u64, value: u8) {
        self.at(address).store(value, Relaxed);
    }
    pub fn fill(&self, address: u64, len: u64, value: u8) {
        (address..address + len).for_each(|at| self.set_byte(at, value));
    }
    pub fn word(&self, address: u64) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|byte| self.byte(address + byte as u64)))
    }
    /// Phase of the CQE at `address`, read before the rest of it.
    pub fn phase(&self, address: u64) -> u32 {
        self.at(address + 14).load(Acquire) as u32 & 1
    }
    pub fn set_word(&self, address: u64, value: u32) {
        for (byte, value) in value.to_le_bytes().into_iter().enumerate() {
            self.set_byte(address + byte as u64, value);
        }
    }
    pub fn set_entry(&self, address: u64, value: u64) {
        self.set_word(address, value as u32);
        self.set_word(address + 4, (value >> 32) as u32);
    }
    pub fn bytes(&self, address: u64, len: u64) -> Vec<u8> {
        (address..address + len).map(|at| self.byte(at)).collect()
    }
}

/// Who serves the I/O queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The controller in its process, one lane.
    Thread,
    /// A warp of 32 lanes on a copy of the image, as a GPU does it.
    Warp,
}

pub const SERVERS: [Server; 2] = [Server::Thread, Server::Warp];

#[repr(align(128))]
struct Line([AtomicU64; 16]);

/// A controller's image at another place, as in a GPU's memory.
pub struct ImageCopy(Box<[Line]>);

impl ImageCopy {
    pub fn of(controller: &Controller) -> Self {
        let place = Placement {
            media: controller.media().0,
            link: 0,
        };
        let words = controller.image(place);
        let word = |at: usize| AtomicU64::new(words.get(at).copied().unwrap_or(0));
        let line = |first: usize| Line(std::array::from_fn(|index| word(16 * first + index)));
        Self((0..words.len().div_ceil(16)).map(line).collect())
    }

    pub fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    pub fn words(&self) -> Vec<u64> {
        let words = self.0.iter().flat_map(|line| &line.0);
        words.map(|word| word.load(Relaxed)).collect()
    }
}

/// Runs `body` on warps of one block each.
pub fn run_warps(warps: u32, body: &(dyn Fn() + Sync)) {
    let grid = Grid {
        grid_dim: warps,
        block_dim: 32,
    };
    let workers = Workers {
        threads: 1,
        resident_blocks: warps as usize,
    };
    launch(grid, workers, Interleaving::None, body).unwrap();
}

pub struct Rig {
    pub controller: Arc<Controller>,
    pub memory: Memory,
    pub now: u64,
    server: Server,
    asq: u64,
    acq: u64,
    tail: u32,
    head: u32,
    phase: u32,
    cid: u16,
}

pub const ADMIN_ENTRIES: u32 = 8;

pub fn configuration() -> Configuration {
    Configuration {
        serial: "WS0001".into(),
        model: "test drive".into(),
        namespaces: vec![
            Namespace {
                lbas: 4096,
                lba_bytes: 512,
            },
            Namespace {
                lbas: 64,
                lba_bytes: 4096,
            },
        ],
        mdts: 9,
        queue_entries: 64,
        dstrd: 1,
        to: 10,
        queues: 3,
        profile: Profile::IDEAL,
        volatile_write_cache: false,
        shadow_doorbells: false,
        faults: Faults::none(),
    }
}

impl Rig {
    /// A controller over RAM, not enabled; all of the rig's memory is mapped.
    pub fn new(configuration: Configuration, server: Server) -> Self {
        let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
        Self::with(configuration, server, media, None)
    }

    pub fn with(
        configuration: Configuration,
        server: Server,
        media: Media,
        link: Option<Link>,
    ) -> Self {
        let controller = Controller::new(configuration, media, link, None).unwrap();
        let mut memory = Memory::new(8 << 20);
        map(&controller, memory.address(), memory.len());
        let asq = memory.pages(PAGE);
        let acq = memory.pages(PAGE);
        Self {
            controller: Arc::new(controller),
            now: 1_000_000,
            server,
            asq,
            acq,
            memory,
            tail: 0,
            head: 0,
            phase: 1,
            cid: 0x100,
        }
    }

    /// An enabled controller.
    pub fn up(configuration: Configuration, server: Server) -> Self {
        let mut rig = Self::new(configuration, server);
        rig.enable();
        rig
    }

    pub fn program_admin(&mut self) {
        self.memory.fill(self.asq, PAGE, 0);
        self.memory.fill(self.acq, PAGE, 0);
        (self.tail, self.head, self.phase) = (0, 0, 1);
        let entries_z = ADMIN_ENTRIES - 1;
        self.controller.write32(0x24, entries_z << 16 | entries_z);
        self.controller.write64(0x28, self.asq);
        self.controller.write64(0x30, self.acq);
    }

    pub fn enable(&mut self) {
        self.program_admin();
        self.controller.write32(CC, ENABLE);
        assert_eq!(self.controller.read32(CSTS), 1, "RDY alone");
    }

    fn stride(&self) -> u64 {
        4 << self.controller.configuration().dstrd
    }

    /// Doorbell offset, by the specification's formula.
    pub fn doorbell(&self, qid: u16, is_cq: bool) -> u64 {
        0x1000 + (2 * qid as u64 + is_cq as u64) * self.stride()
    }

    /// Lets the controller work once.
    pub fn step(&mut self) {
        match self.server {
            Server::Thread => {
                self.controller.step(self.now);
            }
            Server::Warp => {
                self.controller.step_admin();
                self.step_warp();
            }
        }
    }

    fn step_warp(&mut self) {
        let copy = ImageCopy::of(&self.controller);
        let queues = self.controller.configuration().queues as u32;
        let now = self.now;
        // SAFETY: a copy of the controller's image; the controller and the rig's memory live
        // longer than the launch, and nothing else writes the copy during it.
        let image = unsafe { Image::new(copy.address() as *mut u64) };
        run_warps(1, &move || {
            for queue in 0..queues {
                step::<32>(image, queue, now);
            }
        });
        self.controller.take_back(&copy.words());
    }

    /// Puts an admin command in its ring without ringing.
    pub fn push_admin(&mut self, mut sqe: [u32; 16]) -> u16 {
        self.cid += 1;
        sqe[0] |= (self.cid as u32) << 16;
        for (index, word) in sqe.into_iter().enumerate() {
            self.memory
                .set_word(self.asq + self.tail as u64 * 64 + index as u64 * 4, word);
        }
        self.tail = (self.tail + 1) % ADMIN_ENTRIES;
        self.cid
    }

    pub fn ring_admin(&self) {
        fence(Release);
        self.controller.write32(self.doorbell(0, false), self.tail);
    }

    /// Next admin completion: CID, status, Dword 0.
    pub fn reap_admin(&mut self) -> Option<(u16, u16, u32)> {
        let at = self.acq + self.head as u64 * 16;
        if self.memory.phase(at) != self.phase {
            return None;
        }
        let dw3 = self.memory.word(at + 12);
        self.head = (self.head + 1) % ADMIN_ENTRIES;
        if self.head == 0 {
            self.phase ^= 1;
        }
        self.controller.write32(self.doorbell(0, true), self.head);
        Some((dw3 as u16, (dw3 >> 17) as u16, self.memory.word(at)))
    }

    /// Executes an admin command: status and Dword 0.
    pub fn admin(&mut self, sqe: [u32; 16]) -> (u16, u32) {
        let cid = self.push_admin(sqe);
        self.ring_admin();
        self.step();
        let (found, status, dw0) = self.reap_admin().expect("an admin command completes");
        assert_eq!(found, cid, "CID");
        (status, dw0)
    }

    pub fn create_cq(&mut self, qid: u16, entries: u32, address: u64) -> u16 {
        self.admin(admin_sqe(
            5,
            0,
            address,
            qid as u32 | (entries - 1) << 16,
            1,
        ))
        .0
    }

    pub fn create_sq(&mut self, qid: u16, entries: u32, cqid: u16, address: u64) -> u16 {
        let cdw11 = 1 | (cqid as u32) << 16;
        self.admin(admin_sqe(
            1,
            0,
            address,
            qid as u32 | (entries - 1) << 16,
            cdw11,
        ))
        .0
    }

    pub fn create_pair(&mut self, qid: u16, entries: u32) -> Pair {
        let cq = self.memory.pages(entries as u64 * 16);
        let sq = self.memory.pages(entries as u64 * 64);
        self.memory.fill(cq, entries as u64 * 16, 0);
        assert_eq!(self.create_cq(qid, entries, cq), 0);
        assert_eq!(self.create_sq(qid, entries, qid, sq), 0);
        Pair {
            qid,
            entries,
            sq,
            cq,
            tail: 0,
            head: 0,
            phase: 1,
        }
    }
}

/// An I/O queue pair of the rig.
pub struct Pair {
    pub qid: u16,
    pub entries: u32,
    pub sq: u64,
    pub cq: u64,
    pub tail: u32,
    pub head: u32,
    pub phase: u32,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub cid: u16,
    pub status: u16,
    pub sqhd: u16,
    pub sqid: u16,
}

impl Pair {
    pub fn push(&mut self, rig: &Rig, cid: u16, mut sqe: [u32; 16]) {
        sqe[0] |= (cid as u32) << 16;
        for (index, word) in sqe.into_iter().enumerate() {
            rig.memory
                .set_word(self.sq + self.tail as u64 * 64 + index as u64 * 4, word);
        }
        self.tail = (self.tail + 1) % self.entries;
    }

    pub fn ring(&self, rig: &Rig) {
        fence(Release);
        rig.controller
            .write32(rig.doorbell(self.qid, false), self.tail);
    }

    /// The next completion, without telling the controller.
    pub fn peek(&mut self, rig: &Rig) -> Option<Completion> {
        let at = self.cq + self.head as u64 * 16;
        if rig.memory.phase(at) != self.phase {
            return None;
        }
        let dw3 = rig.memory.word(at + 12);
        self.head = (self.head + 1) % self.entries;
        if self.head == 0 {
            self.phase ^= 1;
        }
        let dw2 = rig.memory.word(at + 8);
        Some(Completion {
            cid: dw3 as u16,
            status: (dw3 >> 17) as u16,
            sqhd: dw2 as u16,
            sqid: (dw2 >> 16) as u16,
        })
    }

    pub fn release(&self, rig: &Rig) {
        rig.controller
            .write32(rig.doorbell(self.qid, true), self.head);
    }

    pub fn reap(&mut self, rig: &Rig) -> Option<Completion> {
        let completion = self.peek(rig);
        self.release(rig);
        completion
    }

    /// Executes one command and returns its status.
    pub fn run(&mut self, rig: &mut Rig, sqe: [u32; 16]) -> u16 {
        self.push(rig, 7, sqe);
        self.ring(rig);
        rig.step();
        let completion = self.reap(rig).expect("a command completes");
        assert_eq!((completion.cid, completion.sqid), (7, self.qid));
        completion.status
    }
}

/// Makes memory of the rig reachable by its addresses.
pub fn map(controller: &Controller, address: u64, len: u64) {
    map_at(controller, address, address, len).unwrap();
}

/// Makes memory of the rig reachable.
pub fn map_at(controller: &Controller, iova: u64, address: u64, len: u64) -> Result<(), MapError> {
    // SAFETY: the rig's memory is made of atomics and lives as long as the controller is used.
    unsafe { controller.map_dma(iova, address, len) }
}

pub fn admin_sqe(opcode: u32, nsid: u32, prp1: u64, cdw10: u32, cdw11: u32) -> [u32; 16] {
    let mut sqe = [0; 16];
    sqe[0] = opcode;
    sqe[1] = nsid;
    sqe[6] = prp1 as u32;
    sqe[7] = (prp1 >> 32) as u32;
    sqe[10] = cdw10;
    sqe[11] = cdw11;
    sqe
}

/// A read (opcode 2) or write (1) of `blocks` LBAs.
pub fn io_sqe(opcode: u32, nsid: u32, slba: u64, blocks: u32, prp1: u64, prp2: u64) -> [u32; 16] {
    let mut sqe = admin_sqe(opcode, nsid, prp1, slba as u32, (slba >> 32) as u32);
    sqe[8] = prp2 as u32;
    sqe[9] = (prp2 >> 32) as u32;
    sqe[12] = blocks - 1;
    sqe
}

/// The status field's 15 bits: status code type, code, Do Not Retry.
pub const fn failed(sct: u16, sc: u16) -> u16 {
    1 << 14 | sct << 8 | sc
}
