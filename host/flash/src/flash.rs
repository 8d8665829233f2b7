//! `flash`: files to a new volume.

use std::time::Instant;

use anyhow::Result;
use warpstore_device::Layout;
use warpstore_terminal::Progress;
use warpstore_volume::{Description, NewVolume, Plan, Step, UNIT};

use crate::destination::{Destination, may_destroy};
use crate::options::Flash;
use crate::sources::{self, Input};
use crate::{Failure, print, shown};

/// Bytes after which what was written is made durable, so that a flash can go on there.
const CHECKPOINT: u64 = 256 << 20;

pub fn run(options: &Flash) -> Result<(), Failure> {
    let mut inputs: Vec<Input> = Vec::new();
    for source in &options.sources {
        inputs.extend(sources::open(source)?);
    }
    let shapes: Vec<_> = inputs.iter().map(|input| input.shape.clone()).collect();
    let (layout, stripe) = match options.replicate {
        true => (Layout::Replicate, UNIT),
        false => (Layout::Stripe, options.stripe),
    };
    let new = NewVolume::new(layout, stripe, &shapes)?;
    let for_two = new.member_bytes_for_two(options.to.iter().count() as u32)?;
    let bytes = options.size.unwrap_or(for_two);
    let mut destination = Destination::open(options, bytes)?;
    let plan = Plan::make(&new, &mut destination.members, |name| {
        may_destroy(options, name)
    })?;
    print(&announced(&plan, &destination));
    if options.dry_run {
        print("dry run: nothing was written\n");
        return Ok(());
    }
    let mut members = destination.make(options)?;
    let total = plan.total();
    let skipped = plan.done();
    let mut watch = Watch::new(total, plan.description());
    let sources = inputs.into_iter().map(|input| input.bytes as _);
    let description = plan.write(
        &mut members,
        sources.collect(),
        CHECKPOINT,
        &mut |step, bytes| {
            watch.see(step, bytes);
        },
    )?;
    watch.end(total - skipped);
    print(&format!(
        "volume {} of generation {} is in force: {}\n",
        description.uuid,
        description.generation,
        members.names().join(",")
    ));
    Ok(())
}

/// What will be done.
fn announced(plan: &Plan, destination: &Destination) -> String {
    let mut text = String::new();
    if let Some(old) = plan.replaces() {
        let manner = match plan.wipes() {
            true => "which goes first",
            false => "which stays until the new one is complete",
        };
        text.push_str(&format!(
            "replaces volume {}, generation {}, with {}, {manner}\n",
            old.uuid,
            old.generation,
            old.names().join(", ")
        ));
    } else if plan.wipes() {
        text.push_str("writes over what is on the members\n");
    }
    for path in destination.new_files() {
        let bytes = destination.new_bytes();
        text.push_str(&format!("makes {}, {bytes} bytes\n", path.display()));
    }
    if plan.done() > 0 {
        let (done, total) = (plan.done(), plan.total());
        text.push_str(&format!(
            "goes on with an interrupted flash: {done} of {total} bytes are there\n"
        ));
    }
    text.push_str(&shown::arrays(plan.description()));
    text
}

/// Shows the steps one after the other.
struct Watch {
    total: u64,
    copies: u64,
    /// Bytes that are told as read back in the end.
    read_back: u64,
    step: Option<(Step, Progress)>,
    began: Instant,
    wrote: Option<f64>,
}

impl Watch {
    fn new(total: u64, description: &Description) -> Self {
        Self {
            total,
            copies: description.copies().into(),
            read_back: description.verified_bytes(),
            step: None,
            began: Instant::now(),
            wrote: None,
        }
    }

    fn see(&mut self, step: Step, bytes: u64) {
        if self
            .step
            .as_ref()
            .is_none_or(|(current, _)| *current != step)
        {
            let (label, steps) = match step {
                Step::Write => ("write", self.total),
                Step::Verify => {
                    self.wrote = Some(self.began.elapsed().as_secs_f64());
                    ("read back", self.read_back)
                }
            };
            self.began = Instant::now();
            self.step = Some((step, Progress::begin(label, steps)));
        }
        if let Some((_, progress)) = &self.step {
            progress.reach(bytes);
        }
    }

    /// Everything is written and read back; `written` bytes of the volume by this run.
    fn end(self, written: u64) {
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = |bytes: u64, seconds: f64| {
            format!(
                "{bytes} bytes in {seconds:.2} s, {:.1} MB/s",
                bytes as f64 / seconds / 1e6
            )
        };
        if let Some(wrote) = self.wrote {
            print(&format!(
                "written: {}\n",
                rate(written * self.copies, wrote)
            ));
        }
        print(&format!(
            "read back: {}\n",
            rate(self.total * self.copies, seconds)
        ));
        if let Some((_, progress)) = self.step {
            progress.end("every checksum is right");
        }
    }
}
