//! What the volatile write cache promises, command by command.

use std::path::Path;
use std::process::Command;

use crate::rig::{
    CC, CSTS, ENABLE, PAGE, Pair, Rig, Server, admin_sqe, configuration, failed, io_sqe,
};
use nvme_model::{Configuration, ConfigurationError, Controller, Media};

pub fn cached() -> Configuration {
    Configuration {
        volatile_write_cache: true,
        ..configuration()
    }
}

pub fn flush(nsid: u32) -> [u32; 16] {
    admin_sqe(0, nsid, 0, 0, 0)
}

fn forced(mut sqe: [u32; 16]) -> [u32; 16] {
    sqe[12] |= 1 << 30;
    sqe
}

/// A rig with a queue pair and a page of data.
struct Bench {
    rig: Rig,
    pair: Pair,
    page: u64,
}

impl Bench {
    fn new(configuration: Configuration) -> Self {
        Self::over(Rig::up(configuration, Server::Thread))
    }

    fn over(mut rig: Rig) -> Self {
        let pair = rig.create_pair(1, 8);
        let page = rig.memory.pages(PAGE);
        Self { rig, pair, page }
    }

    fn run(&mut self, sqe: [u32; 16]) {
        assert_eq!(self.pair.run(&mut self.rig, sqe), 0);
    }

    fn write(&mut self, nsid: u32, lba: u64, value: u8) {
        self.rig.memory.fill(self.page, PAGE, value);
        self.run(io_sqe(1, nsid, lba, 1, self.page, 0));
    }

    fn read(&mut self, nsid: u32, lba: u64) -> u8 {
        self.run(io_sqe(2, nsid, lba, 1, self.page, 0));
        self.rig.memory.byte(self.page)
    }

    /// Power off and on, and up to the same queue pair.
    fn cut(&mut self) {
        self.rig.controller.power_cut(None);
        assert_eq!(self.rig.controller.read32(CSTS), u32::MAX, "gone");
        assert_eq!(self.rig.controller.read64(0), u64::MAX, "gone");
        self.rig.controller.write32(CC, 0);
        self.rig.controller.power_on();
        assert_eq!(self.rig.controller.read32(CSTS), 0, "in reset");
        self.rig.enable();
        self.pair = self.rig.create_pair(1, 8);
    }
}

#[test]
fn a_flush_makes_its_namespace_durable() {
    let mut bench = Bench::new(cached());
    for (flushed, kept) in [(1, [1, 0]), (2, [0, 1]), (u32::MAX, [1, 1])] {
        for value in [0, 1] {
            bench.write(1, 5, value);
            bench.write(2, 7, value);
            bench.run(flush(if value == 0 { u32::MAX } else { flushed }));
        }
        assert_eq!([bench.read(1, 5), bench.read(2, 7)], [1, 1], "the view");
        bench.cut();
        assert_eq!(
            [bench.read(1, 5), bench.read(2, 7)],
            kept,
            "flush {flushed:#x}"
        );
    }
}

#[test]
fn what_is_not_flushed_is_lost() {
    let mut bench = Bench::new(cached());
    bench.write(1, 5, 1);
    bench.run(flush(1));
    bench.write(1, 5, 2);
    bench.write(1, 6, 2);
    bench.cut();
    assert_eq!([bench.read(1, 5), bench.read(1, 6)], [1, 0]);
}

#[test]
fn without_a_write_cache_nothing_is_lost() {
    let mut bench = Bench::new(configuration());
    bench.write(1, 5, 3);
    bench.cut();
    assert_eq!(bench.read(1, 5), 3);
}

#[test]
fn force_unit_access_is_durable() {
    let mut bench = Bench::new(cached());
    bench.write(1, 5, 1);
    bench.write(1, 6, 1);
    bench.rig.memory.fill(bench.page, PAGE, 2);
    bench.run(forced(io_sqe(1, 1, 7, 1, bench.page, 0)));
    bench.run(forced(io_sqe(2, 1, 6, 1, bench.page, 0)));
    bench.cut();
    let found = [5, 6, 7].map(|lba| bench.read(1, lba));
    assert_eq!(found, [0, 1, 2], "written, read with FUA, written with FUA");
}

#[test]
fn a_cache_that_is_switched_off_holds_nothing_back() {
    let mut bench = Bench::new(cached());
    bench.write(1, 5, 1);
    assert_eq!(bench.rig.admin(admin_sqe(9, 0, 0, 6, 0)), (0, 0));
    assert_eq!(bench.rig.admin(admin_sqe(10, 0, 0, 6, 0)), (0, 0));
    bench.write(1, 6, 2);
    bench.cut();
    assert_eq!([bench.read(1, 5), bench.read(1, 6)], [1, 2]);
    assert_eq!(
        bench.rig.admin(admin_sqe(10, 0, 0, 6, 0)),
        (0, 1),
        "on again"
    );
    bench.write(1, 6, 3);
    bench.cut();
    assert_eq!(bench.read(1, 6), 2);
}

#[test]
fn a_shutdown_makes_everything_durable() {
    for kind in [1, 2] {
        let mut bench = Bench::new(cached());
        bench.write(1, 5, 1);
        bench.rig.controller.write32(CC, ENABLE | kind << 14);
        bench.cut();
        assert_eq!(bench.read(1, 5), 1, "CC.SHN {kind}");
    }
}

/// A drive whose blocks are in the file at `path`.
fn on_file(path: &Path) -> Bench {
    let bytes = cached().media_bytes().unwrap();
    let media = Media::file(path, bytes, "WS0001", false).unwrap();
    let mut rig = Rig::with(cached(), Server::Thread, media, None);
    rig.enable();
    Bench::over(rig)
}

#[test]
fn another_process_finds_what_was_durable() {
    const MEDIA: &str = "WARPSTORE_TEST_MEDIA";
    let found = |bench: &mut Bench| [5, 6, 7].map(|lba| bench.read(1, lba));
    if let Some(path) = std::env::var_os(MEDIA) {
        // The other process.
        assert_eq!(found(&mut on_file(path.as_ref())), [1, 0, 3]);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    let mut bench = on_file(&path);
    bench.write(1, 5, 1);
    bench.run(flush(1));
    bench.write(1, 5, 2);
    bench.write(1, 6, 2);
    bench.rig.memory.fill(bench.page, PAGE, 3);
    bench.run(forced(io_sqe(1, 1, 7, 1, bench.page, 0)));
    assert_eq!(found(&mut bench), [2, 2, 3]);
    bench.rig.controller.power_cut(None);
    // The drive is still there and keeps its file to itself.
    let copy = folder.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let this = "power::another_process_finds_what_was_durable";
    let mut other = Command::new(std::env::current_exe().unwrap());
    let output = other.args([this, "--exact"]).env(MEDIA, &copy).output();
    assert!(output.unwrap().status.success());
}

#[test]
fn a_drive_that_is_put_away_writes_its_cache_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("media");
    on_file(&path).write(1, 5, 1);
    assert_eq!(on_file(&path).read(1, 5), 1);
}

#[test]
fn what_is_loaded_is_durable_and_seen() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = on_file(&folder.path().join("media"));
    bench.write(1, 5, 1);
    bench.rig.controller.load(5 * 512, &[7; 512]);
    assert_eq!(bench.read(1, 5), 7);
    bench.cut();
    assert_eq!(bench.read(1, 5), 7);
}

#[test]
fn identify_says_whether_there_is_a_cache() {
    for (configuration, vwc) in [(configuration(), 0b110), (cached(), 0b111)] {
        let mut bench = Bench::new(configuration);
        let page = bench.page;
        assert_eq!(bench.rig.admin(admin_sqe(6, 0, page, 1, 0)).0, 0);
        assert_eq!(bench.rig.memory.byte(page + 525), vwc);
        assert_eq!(
            bench.rig.memory.word(page + 526),
            0,
            "AWUN and AWUPF: one LBA"
        );
    }
    let mut bench = Bench::new(configuration());
    for opcode in [9, 10] {
        let status = bench.rig.admin(admin_sqe(opcode, 0, 0, 6, 0)).0;
        assert_eq!(status, failed(0, 0x02), "no such feature");
    }
}

#[test]
fn lent_media_have_no_cache() {
    let blocks = vec![0u64; 64];
    let address = blocks.as_ptr().expose_provenance() as u64;
    let media = lent(address, 512);
    let refused = Controller::new(cached(), media, None, None).err();
    assert_eq!(refused, Some(ConfigurationError::LentWriteCache));
}

#[allow(unsafe_code, reason = "lent media are vouched for")]
fn lent(address: u64, bytes: u64) -> Media {
    // SAFETY: the controller is refused before anything is served.
    unsafe { Media::lent(address, bytes) }
}
