//! From options to a session: every default resolved for the machine.

use std::cell::RefCell;
use std::io::{self, Write};

use warpstore::cuda::{Context, CudaError, driver_present};
use warpstore::device;
use warpstore::device::launch::Kernel;
use warpstore::device::parts::nvme_wire::Status;
use warpstore::{
    BlocksConfig, Configuration, CudaRunner, Fault, Faults, LaunchConfig, Medium, Profile, Rule,
    Session, SsdConfig, SsdSource, Target, VfioConfig, VolumeAccess, When, kernels_ptx,
};

use crate::exit::Failure;
use crate::options::{
    CacheMode, Doorbells, Experiment, Layout, Media, Options, Process, Runner, Ssd,
};
use crate::process::{SsdProcess, Wanted};
use crate::report::{self, Failed};

/// Lanes in flight on host threads: enough that each turn of a queue finds a batch, few enough
/// that two cores get round.
const HOST_LANES: u32 = 256;
/// Queue pairs of an SSD by default.
const HOST_QUEUES: u32 = 4;
const GPU_QUEUES: u32 = 64;
/// The same for SSDs that a CPU serves, or that are real.
const OUTSIDE_QUEUES: u32 = 16;
/// Lines of a cache by default, at least.
const FEWEST_LINES: u64 = 64;

/// Everything that a session of this run shares.
pub(crate) struct Plan<'a> {
    pub options: &'a Options,
    pub runner: Runner,
    pub gpu: Option<String>,
    pub driver: Option<String>,
    /// The process that is the SSDs, once one was started.
    process: RefCell<Option<SsdProcess>>,
}

/// What an experiment needs of its session.
pub(crate) struct Needs<'a> {
    /// Names of the kernels that it launches.
    pub kernels: &'a [&'a str],
    /// Bytes of arrays on all SSDs together, or of blocks on each.
    pub bytes: Bytes,
    /// Lanes in flight, where the experiment decides.
    pub lanes: Option<u32>,
    /// Block buffers.
    pub blocks: Option<BlocksConfig>,
    /// The cache, where the experiment decides.
    pub cache: Option<CacheOf>,
}

/// A cache that the options do not choose.
pub(crate) struct CacheOf {
    pub mode: CacheMode,
    pub lines: u64,
}

/// How much of the SSDs an experiment uses.
pub(crate) enum Bytes {
    /// An array of that many bytes, laid out over all SSDs.
    Array(u64),
    /// That many bytes of each SSD.
    EachSsd(u64),
}

impl<'a> Plan<'a> {
    /// Chooses the runner and looks at the machine.
    pub(crate) fn make(options: &'a Options) -> Result<Self, Failure> {
        let gpu = options.gpu.unwrap_or(0);
        let wanted = options
            .runner
            .or(options.gpu.map(|_| Runner::Cuda))
            .or(options.ssd.is_real().then_some(Runner::Threads));
        let (runner, context) = match wanted {
            Some(Runner::Threads) => (Runner::Threads, None),
            Some(Runner::Cuda) => {
                let context = Context::open(gpu).map_err(anyhow::Error::from)?;
                (Runner::Cuda, Some(context))
            }
            None if !driver_present() => (Runner::Threads, None),
            None => match Context::open(gpu) {
                Ok(context) => (Runner::Cuda, Some(context)),
                Err(error) => {
                    say_why_not(&error);
                    (Runner::Threads, None)
                }
            },
        };
        options.check_runner(runner)?;
        let driver = context
            .as_ref()
            .and_then(|context| context.driver_version().ok());
        let plan = Self {
            options,
            runner,
            gpu: context.map(|context| context.name().to_owned()),
            driver: driver
                .map(|version| format!("CUDA {}.{}", version / 1000, version % 1000 / 10)),
            process: RefCell::default(),
        };
        options.check_admission(Some(plan.queues()))?;
        Ok(plan)
    }

    /// The profile of emulated SSDs.
    pub(crate) fn profile(&self) -> Option<Profile> {
        let (Ssd::Model(model) | Ssd::Process(Process { model, .. })) = &self.options.ssd else {
            return None;
        };
        Some(model.profile.figures())
    }

    /// Queue pairs of each SSD.
    pub(crate) fn queues(&self) -> u32 {
        let default = match self.runner {
            Runner::Threads => HOST_QUEUES,
            Runner::Cuda if self.options.ssd.is_inside() => GPU_QUEUES,
            Runner::Cuda => OUTSIDE_QUEUES,
        };
        self.options.queues.unwrap_or(default)
    }

    /// Lanes that the queues admit.
    pub(crate) fn admitted_lanes(&self) -> u64 {
        let options = self.options;
        let (protocol, depth) = (options.queue.protocol(), options.depth as u32);
        Configuration::lanes_admitted_by(protocol, depth, self.queues())
    }

    /// So many lanes, or as many as the queues admit.
    pub(crate) fn admit(&self, lanes: u32) -> u32 {
        u64::from(lanes).min(self.admitted_lanes()) as u32
    }

    fn controller_sms(&self) -> u32 {
        let default = CudaRunner::multiprocessors_for(self.queues() * self.options.ssds());
        self.options.controller_sms.unwrap_or(default.min(16))
    }

    /// A launch of `kernel` that fills the machine, or has as many lanes as the options say.
    pub(crate) fn fill<K: Kernel>(
        &self,
        session: &Session,
        kernel: &K,
    ) -> Result<LaunchConfig, warpstore::Error> {
        let most = self.options.threads.map_or(u64::MAX, u64::from);
        Ok(session.fill(kernel)?.within(most))
    }

    /// Lanes in flight on host threads; a GPU is filled.
    pub(crate) fn lanes(&self) -> u32 {
        self.options.threads.unwrap_or(self.admit(HOST_LANES))
    }

    /// Lines of the cache: a quarter of the array, unless asked for otherwise. Raw blocks pass by.
    fn cache_lines(&self, bytes: &Bytes) -> u64 {
        let quarter = match bytes {
            Bytes::Array(bytes) => (bytes / 4).div_ceil(self.options.line),
            Bytes::EachSsd(_) => 0,
        };
        let default = quarter.max(FEWEST_LINES);
        self.options.cache_lines().unwrap_or(default)
    }

    fn medium(&self) -> Medium {
        match self.options.ssd.media() {
            Some(Media::None) => Medium::None,
            Some(Media::Ram | Media::Hbm) => Medium::Near,
            Some(Media::Host) | None => Medium::Host,
            Some(Media::File(path)) => Medium::File {
                path: path.clone(),
                overwrite: self.options.overwrite,
            },
        }
    }

    /// What goes wrong on purpose.
    fn faults(&self) -> Faults {
        passing_faults(self.options.fail_one_in, self.options.seed)
    }

    /// How many commands the SSDs failed on purpose, if they did so, and how many the submitter saw
    /// fail; a difference is an error of the result.
    pub(crate) fn failed(&self, session: &Session) -> anyhow::Result<Option<Failed>> {
        if self.options.fail_one_in.is_none() {
            return Ok(None);
        }
        let (seen, _) = session.failed_commands()?;
        Ok(Some(Failed {
            injected: session.injected_faults()?.iter().sum(),
            seen,
        }))
    }

    /// Opens a session with what an experiment needs.
    pub(crate) fn open(&self, needs: &Needs<'_>) -> Result<Session, Failure> {
        let options = self.options;
        let lanes = needs.lanes.unwrap_or_else(|| self.lanes());
        let ssd_bytes = match needs.bytes {
            Bytes::Array(bytes) => self.share_of_ssd(bytes),
            Bytes::EachSsd(bytes) => bytes,
        };
        let queues_in_all = self.queues() * options.ssds();
        let configuration = Configuration {
            target: match self.runner {
                Runner::Threads => Target::Threads { lanes },
                Runner::Cuda => Target::Cuda {
                    gpu: options.gpu.unwrap_or(0),
                    controller_sms: self.controller_sms(),
                },
            },
            ssd: self.source(ssd_bytes)?,
            ssds: options.ssds(),
            layout: match options.layout {
                Layout::Stripe => device::Layout::Stripe,
                Layout::Replicate => device::Layout::Replicate,
            },
            stripe_bytes: options.stripe(),
            queues: self.queues(),
            doorbells: match self.doorbells() {
                Doorbells::Proxy => warpstore::Doorbells::Proxy,
                Doorbells::Direct => warpstore::Doorbells::Direct,
            },
            depth: options.depth as u32,
            protocol: options.queue.protocol(),
            in_flight: match needs.lanes {
                Some(lanes) => lanes.div_ceil(queues_in_all).max(32),
                None => u32::MAX,
            },
            line_bytes: options.line as u32,
            cache_lines: match &needs.cache {
                Some(cache) => cache.lines,
                None => self.cache_lines(&needs.bytes),
            },
            mode: match &needs.cache {
                Some(cache) => cache.mode.of_store(),
                None => options.cache_mode.of_store(),
            },
            // Over real SSDs the session makes it true.
            strict: false,
            blocks: needs.blocks,
            timeout: options.timeout,
        };
        let ptx = match self.runner {
            Runner::Threads => String::new(),
            Runner::Cuda => kernels_ptx(needs.kernels),
        };
        let opened = match &options.volume {
            Some(members) => {
                Session::open_volume(configuration, members, VolumeAccess::ReadOnly, &ptx)
            }
            None => Session::open(configuration, &ptx),
        };
        Ok(opened.map_err(anyhow::Error::from)?)
    }

    /// How kernels ring.
    fn doorbells(&self) -> Doorbells {
        let default = match self.runner {
            Runner::Threads => Doorbells::Direct,
            Runner::Cuda => Doorbells::Proxy,
        };
        self.options.doorbells.unwrap_or(default)
    }

    /// Threads that serve the SSDs' queues in a process of their own: a core is left for the kernels'
    /// host, and one for the doorbells.
    fn serving_threads(&self) -> Option<u32> {
        let Ssd::Process(process) = &self.options.ssd else {
            return None;
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let useful = self.queues() * self.options.ssds();
        let default = cores.saturating_sub(2).clamp(1, useful);
        Some(process.serving.unwrap_or(default))
    }

    /// The SSDs; emulated ones with so many bytes.
    fn source(&self, bytes: u64) -> anyhow::Result<SsdSource> {
        let options = self.options;
        Ok(match &options.ssd {
            Ssd::Model(model) => SsdSource::Emulated(SsdConfig {
                profile: self.profile().unwrap_or(Profile::IDEAL),
                medium: self.medium(),
                lba_bytes: model.lba,
                bytes,
                volatile_write_cache: false,
                faults: self.faults(),
            }),
            Ssd::Process(process) => {
                let wanted = Wanted {
                    model: &process.model,
                    ssds: options.ssds(),
                    bytes,
                    queues: self.queues() + 1,
                    serving: self.serving_threads().unwrap_or(1),
                    overwrite: options.overwrite,
                    fail_one_in: options.fail_one_in,
                    seed: options.seed,
                };
                let started = SsdProcess::start(&wanted)?;
                let sockets = started.sockets();
                *self.process.borrow_mut() = Some(started);
                SsdSource::Sockets(sockets)
            }
            Ssd::Socket(paths) => SsdSource::Sockets(paths.clone()),
            Ssd::Vfio(ssds) => SsdSource::Vfio(VfioConfig {
                ssds: ssds.clone(),
                destroy: options.yes_destroy.clone(),
            }),
        })
    }

    /// Bytes that each SSD must have for an array of `bytes`.
    fn share_of_ssd(&self, bytes: u64) -> u64 {
        let stripe = self.options.stripe();
        let units = bytes.div_ceil(stripe).max(1);
        match self.options.layout {
            Layout::Stripe => units.div_ceil(u64::from(self.options.ssds())) * stripe,
            Layout::Replicate => units * stripe,
        }
    }

    /// Whether the SSDs hold data that results can be checked with.
    pub(crate) fn verifiable(&self) -> bool {
        match &self.options.ssd {
            Ssd::Model(model) => model.media != Some(Media::None),
            Ssd::Process(_) | Ssd::Socket(_) => true,
            Ssd::Vfio(_) => !self.options.yes_destroy.is_empty() || self.options.volume.is_some(),
        }
    }

    /// What is modelled in every run with this plan.
    pub(crate) fn modelled(&self) -> Vec<String> {
        let server = match (&self.options.ssd, self.runner) {
            (Ssd::Vfio(_), _) => return Vec::new(),
            (Ssd::Process(_), _) => {
                let threads = self.serving_threads().unwrap_or(1);
                format!("{threads} CPU threads of a process of their own")
            }
            (Ssd::Socket(_), _) => "CPU threads of another process".to_owned(),
            (Ssd::Model(_), Runner::Threads) => "a host thread".to_owned(),
            (Ssd::Model(_), Runner::Cuda) => "a resident kernel on the same GPU".to_owned(),
        };
        let mut modelled = vec![format!("the SSDs are emulated by {server}")];
        let Some(profile) = self.profile() else {
            return modelled;
        };
        if profile.is_timed() {
            modelled.push(format!("SSD time follows the model of {}", profile.product));
        } else {
            modelled.push("SSD time is not modelled: commands complete when served".to_owned());
        }
        if !self.verifiable() {
            modelled.push("media=none moves no data, so nothing could be verified".to_owned());
        }
        modelled
    }

    /// The configuration for the report.
    pub(crate) fn described(&self) -> report::Configuration {
        let options = self.options;
        report::Configuration {
            ssds: options.ssds(),
            layout: options.layout,
            stripe_bytes: options.stripe(),
            lba_bytes: options.ssd.lba(),
            queue: options.queue,
            queues: self.queues(),
            depth: options.depth,
            threads: match self.runner {
                Runner::Threads => Some(self.lanes()),
                Runner::Cuda => options.threads,
            },
            controller_sms: (self.runner == Runner::Cuda && options.ssd.is_inside())
                .then(|| self.controller_sms()),
            placement: match options.ssd.is_inside() {
                true => report::Placement::Direct,
                false => report::Placement::Staged,
            },
            doorbells: (!options.ssd.is_inside()).then(|| self.doorbells()),
            serving_threads: self.serving_threads(),
            line_bytes: options.line,
            cache_lines: options.cache_lines(),
            cache_mode: (options.experiment != Some(Experiment::Cache))
                .then_some(options.cache_mode),
            timeout_seconds: options.timeout.as_secs_f64(),
            seed: options.seed,
        }
    }
}

/// One command in so many fails, with a status that passes.
pub(crate) fn passing_faults(one_in: Option<u64>, seed: u64) -> Faults {
    let rule = |count| {
        let passing = Fault::Status(Status::INTERNAL_ERROR);
        Rule::new(passing, When::OneIn(count))
    };
    Faults {
        seed,
        rules: one_in.map(rule).into_iter().collect(),
    }
}

/// A GPU that cannot be opened is no error unless it was asked for.
fn say_why_not(error: &CudaError) {
    let _ = writeln!(io::stderr(), "no GPU ({error}); running on host threads");
}
