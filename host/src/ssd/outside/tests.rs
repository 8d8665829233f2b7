//! Sessions over controllers that are reached by registers and commands alone, as real ones are: the
//! emulated one plays them.

mod lent;

use std::sync::Arc;
use std::time::Duration;

use nvme_model::{Faults, Media, Namespace, Profile, Serving};
use warpstore_device::parts::nvme_queue::Protocol;
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
        Self::offering(lba_bytes, namespaces, false)
    }

    /// The same, with shadow doorbells or without.
    fn offering(lba_bytes: u32, namespaces: usize, shadow_doorbells: bool) -> Self {
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
                shadow_doorbells,
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
            timeout: Duration::from_secs(120),
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

/// Runs `rw` over the session's arrays. Returns how many values it found wrong.
fn change(session: &Session, run: &Run, steps: u32) -> Result<u64, Error> {
    let differing = session.memory::<u64>(1)?;
    let args = (
        session.array_mut("values")?,
        session.array_mut("sums")?,
        run.values_each,
        steps,
        run.seed,
        differing.atomics(),
    );
    session.launch(&rw, session.fill(&rw)?, args)?;
    Ok(differing.to_vec()?[0])
}

#[test]
fn arrays_are_put_changed_and_read_back_by_commands() {
    for (lba_bytes, doorbells, shadow_doorbells) in [
        (512, Doorbells::Direct, false),
        (4096, Doorbells::Direct, true),
        (512, Doorbells::Proxy, false),
        (4096, Doorbells::Proxy, true),
    ] {
        let mut rig = Rig::offering(lba_bytes, 1, shadow_doorbells);
        rig.config.doorbells = doorbells;
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
        let steps = 40;
        assert_eq!(change(&session, &run, steps).unwrap(), 0);
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
fn shadow_doorbells_are_for_the_proxy() {
    for (doorbells, offered) in [
        (Doorbells::Direct, true),
        (Doorbells::Proxy, false),
        (Doorbells::Proxy, true),
    ] {
        let mut rig = Rig::offering(512, 1, offered);
        rig.config.doorbells = doorbells;
        let _serving = Serving::start(rig.models.clone(), 0).unwrap();
        let model = driver_vfio::Model::new(Arc::clone(&rig.models[0]));
        let backing: Arc<dyn Backing> = Arc::new(model);
        let driver = bring_up(&backing, Buffer::dma, 3).unwrap();
        let medium = Medium::Commands(Access::ReadOnly);
        let ssd = ready(driver, backing, &rig.config, None, medium).unwrap();
        let used = ssd.driver().controller().uses_shadow_doorbells();
        assert_eq!(used, doorbells == Doorbells::Proxy && offered);
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

#[test]
fn what_only_emulated_ssds_do_is_refused() {
    let session = Rig::new(512, 1).open().unwrap();
    let refused = session.power_cut(None).unwrap_err().to_string();
    assert!(refused.contains("model S1 is a real SSD"), "{refused}");
    assert!(session.injected_faults().unwrap().is_empty());
}
