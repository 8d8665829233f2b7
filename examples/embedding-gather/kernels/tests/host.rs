//! The kernels on host threads, against an emulated SSD, under several seeds.

use std::time::Duration;

use embedding_kernels::{count_uses, gather};
use warpstore::device::{CacheMode, Layout};
use warpstore::{
    Configuration, Doorbells, Faults, Medium, Profile, Protocol, Session, SsdConfig, SsdSource,
    Target,
};

fn configuration() -> Configuration {
    Configuration {
        target: Target::Threads { lanes: 64 },
        ssd: SsdSource::Emulated(SsdConfig {
            profile: Profile::IDEAL,
            medium: Medium::Near,
            lba_bytes: 512,
            bytes: 1 << 20,
            volatile_write_cache: false,
            faults: Faults::none(),
        }),
        ssds: 1,
        layout: Layout::Stripe,
        stripe_bytes: 4096,
        queues: 2,
        doorbells: Doorbells::Direct,
        depth: 64,
        protocol: Protocol::Hop,
        in_flight: u32::MAX,
        line_bytes: 4096,
        cache_lines: 4,
        mode: CacheMode::Optimistic,
        strict: true,
        blocks: None,
        timeout: Duration::from_secs(20),
    }
}

#[test]
fn bags_are_summed_and_rows_counted() -> Result<(), warpstore::Error> {
    const WIDTH: u64 = 40;
    // Small whole numbers, whose sums are exact.
    let table: Vec<f32> = (0..500 * WIDTH).map(|i| (i % 1000) as f32).collect();
    let rows: Vec<u32> = (0..600u32).map(|i| i * i % 500).collect();
    let bags: Vec<u64> = (0..=50).map(|bag| bag * bag * 600 / 2500).collect();
    let mut expected = vec![0.0; 50 * WIDTH as usize];
    for (bag, sums) in expected.chunks_mut(WIDTH as usize).enumerate() {
        for &row in &rows[bags[bag] as usize..bags[bag + 1] as usize] {
            let row = &table[row as usize * WIDTH as usize..];
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, value)| *sum += value);
        }
    }
    for seed in 0..4 {
        let session = Session::open_interleaved(configuration(), seed)?;
        let table = session.create_array("table", &table)?;
        let rows_near = session.upload(&rows)?;
        let bags = session.upload(&bags)?;
        let sums = session.memory::<f32>(50 * WIDTH)?;
        let config = session.fill(&gather)?;
        let args = (
            table,
            WIDTH,
            rows_near.global(),
            bags.global(),
            sums.disjoint(),
        );
        session.launch(&gather, config, args)?;
        assert_eq!(sums.to_vec()?, expected, "seed {seed}");

        session.create_array("uses", &[0u64; 500])?;
        let uses = session.array_mut::<u64>("uses")?;
        let config = session.fill(&count_uses)?;
        session.launch(&count_uses, config, (rows_near.global(), uses))?;
        session.flush()?;
        for (row, count) in session.stored::<u64>("uses")?.into_iter().enumerate() {
            let expected = rows.iter().filter(|&&used| used as usize == row).count();
            assert_eq!(count, expected as u64, "row {row}, seed {seed}");
        }
        session.finish()?;
    }
    Ok(())
}
