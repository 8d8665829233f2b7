//! Options that are right one by one and wrong together.

use std::path::Path;

use warpstore::Configuration;

use super::{
    CacheMode, Doorbells, Experiment, Layout, Media, Options, Runner, Ssd, UsageError, name_of,
};

impl Options {
    /// Checks that the options go together.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        self.check_scope()?;
        self.check_sizes()?;
        self.check_media()?;
        self.check_real()?;
        self.check_volume()?;
        self.check_layout()?;
        self.check_cache_mode()?;
        if let Some(runner) = self.runner {
            self.check_runner(runner)?;
        }
        match &self.plot {
            Some(file) if file.extension().is_none_or(|end| end != "svg") => Err(UsageError::new(
                "--plot",
                file.display(),
                "the file's name must end in .svg",
            )),
            plot if plot.is_some() && *plot == self.json => Err(UsageError::new(
                "--plot",
                plot.as_deref().unwrap_or(Path::new("")).display(),
                "--json names the same file",
            )),
            _ => Ok(()),
        }
    }

    /// Checks the options against the runner, once one is chosen.
    ///
    /// # Errors
    /// One sentence if an option needs the other runner.
    pub fn check_runner(&self, runner: Runner) -> Result<(), UsageError> {
        let direct = self.doorbells == Some(Doorbells::Direct);
        if self.ssd.is_real() && runner == Runner::Cuda && direct {
            return Err(UsageError::new(
                "--doorbells",
                "direct",
                "a GPU cannot reach the doorbells of real SSDs yet; use proxy",
            ));
        }
        let Some(media) = self.ssd.media().filter(|_| self.ssd.is_inside()) else {
            return self.check_gpu(runner);
        };
        let reason = match (runner, media) {
            (Runner::Threads, Media::None | Media::Hbm | Media::Host) => {
                "host threads keep their media in ram or in a file"
            }
            (Runner::Cuda, Media::Ram) => {
                "a GPU keeps its media in hbm, in host memory, in a file or not at all (none)"
            }
            _ => return self.check_gpu(runner),
        };
        Err(UsageError::new(
            "--ssd",
            &self.ssd,
            format!("media={media} is not for --runner {runner}: {reason}"),
        ))
    }

    fn check_gpu(&self, runner: Runner) -> Result<(), UsageError> {
        let given = [
            ("--gpu", self.gpu),
            ("--controller-sms", self.controller_sms),
        ];
        match given
            .into_iter()
            .find_map(|(option, value)| Some((option, value?)))
        {
            Some((option, value)) if runner == Runner::Threads => Err(UsageError::new(
                option,
                value,
                "it is for --runner cuda only",
            )),
            _ => match self.controller_sms {
                Some(count) if !self.ssd.is_inside() => Err(UsageError::new(
                    "--controller-sms",
                    count,
                    "it is for --ssd model:… only",
                )),
                _ => Ok(()),
            },
        }
    }

    /// An option that the experiment would ignore is a mistake.
    fn check_scope(&self) -> Result<(), UsageError> {
        use Experiment::{Bfs, Cache, Cc, Crowd, Iops, Rw};
        let Some(experiment) = self.experiment else {
            return self.check_main_job();
        };
        let shown = |value: Option<u64>| value.map(|value| value.to_string());
        let mode = self.cache_mode;
        let modes: &[Experiment] = match mode.of_store().counts() {
            true => &[Bfs, Cc, Rw],
            false => &[Bfs, Cc, Rw, Crowd],
        };
        let mode = (mode != CacheMode::Optimistic).then(|| mode.to_string());
        let graph = self.graph.as_ref().map(|file| file.display().to_string());
        let volume = self.volume.as_ref().map(ToString::to_string);
        let scopes: [(_, Option<String>, &[Experiment]); 11] = [
            ("--cache-mode", mode, modes),
            ("--cache", shown(self.cache), &[Bfs, Cc, Rw, Crowd]),
            (
                "--cache-lines",
                shown(self.cache_lines),
                &[Bfs, Cc, Rw, Crowd],
            ),
            ("--graph", graph, &[Bfs, Cc]),
            ("--volume", volume, &[Bfs, Cc]),
            ("--source", shown(self.source), &[Bfs]),
            (
                "--fail-one-in",
                shown(self.fail_one_in),
                &[Bfs, Cc, Rw, Crowd],
            ),
            ("--block", shown(self.block), &[Iops]),
            ("--ops", shown(self.ops), &[Iops, Cache, Rw, Crowd]),
            ("--in-flight", shown(self.in_flight.map(u64::from)), &[Iops]),
            ("--span", shown(self.span), &[Iops, Cache, Rw, Crowd]),
        ];
        for (option, value, scope) in scopes {
            if let Some(value) = value.filter(|_| !scope.contains(&experiment)) {
                let names: Vec<String> = scope.iter().map(Experiment::to_string).collect();
                return Err(UsageError::new(
                    option,
                    value,
                    format!("it is for {} only", listed(&names)),
                ));
            }
        }
        Ok(())
    }

    /// The main job begins with `iops`, which repeats nothing.
    fn check_main_job(&self) -> Result<(), UsageError> {
        if let Some(members) = &self.volume {
            let reason = "it is for bfs and cc only; name one of them";
            return Err(UsageError::new("--volume", members, reason));
        }
        match self.fail_one_in {
            Some(count) => Err(UsageError::new(
                "--fail-one-in",
                count,
                "it is for bfs, cc, rw and crowd only; name one of them",
            )),
            None => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<(), UsageError> {
        // What a real SSD's is shows when it is open.
        let lba = u64::from(self.ssd.lba().unwrap_or(1));
        let multiple = |option, value: u64, of, unit: u64| match value.is_multiple_of(unit) {
            true => Ok(()),
            false => Err(UsageError::new(
                option,
                value,
                format!("it must be a multiple of {of}, {unit} bytes"),
            )),
        };
        multiple("--line", self.line, "the LBA size", lba)?;
        multiple("--block", self.block(), "the LBA size", lba)?;
        if let Some(stripe) = self.stripe {
            multiple("--stripe", stripe, "the line", self.line)?;
            if self.layout == Layout::Replicate {
                return Err(UsageError::new(
                    "--stripe",
                    stripe,
                    "it is for --layout stripe only",
                ));
            }
        }
        if let Some(span) = self.span {
            match self.experiment {
                Some(Experiment::Rw | Experiment::Crowd) => {
                    multiple("--span", span, "two words", 16)?
                }
                Some(Experiment::Cache) => Self::check_fitting(span)?,
                _ => multiple("--span", span, "the block", self.block())?,
            }
        }
        self.check_counts()
    }

    /// The array of `cache` has a number of elements by which an index is cut short.
    fn check_fitting(span: u64) -> Result<(), UsageError> {
        match span.is_power_of_two() && (64..=1 << 36).contains(&span) {
            true => Ok(()),
            false => Err(UsageError::new(
                "--span",
                span,
                "it must be a power of two from 64 to 64G",
            )),
        }
    }

    fn check_counts(&self) -> Result<(), UsageError> {
        let refuse = |option, value: u64, reason| Err(UsageError::new(option, value, reason));
        if let Some(queues) = self.queues
            && queues * self.ssds() > Configuration::MAX_QUEUES_IN_ALL
        {
            let most = Configuration::MAX_QUEUES_IN_ALL;
            let reason = format!(
                "{} SSDs have at most {most} queue pairs in all",
                self.ssds()
            );
            return refuse("--queues", queues.into(), reason);
        }
        self.check_admission(self.queues)?;
        let Some(cache) = self.cache else {
            return Ok(());
        };
        if cache < self.line {
            let reason = format!("it must hold a line, {} bytes", self.line);
            return refuse("--cache", cache, reason);
        }
        let most = Configuration::MAX_CACHE_LINES;
        if cache / self.line > most {
            let reason = format!("it must hold at most {most} lines; use a larger --line");
            return refuse("--cache", cache, reason);
        }
        Ok(())
    }

    /// Replicas are for reading.
    fn check_layout(&self) -> Result<(), UsageError> {
        match (self.experiment, self.layout) {
            (Some(writer @ (Experiment::Rw | Experiment::Crowd)), Layout::Replicate) => {
                Err(UsageError::new(
                    "--layout",
                    "replicate",
                    format!("kernels only read replicas; {writer} takes stripe"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Counts of lanes have an end.
    fn check_cache_mode(&self) -> Result<(), UsageError> {
        let mode = self.cache_mode;
        let counts = mode.of_store().counts() || self.experiment == Some(Experiment::Cache);
        let most = Configuration::MAX_COUNTED_LANES;
        match self.threads {
            Some(lanes) if lanes > most && counts => {
                let reason = format!("cache modes that count lanes take at most {most}");
                Err(UsageError::new("--threads", lanes, reason))
            }
            _ => Ok(()),
        }
    }

    /// Queues of BaM's admit a lane less than they have entries, and a warp has 32. `queues` is how many
    /// an SSD has, once that is known.
    ///
    /// # Errors
    /// One sentence if the depth admits no warp, or more lanes are asked for than are admitted.
    pub fn check_admission(&self, queues: Option<u32>) -> Result<(), UsageError> {
        let admitted_by = |queues| {
            let (protocol, depth) = (self.queue.protocol(), self.depth as u32);
            Configuration::lanes_admitted_by(protocol, depth, queues)
        };
        let rule = "--queue bam admits depth - 1 lanes to a queue, in whole warps of 32";
        if admitted_by(1) == 0 {
            let reason = format!("{rule}: the depth must be at least 64");
            return Err(UsageError::new("--depth", self.depth, reason));
        }
        let Some(queues) = queues else {
            return Ok(());
        };
        let admitted = admitted_by(queues);
        let asked = [("--threads", self.threads), ("--in-flight", self.in_flight)];
        let too_many = asked.into_iter().find_map(|(option, lanes)| {
            let lanes = lanes.filter(|&lanes| u64::from(lanes) > admitted)?;
            Some((option, lanes))
        });
        match too_many {
            None => Ok(()),
            Some((option, lanes)) => Err(UsageError::new(
                option,
                lanes,
                format!(
                    "{rule}: --queues {queues} of --depth {} admit {admitted}",
                    self.depth
                ),
            )),
        }
    }

    /// What is for real SSDs, or for emulated ones; real ones are written only if that was said.
    fn check_real(&self) -> Result<(), UsageError> {
        let refuse = |option: &str, value: &dyn std::fmt::Display, reason: &str| {
            Err(UsageError::new(option, value, reason))
        };
        let destroyed = self.yes_destroy.join(",");
        if let Some(doorbells) = self.doorbells
            && self.ssd.is_inside()
        {
            let reason = "it is for SSDs outside this process: process:…, socket:… or vfio:…";
            return refuse("--doorbells", &name_of(doorbells), reason);
        }
        let Ssd::Vfio(ssds) = &self.ssd else {
            return match self.yes_destroy.is_empty() {
                true => self.check_sockets(),
                false => refuse("--yes-destroy", &destroyed, "it is for --ssd vfio:… only"),
            };
        };
        if let Some(count) = self.ssds {
            return refuse("--ssds", &count, "--ssd vfio:… names each SSD");
        }
        if ssds.len() > Configuration::MAX_SSDS as usize {
            let most = format!("at most {} SSDs can be used", Configuration::MAX_SSDS);
            return refuse("--ssd", &self.ssd, &most);
        }
        if let Some(count) = self.fail_one_in {
            return refuse("--fail-one-in", &count, "real SSDs do not fail on purpose");
        }
        if self.overwrite {
            let reason = "--overwrite is for media files; --yes-destroy SERIAL is for real SSDs";
            return refuse("--ssd", &self.ssd, reason);
        }
        match self.experiment {
            Some(Experiment::Iops) => Ok(()),
            _ if !self.yes_destroy.is_empty() => Ok(()),
            _ => refuse(
                "--ssd",
                &self.ssd,
                "only iops does without writing; with --yes-destroy SERIAL all that is on the SSD may be \
                 lost",
            ),
        }
    }

    /// A volume says itself which SSDs it is on.
    fn check_volume(&self) -> Result<(), UsageError> {
        match (&self.volume, &self.ssd) {
            (None, _) => Ok(()),
            (Some(_), Ssd::Model(model)) if model.media.is_none() => Ok(()),
            (Some(_), ssd) => Err(UsageError::new(
                "--ssd",
                ssd,
                "--volume names the SSDs or media files; of emulated SSDs say the profile alone",
            )),
        }
    }

    /// What a process that runs already was told when it was started.
    fn check_sockets(&self) -> Result<(), UsageError> {
        let set = [
            (
                "--ssds",
                self.ssds.map(u64::from),
                "--ssd socket:… names each SSD",
            ),
            (
                "--fail-one-in",
                self.fail_one_in,
                "whoever starts the SSDs' process says so: serve-ssds --fail-one-in N",
            ),
        ];
        let given = set
            .into_iter()
            .find_map(|(option, value, reason)| Some((option, value?, reason)));
        match given {
            Some((option, value, reason)) if matches!(self.ssd, Ssd::Socket(_)) => {
                Err(UsageError::new(option, value, reason))
            }
            _ => Ok(()),
        }
    }

    /// Media that keep nothing can be timed, not computed with.
    fn check_media(&self) -> Result<(), UsageError> {
        let keeps_nothing = self.ssd.media() == Some(&Media::None);
        let is_timed_only = matches!(self.experiment, Some(Experiment::Iops));
        match keeps_nothing && !is_timed_only {
            true => Err(UsageError::new(
                "--ssd",
                &self.ssd,
                "media=none keeps no data; it is for iops only",
            )),
            false => Ok(()),
        }
    }
}

/// Names as a sentence has them: `a`, `a and b`, `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}
