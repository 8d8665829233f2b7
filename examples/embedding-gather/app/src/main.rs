//! Gathers embedding rows from an emulated SSD and counts their uses there, on a GPU or on host
//! threads.
//!
//! `cargo run --release -- [--runner threads|cuda]`; without the option, on a GPU if there is one.

mod workload;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use embedding_kernels::{count_uses, gather};
use warpstore::device::{CacheMode, Layout};
use warpstore::{
    Configuration, Doorbells, Faults, Medium, Profile, Protocol, Session, SsdConfig, SsdSource,
    Target,
};

use workload::Workload;

/// The kernels as PTX, which build.rs has made.
const PTX: &str = include_str!(env!("WARPSTORE_PTX"));

const MIB: f64 = (1u64 << 20) as f64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let gpu = match words[..] {
        [] => warpstore::cuda::driver_present(),
        ["--runner", "cuda"] => true,
        ["--runner", "threads"] => false,
        _ => {
            eprintln!("usage: embedding-gather [--runner threads|cuda]");
            return ExitCode::from(2);
        }
    };
    match run(gpu) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One emulated SSD, and a cache for a quarter of the table.
fn configuration(gpu: bool, table_bytes: u64) -> Configuration {
    let target = if gpu {
        Target::Cuda {
            gpu: 0,
            controller_sms: 1,
        }
    } else {
        Target::Threads { lanes: 256 }
    };
    Configuration {
        target,
        ssd: SsdSource::Emulated(SsdConfig {
            profile: Profile::by_name("p5800x").unwrap_or(Profile::IDEAL),
            medium: Medium::Host,
            lba_bytes: 512,
            bytes: 2 * table_bytes,
            volatile_write_cache: false,
            faults: Faults::none(),
        }),
        ssds: 1,
        layout: Layout::Stripe,
        stripe_bytes: 4096,
        queues: 4,
        doorbells: Doorbells::Direct,
        depth: 1024,
        protocol: Protocol::Hop,
        in_flight: u32::MAX,
        line_bytes: 4096,
        cache_lines: table_bytes / 4096 / 4,
        mode: CacheMode::Optimistic,
        strict: false,
        blocks: None,
        timeout: Duration::from_secs(5),
    }
}

fn run(gpu: bool) -> Result<(), Box<dyn Error>> {
    let workload = Workload::new(1 << 15, 64, 2048);
    let table_bytes = size_of_val(&workload.table[..]) as u64;
    let session = Session::open(configuration(gpu, table_bytes), PTX)?;
    let table = session.create_array("table", &workload.table)?;
    let rows = session.upload(&workload.rows)?;
    let bags = session.upload(&workload.bags)?;
    let sums = session.memory::<f32>((workload.n_bags() * workload.width) as u64)?;
    session.create_array("uses", &vec![0u64; workload.n_rows()])?;
    let uses = session.array_mut::<u64>("uses")?;

    let config = session.fill(&gather)?;
    let args = (
        table,
        workload.width as u64,
        rows.global(),
        bags.global(),
        sums.disjoint(),
    );
    let gather_seconds = session.launch(&gather, config, args)?;
    let config = session.fill(&count_uses)?;
    let count_seconds = session.launch(&count_uses, config, (rows.global(), uses))?;
    session.flush()?;

    let counts = session.counts()?.expect("emulated SSDs count");
    let (sums, uses) = (sums.to_vec()?, session.stored::<u64>("uses")?);
    let gathered = workload.rows.len();
    println!(
        "runner {}, one emulated p5800x (its time is modelled)",
        session.runner().name()
    );
    println!(
        "table: {} rows of {} f32, {:.1} MiB on the SSD, a quarter of it cached",
        workload.n_rows(),
        workload.width,
        table_bytes as f64 / MIB
    );
    println!(
        "gather: {gathered} rows into {} bags in {:.1} ms, {:.2} M rows/s",
        workload.n_bags(),
        gather_seconds * 1e3,
        gathered as f64 / gather_seconds / 1e6
    );
    println!(
        "SSD: {} reads and {} writes, {:.1} MiB",
        counts.reads,
        counts.writes,
        counts.bytes as f64 / MIB
    );
    println!(
        "histogram on the SSD: {gathered} uses counted in {:.1} ms; the busiest row was used {} times, {} \
         rows never",
        count_seconds * 1e3,
        uses.iter().max().copied().unwrap_or(0),
        uses.iter().filter(|count| **count == 0).count()
    );
    session.finish()?;
    verify(&workload, &sums, &uses)
}

/// Compares with the same on the CPU.
fn verify(workload: &Workload, sums: &[f32], uses: &[u64]) -> Result<(), Box<dyn Error>> {
    let (expected_sums, expected_uses) = (workload.sums(), workload.uses());
    let wrong_sums = differing(sums, &expected_sums);
    let wrong_uses = differing(uses, &expected_uses);
    if wrong_sums + wrong_uses > 0 {
        return Err(format!("{wrong_sums} sums and {wrong_uses} counts are wrong").into());
    }
    println!(
        "verified: {} sums and {} counts equal the CPU's",
        sums.len(),
        uses.len()
    );
    Ok(())
}

fn differing<T: PartialEq>(found: &[T], expected: &[T]) -> usize {
    let pairs = found.iter().zip(expected);
    pairs.filter(|(one, other)| one != other).count() + found.len().abs_diff(expected.len())
}
