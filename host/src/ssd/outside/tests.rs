//! Sessions over controllers that are reached by registers and commands alone, as real ones are: the
//! emulated one plays them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use driver_vfio::{BackingError, BarOffset, DmaRegion, Iova, Registers};
use nvme_model::{Faults, Media, Namespace, Profile, Serving};
use warpstore_device::parts::nvme_queue::Protocol;
use warpstore_device::parts::nvme_wire::regs::{Cap, offset};
use warpstore_device::parts::simt::{NativeCell, System};
use warpstore_device::{CacheMode, Layout};
use warpstore_kernels::rw::{Run, Step, rw, value};

use super::*;
use crate::config::{Doorbells, SsdSource, Target};
use crate::runner::{Runner, ThreadsRunner};
use crate::session::Session;

const LANES: u32 = 64;
const SERIALS: [&str; 2] = ["S1", "S2"];

/// Two controllers whose media outlive sessions, with LBAs of this size and one namespace or more.
struct Rig {
    models: Vec<Arc<nvme_model::Controller>>,
    config: Configuration,
}

impl Rig {
    fn new(lba_bytes: u32, namespaces: usize) -> Self {
        let model = |serial: &&str| {
            let namespace = Namespace {
                lbas: (1 << 20) / u64::from(lba_bytes),
                lba_bytes,
            };
            let configuration = nvme_model::Configuration {
                serial: (*serial).to_owned(),
                model: "outside".into(),
                namespaces: vec![namespace; namespaces],
                mdts: 2,
                queue_entries: 256,
                dstrd: 0,
                to: 4,
                queues: 3,
                profile: Profile::IDEAL,
                volatile_write_cache: true,
                faults: Faults::none(),
            };
            let media = Media::ram(configuration.media_bytes().unwrap()).unwrap();
            Arc::new(nvme_model::Controller::new(configuration, media, None, None).unwrap())
        };
        let named = |serial: &&str| VfioSsd {
            name: (*serial).to_owned(),
            nsid: None,
        };
        let vfio = VfioConfig {
            ssds: SERIALS.iter().map(named).collect(),
            destroy: SERIALS.map(str::to_owned).to_vec(),
        };
        let config = Configuration {
            target: Target::Threads { lanes: LANES },
            ssd: SsdSource::Vfio(vfio),
            ssds: 2,
            layout: Layout::Stripe,
            stripe_bytes: 8192,
            queues: 2,
            doorbells: Doorbells::Direct,
            depth: 64,
            protocol: Protocol::Hop,
            in_flight: u32::MAX,
            line_bytes: 4096,
            cache_lines: 8,
            mode: CacheMode::Optimistic,
            strict: false,
            blocks: None,
            timeout: Duration::from_secs(20),
        };
        Self {
            models: SERIALS.iter().map(model).collect(),
            config,
        }
    }

    /// What is asked for, to be changed.
    fn vfio(&mut self) -> &mut VfioConfig {
        match &mut self.config.ssd {
            SsdSource::Vfio(vfio) => vfio,
            _ => panic!("they are behind VFIO"),
        }
    }

    fn open(&self) -> Result<Session, Error> {
        self.open_by(|model| Arc::new(driver_vfio::Model::new(model)))
    }

    /// A session over what `backing` makes of each model.
    fn open_by(
        &self,
        backing: impl Fn(Arc<nvme_model::Controller>) -> Arc<dyn Backing>,
    ) -> Result<Session, Error> {
        let SsdSource::Vfio(vfio) = &self.config.ssd else {
            panic!("they are behind VFIO");
        };
        self.config.check()?;
        let serving = Serving::start(self.models.clone(), 1).unwrap();
        let backings = self.models.iter().cloned().map(backing).collect();
        let mut opened = open(&self.config, vfio, backings)?;
        opened.serving = Some(serving);
        let runner = Runner::Threads(ThreadsRunner::new(LANES));
        Session::over(runner, self.config.clone(), LANES.into(), opened)
    }

    fn refusal(&self) -> String {
        match self.open() {
            Ok(_) => panic!("it opened"),
            Err(error) => error.to_string(),
        }
    }
}

/// Every addition of a run: to which sum, and what.
fn addends(run: &Run, steps: u32) -> impl Iterator<Item = (u64, u64)> {
    let places = (0..run.lanes).flat_map(move |lane| (1..=steps).map(move |step| (lane, step)));
    places.filter_map(|(lane, step)| match run.step(lane, step) {
        Step::Add { index, addend } => Some((index, addend)),
        _ => None,
    })
}

#[test]
fn arrays_are_put_changed_and_read_back_by_commands() {
    for (lba_bytes, layout) in [(512, Layout::Stripe), (4096, Layout::Stripe)] {
        let mut rig = Rig::new(lba_bytes, 1);
        rig.config.layout = layout;
        let session = rig.open().unwrap();
        let run = Run {
            lanes: LANES.into(),
            values_each: 41,
            sums: 1003,
            seed: 5,
        };
        let values: Vec<u64> = (0..run.lanes * run.values_each)
            .map(|index| value(index, 0))
            .collect();
        let sums = vec![0u64; run.sums as usize];
        session.create_array("values", &values).unwrap();
        session.create_array("sums", &sums).unwrap();
        assert_eq!(session.stored::<u64>("values").unwrap(), values);
        let differing = session.memory::<u64>(1).unwrap();
        let (steps, launch) = (40, session.fill(&rw).unwrap());
        let args = (
            session.array_mut("values").unwrap(),
            session.array_mut("sums").unwrap(),
            run.values_each,
            steps,
            run.seed,
            differing.atomics(),
        );
        session.launch(&rw, launch, args).unwrap();
        assert_eq!(differing.to_vec().unwrap(), [0]);
        assert_eq!(session.counts().unwrap(), None, "nobody counts");
        session.finish().unwrap();

        let mut expected = sums;
        for (index, addend) in addends(&run, steps) {
            expected[index as usize] += addend;
        }
        // Read only, by another session.
        rig.vfio().destroy.clear();
        let again = rig.open().unwrap();
        again
            .existing_array::<u64>("values", values.len() as u64)
            .unwrap();
        again.existing_array::<u64>("sums", run.sums).unwrap();
        assert_eq!(again.stored::<u64>("sums").unwrap(), expected);
        again.finish().unwrap();
    }
}

#[test]
fn an_ssd_that_was_not_named_is_only_read() {
    let mut rig = Rig::new(512, 1);
    rig.vfio().destroy.truncate(1);
    let session = rig.open().unwrap();
    let words = [1u64; 4096];
    let refused = session.create_array("words", &words).map(drop).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("model S2 was opened for reading only"),
        "{refused}"
    );
    assert!(session.load_blocks(1, 0, &[0; 512]).is_err());
    session.load_blocks(0, 0, &[7; 512]).unwrap();
    session.existing_array::<u64>("words", 4096).unwrap();
    let refused = session.array_mut::<u64>("words").map(drop).unwrap_err();
    assert!(
        refused.to_string().contains("may be destroyed"),
        "{refused}"
    );
    assert_eq!(
        session.stored::<u64>("words").unwrap()[0],
        0x0707_0707_0707_0707
    );
    session.finish().unwrap();
}

#[test]
fn replicas_are_written_whole_and_read_from_the_first() {
    let mut rig = Rig::new(512, 1);
    rig.config.layout = Layout::Replicate;
    let session = rig.open().unwrap();
    let words: Vec<u64> = (0..5000).collect();
    session.create_array("words", &words).unwrap();
    assert_eq!(session.stored::<u64>("words").unwrap(), words);
    session.finish().unwrap();
    for model in &rig.models {
        assert_eq!(
            model
                .counters()
                .iter()
                .map(|queue| queue.flushes)
                .sum::<u64>(),
            1
        );
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let case = |change: fn(&mut Rig), message: &str| {
        let mut rig = Rig::new(512, 1);
        change(&mut rig);
        let refusal = rig.refusal();
        assert!(refusal.contains(message), "{refusal}");
    };
    case(
        |rig| rig.vfio().destroy.push("S3".into()),
        "serial number S3 may be destroyed",
    );
    case(
        |rig| rig.vfio().ssds[1].name = "S9".into(),
        "says that its serial number is S2",
    );
    case(
        |rig| rig.vfio().ssds.truncate(1),
        "as many real SSDs must be named",
    );
    case(|rig| rig.vfio().ssds[0].nsid = Some(4), "Invalid Namespace");
    case(
        |rig| rig.config.queues = 3,
        "grants 3 queue pairs, 4 were asked for",
    );
    case(|rig| rig.config.depth = 512, "between 2 and 256");
    case(
        |rig| {
            rig.config.line_bytes = 32768;
            rig.config.stripe_bytes = 32768;
        },
        "moves at most 16384 bytes",
    );
    case(
        |rig| {
            rig.config.target = Target::Cuda {
                gpu: 0,
                controller_sms: 1,
            };
        },
        "use Doorbells::Proxy",
    );
    let several = Rig::new(512, 2).refusal();
    assert!(several.contains("S1 has namespaces [1, 2]"), "{several}");
    let mut coarse = Rig::new(4096, 1);
    coarse.config.line_bytes = 512;
    coarse.config.stripe_bytes = 512;
    assert!(coarse.refusal().contains("a line of 512 bytes must hold"));
}

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

#[test]
fn an_ssd_that_is_wanted_back_ends_the_kernel_that_uses_it() {
    let rig = Rig::new(512, 1);
    let wanted = Arc::new(AtomicBool::new(false));
    let session = rig.open_by(|model| Lent::new(model, &wanted, 0)).unwrap();
    session.create_array("values", &[0u64; 64 * 64]).unwrap();
    session.create_array("sums", &[0u64; 4096]).unwrap();
    let differing = session.memory::<u64>(1).unwrap();
    let args = (
        session.array_mut("values").unwrap(),
        session.array_mut("sums").unwrap(),
        64,
        // For longer than any test waits.
        u32::MAX,
        1,
        differing.atomics(),
    );
    let launch = session.fill(&rw).unwrap();
    let error = thread::scope(|scope| {
        let running = scope.spawn(|| session.launch(&rw, launch, args));
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
    let differing = session.memory::<u64>(1).unwrap();
    let args = (
        session.array_mut("values").unwrap(),
        session.array_mut("sums").unwrap(),
        run.values_each,
        20,
        run.seed,
        differing.atomics(),
    );
    let launch = session.fill(&rw).unwrap();
    session.launch(&rw, launch, args).unwrap();
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
    let differing = session.memory::<u64>(1).unwrap();
    let args = (
        session.array_mut("values").unwrap(),
        session.array_mut("sums").unwrap(),
        run.values_each,
        50,
        run.seed,
        differing.atomics(),
    );
    let launch = session.fill(&rw).unwrap();
    session.launch(&rw, launch, args).unwrap();
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
    let of_second = |index: &usize| {
        let line = index / 512 + 1;
        line / 2 % 2 == 1
    };
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
    session.create_array("values", &[0u64; 64 * 64]).unwrap();
    session.create_array("sums", &[0u64; 4096]).unwrap();
    let differing = session.memory::<u64>(1).unwrap();
    let args = (
        session.array_mut("values").unwrap(),
        session.array_mut("sums").unwrap(),
        64,
        1000,
        1,
        differing.atomics(),
    );
    // The second queue pair of the first SSD, whose ring has 64 entries.
    session.ring(1, 64);
    // The proxy looks at it before a kernel writes a tail of its own there.
    thread::sleep(Duration::from_millis(100));
    let launch = session.fill(&rw).unwrap();
    let error = session.launch(&rw, launch, args).expect_err("it is cut");
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

#[test]
fn what_only_emulated_ssds_do_is_refused() {
    let session = Rig::new(512, 1).open().unwrap();
    let refused = session.power_cut(None).unwrap_err().to_string();
    assert!(refused.contains("model S1 is a real SSD"), "{refused}");
    assert!(session.injected_faults().unwrap().is_empty());
}
