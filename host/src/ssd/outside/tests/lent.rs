//! SSDs that are wanted back, lost or cut off by the proxy while a session has them, and one of larger pages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use driver_vfio::{BackingError, BarOffset, DmaRegion, Iova, Registers};
use warpstore_device::parts::nvme_wire::regs::{Cap, offset};
use warpstore_device::parts::simt::{NativeCell, System};

use super::*;

/// A backing that whoever lent it wants back, once that was said, and with memory pages of its own.
struct Lent {
    model: driver_vfio::Model,
    wanted: Arc<AtomicBool>,
    /// CAP.MPSMIN.
    mpsmin: u8,
}

impl Lent {
    fn new(model: Arc<nvme_model::Controller>, wanted: &Arc<AtomicBool>, mpsmin: u8) -> Arc<Self> {
        Arc::new(Self {
            model: driver_vfio::Model::new(model),
            wanted: Arc::clone(wanted),
            mpsmin,
        })
    }
}

impl Registers for Lent {
    fn read32(&self, at: BarOffset) -> u32 {
        self.model.read32(at)
    }
    fn read64(&self, at: BarOffset) -> u64 {
        let value = self.model.read64(at);
        if at == BarOffset(offset::CAP) && value != u64::MAX {
            return Cap::from_bits(value).with_mpsmin(self.mpsmin).into_bits();
        }
        value
    }
    fn write32(&self, at: BarOffset, value: u32) {
        self.model.write32(at, value);
    }
    fn write64(&self, at: BarOffset, value: u64) {
        self.model.write64(at, value);
    }
}

impl Backing for Lent {
    fn name(&self) -> &str {
        self.model.name()
    }
    fn doorbell(&self, at: BarOffset) -> Result<NativeCell<u32, System>, BackingError> {
        self.model.doorbell(at)
    }
    fn map_dma(&self, region: DmaRegion) -> Result<Iova, BackingError> {
        self.model.map_dma(region)
    }
    fn unmap_dma(&self, iova: Iova, len: u64) -> Result<(), BackingError> {
        self.model.unmap_dma(iova, len)
    }
    fn is_wanted_back(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
    fn reset(&self) -> Result<(), BackingError> {
        self.model.reset()
    }
}

/// Arrays of the session, and a run over them.
fn arrays_and_run(session: &Session) -> Run {
    session.create_array("values", &[0u64; 64 * 64]).unwrap();
    session.create_array("sums", &[0u64; 4096]).unwrap();
    Run {
        lanes: LANES.into(),
        values_each: 64,
        sums: 4096,
        seed: 1,
    }
}

#[test]
fn an_ssd_that_is_wanted_back_ends_the_kernel_that_uses_it() {
    let rig = Rig::new(512, 1);
    let wanted = Arc::new(AtomicBool::new(false));
    let session = rig.open_by(|model| Lent::new(model, &wanted, 0)).unwrap();
    let run = arrays_and_run(&session);
    let error = thread::scope(|scope| {
        // For longer than any test waits.
        let running = scope.spawn(|| change(&session, &run, u32::MAX));
        thread::sleep(Duration::from_millis(100));
        assert!(!running.is_finished());
        wanted.store(true, Ordering::Relaxed);
        running.join().unwrap().expect_err("it was ended")
    });
    assert!(
        matches!(&error, Error::Recalled { ssd } if ssd == "model S1"),
        "{error}"
    );
    // Accesses that were ended may have taken their queues along, so this may be an error. The
    // controllers end all the same.
    let _ = session.finish();
    for model in &rig.models {
        let cc = model.read32(offset::CC);
        assert_eq!(cc & 1, 0, "CC.EN");
    }
}

#[test]
fn an_ssd_that_is_wanted_back_gets_what_was_not_flushed() {
    let mut rig = Rig::new(512, 1);
    let wanted = Arc::new(AtomicBool::new(false));
    let session = rig.open_by(|model| Lent::new(model, &wanted, 0)).unwrap();
    let run = Run {
        lanes: LANES.into(),
        values_each: 8,
        sums: 100,
        seed: 3,
    };
    let values: Vec<u64> = (0..run.lanes * run.values_each)
        .map(|index| value(index, 0))
        .collect();
    session.create_array("values", &values).unwrap();
    session.create_array("sums", &[0u64; 100]).unwrap();
    change(&session, &run, 20).unwrap();
    wanted.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(100));
    session.finish().unwrap();

    rig.vfio().destroy.clear();
    let again = rig.open().unwrap();
    again
        .existing_array::<u64>("values", values.len() as u64)
        .unwrap();
    again.existing_array::<u64>("sums", run.sums).unwrap();
    let found: u64 = again.stored::<u64>("sums").unwrap().iter().sum();
    let expected: u64 = addends(&run, 20).map(|(_, addend)| addend).sum();
    assert_eq!(found, expected);
    again.finish().unwrap();
}

#[test]
fn an_ssd_that_is_lost_leaves_the_others_what_was_not_flushed() {
    const ELEMENTS: u64 = 4 * 1024;
    let mut rig = Rig::new(512, 1);
    rig.config.cache_lines = 64;
    // Nobody waits for the SSD that is gone, when the other is flushed.
    rig.config.timeout = Duration::from_secs(3600);
    let session = rig.open().unwrap();
    session.create_array("values", &[0u64; 64]).unwrap();
    session
        .create_array("sums", &[0u64; ELEMENTS as usize])
        .unwrap();
    let run = Run {
        lanes: LANES.into(),
        values_each: 1,
        sums: ELEMENTS,
        seed: 3,
    };
    change(&session, &run, 50).unwrap();
    rig.models[0].power_cut(None);
    let begin = std::time::Instant::now();
    while !session.is_halted() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nobody noticed");
        thread::sleep(Duration::from_millis(1));
    }
    let (told, ended) = std::sync::mpsc::channel();
    thread::spawn(move || told.send(session.finish()));
    let ended = ended.recv_timeout(Duration::from_secs(30));
    ended
        .expect("somebody waits for it")
        .expect_err("it is gone");

    // Another in its place.
    rig.models[0] = Rig::new(512, 1).models.remove(0);
    rig.vfio().destroy.clear();
    let again = rig.open().unwrap();
    again.existing_array::<u64>("values", 64).unwrap();
    again.existing_array::<u64>("sums", ELEMENTS).unwrap();
    let found = again.stored::<u64>("sums").unwrap();
    let mut expected = vec![0; ELEMENTS as usize];
    for (index, addend) in addends(&run, 50) {
        expected[index as usize] += addend;
    }
    // Lines of 512 words, of which the other array has the first; two are a stripe unit.
    let of_second = |index: &usize| (index / 512).div_ceil(2) % 2 == 1;
    let (mut same, mut sum) = (true, 0);
    for index in (0..ELEMENTS as usize).filter(of_second) {
        same &= found[index] == expected[index];
        sum += expected[index];
    }
    assert!(same && sum > 0, "a line of the other SSD is not on it");
    again.finish().unwrap();
}

#[test]
fn a_controller_with_larger_pages_than_kernels_describe_is_refused() {
    let rig = Rig::new(512, 1);
    let opened = rig.open_by(|model| Lent::new(model, &Arc::default(), 1));
    let Err(refused) = opened else {
        panic!("it opened")
    };
    let refused = refused.to_string();
    for part in ["model S1", "pages have 8192 bytes", "pages of 4096"] {
        assert!(refused.contains(part), "{refused}");
    }
    let session = rig.open_by(|model| Lent::new(model, &Arc::default(), 0));
    session.unwrap().finish().unwrap();
}

#[test]
fn a_doorbell_that_the_proxy_refuses_ends_the_launch_with_its_words() {
    let mut rig = Rig::new(512, 1);
    rig.config.doorbells = Doorbells::Proxy;
    // What was not passed on is never completed.
    rig.config.timeout = Duration::from_secs(1);
    let session = rig.open().unwrap();
    let run = arrays_and_run(&session);
    // The second queue pair of the first SSD, whose ring has 64 entries.
    session.ring(1, 64);
    // The proxy looks at it before a kernel writes a tail of its own there.
    thread::sleep(Duration::from_millis(100));
    let error = change(&session, &run, 1000).expect_err("it is cut");
    assert!(matches!(error, Error::Doorbell(_)), "{error}");
    let text = error.to_string();
    let words = "the doorbell proxy refused SQ tail 64 of queue pair 1 with 64 entries";
    assert!(text.contains(words), "{text}");
    // Controllers end well all the same.
    let _ = session.finish();
    for model in &rig.models {
        assert_eq!(model.read32(offset::CC) & 1, 0, "CC.EN");
    }
}
