//! How many SSDs, and how much in flight, for a rate of random reads: `cargo xtask size`.
//!
//! Little's law: reads in flight = reads a second × latency of one. Below that number the SSDs
//! wait for the GPU, however many they are. All constants are those of
//! `device/nvme-model/src/profile.rs`.

use std::fmt;

use clap::Parser;
use comfy_table::{Table, presets::NOTHING};
use warpstore::device::parts::nvme_queue::Shape;
use warpstore_terminal::power_of_two;

use crate::options::{Profile, UsageError};
use crate::report::units::{count, seconds};

/// Entries of a queue pair: the default of `--depth`.
const DEPTH: u32 = 1024;
/// Largest target, bytes a second: what no link carries.
const MOST: f64 = 1e15;

/// What is to be reached, and with what.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "size",
    bin_name = "cargo xtask size",
    version,
    long_about = None,
    about = "Say how many SSDs, and how many reads in flight, a rate of random reads takes"
)]
pub struct Options {
    /// Which SSD
    #[arg(long, value_enum)]
    pub ssd: Profile,
    /// What all of them shall deliver together, as 26GB/s (powers of 1000)
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub target: f64,
    /// Bytes of a read
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = power_of_two(512, 65536))]
    pub line: u64,
}

/// A rate in bytes a second: a number, and GB/s or MB/s.
fn rate(text: &str) -> Result<f64, String> {
    let units = [("GB/s", 1e9), ("MB/s", 1e6)];
    let value = units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?.trim_end();
        number.parse::<f64>().ok().map(|number| number * factor)
    });
    value
        .filter(|value| *value >= 1.0 && *value <= MOST)
        .ok_or_else(|| "it must be a number of GB/s or MB/s, such as 26GB/s".to_owned())
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    profile: warpstore::Profile,
    line: u64,
    /// Bytes a second.
    target: f64,
    /// Reads a second of all SSDs.
    pub reads: f64,
    /// Reads a second of one SSD.
    pub reads_of_one: f64,
    /// SSDs.
    pub ssds: u64,
    /// Reads in flight on all SSDs, at least: by the latency of an idle one.
    pub in_flight: u64,
    /// The same by the latency at full load, if that is known.
    pub in_flight_loaded: Option<u64>,
    /// Queue pairs of each SSD that hold what is in flight.
    pub queue_pairs: u64,
    /// Links of 16 lanes, and what one carries in bytes a second.
    pub links: Option<(u64, f64)>,
}

impl Sizing {
    /// Sizes for what the command line asks for.
    ///
    /// # Errors
    /// The SSD has no speed of its own.
    pub fn of(options: &Options) -> Result<Self, UsageError> {
        let name = options.ssd.to_string();
        let profile = warpstore::Profile::by_name(&name)
            .filter(warpstore::Profile::is_timed)
            .ok_or_else(|| {
                UsageError::new("--ssd", &name, "it has no modelled speed; name a product")
            })?;
        let reads = options.target / options.line as f64;
        let reads_of_one = profile.reads_of_one(options.line).unwrap_or(f64::INFINITY);
        let ssds = whole(reads / reads_of_one);
        let [idle_ns, _] = profile.min_latency_ns;
        // Little's law.
        let in_flight = |ns: u64| whole(reads * ns as f64 / 1e9);
        let in_flight_loaded = profile.published.loaded_ns.map(in_flight);
        let in_flight = in_flight(idle_ns);
        let most = in_flight_loaded.unwrap_or(in_flight).max(in_flight);
        let links = profile.link.map(|generation| {
            let carries = generation.bytes_per_second();
            (whole(options.target / carries), carries)
        });
        Ok(Self {
            profile,
            line: options.line,
            target: options.target,
            reads,
            reads_of_one,
            ssds,
            in_flight,
            in_flight_loaded,
            queue_pairs: pairs(most.div_ceil(ssds)),
            links,
        })
    }
}

/// Queue pairs that hold so many commands.
fn pairs(in_flight: u64) -> u64 {
    let of_one = Shape::new(DEPTH, DEPTH).map_or(1, Shape::cap);
    in_flight.div_ceil(u64::from(of_one))
}

/// The next whole number, at least 1.
fn whole(value: f64) -> u64 {
    value.ceil().max(1.0) as u64
}

impl fmt::Display for Sizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let published = &self.profile.published;
        let [idle_ns, _] = self.profile.min_latency_ns;
        let unknown = || "not known".to_owned();
        let each = |all: u64| all.div_ceil(self.ssds);
        let at_least = |in_flight: u64, ns: u64| {
            let latency = seconds(ns as f64 / 1e9);
            format!(
                "{in_flight}, {} each SSD; latency {latency}",
                each(in_flight)
            )
        };
        let loaded = self.in_flight_loaded.zip(published.loaded_ns);
        let rows = [
            (
                "goal",
                format!(
                    "{:.3} GB/s of random {}-byte reads: {}/s",
                    self.target / 1e9,
                    self.line,
                    count(self.reads)
                ),
            ),
            (
                "SSDs",
                format!(
                    "{} × {}, {} reads/s each",
                    self.ssds,
                    self.profile.product,
                    count(self.reads_of_one)
                ),
            ),
            (
                "in flight, at least",
                format!("{} when idle (assumed)", at_least(self.in_flight, idle_ns)),
            ),
            (
                "in flight, full load",
                loaded.map_or_else(unknown, |(all, ns)| {
                    format!("{} at full load", at_least(all, ns))
                }),
            ),
            (
                "queue pairs",
                format!(
                    "{} each SSD, of {DEPTH} entries, hold that; with more, lanes wait less for one another",
                    self.queue_pairs
                ),
            ),
            (
                "links",
                self.links.map_or_else(unknown, |(links, carries)| {
                    format!(
                        "{links} of 16 PCIe lanes; one carries {:.1} GB/s of payload",
                        carries / 1e9
                    )
                }),
            ),
            (
                "cost",
                published.cents_per_gb.map_or_else(unknown, |cents| {
                    format!("{:.2} US$ a GB", f64::from(cents) / 100.0)
                }),
            ),
            (
                "endurance",
                published.dwpd_tenths.map_or_else(unknown, |tenths| {
                    let writes = f64::from(tenths) / 10.0;
                    format!("{writes} GB written a day for each GB ({writes} DWPD)")
                }),
            ),
            (
                "source of these",
                match published.source {
                    "" => "none".to_owned(),
                    source => source.to_owned(),
                },
            ),
        ];
        let mut table = Table::new();
        table.load_style(NOTHING);
        for (name, text) in rows {
            table.add_row([name.to_owned(), text]);
        }
        writeln!(f, "{}", table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn sizing(line: &str) -> Result<Sizing, UsageError> {
        let words = std::iter::once("size").chain(line.split_whitespace());
        Sizing::of(&Options::try_parse_from(words)?)
    }

    /// The examples of BaM's section on Little's law: 51 M reads/s × 11 µs and × 324 µs.
    #[test]
    fn littles_law_gives_what_bam_computes() {
        let optane = sizing("--ssd p5800x --target 26GB/s --line 512").unwrap();
        assert_eq!(optane.in_flight_loaded, Some(559));
        assert_eq!((optane.ssds, optane.links.unwrap().0), (10, 2));
        let consumer = sizing("--ssd 980pro --target 26GB/s --line 512").unwrap();
        assert_eq!(consumer.in_flight_loaded, Some(16_454));
        assert_eq!((consumer.ssds, consumer.in_flight), (68, 4063));
        assert_eq!(consumer.queue_pairs, 1);
    }

    #[test]
    fn a_small_target_takes_one_of_everything() {
        let small = sizing("--ssd pm1763 --target 1MB/s --line 65536").unwrap();
        assert_eq!((small.ssds, small.in_flight, small.queue_pairs), (1, 1, 1));
    }

    #[test]
    fn more_in_flight_than_a_queue_pair_holds_takes_more_of_them() {
        assert_eq!([959, 960, 10_000].map(pairs), [1, 2, 11]);
    }

    #[test]
    fn what_no_source_says_is_not_known() {
        let text = sizing("--ssd 980pro --target 26GB/s --line 512")
            .unwrap()
            .to_string();
        for words in [
            "68 × Samsung 980 Pro",
            "0.51 US$ a GB",
            "0.3 DWPD",
            "table 2",
        ] {
            assert!(text.contains(words), "{words} in:\n{text}");
        }
        assert!(!text.contains("not known"), "{text}");
        let text = sizing("--ssd pm1753 --target 26GB/s").unwrap().to_string();
        assert_eq!(text.matches("not known").count(), 3, "{text}");
    }

    #[test]
    fn every_profile_with_a_speed_is_sized_and_its_figures_have_a_source() {
        for profile in Profile::value_variants() {
            let sized = sizing(&format!("--ssd {profile} --target 10GB/s"));
            if *profile == Profile::Ideal {
                assert!(sized.unwrap_err().to_string().contains("no modelled speed"));
                continue;
            }
            let published = sized.unwrap().profile.published;
            let says = published.cents_per_gb.is_some() || published.dwpd_tenths.is_some();
            assert_eq!(says, !published.source.is_empty(), "{profile}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_a_sentence() {
        for (line, message) in [
            ("--ssd 980pro --target 26", "such as 26GB/s"),
            ("--ssd 980pro --target 0GB/s", "such as 26GB/s"),
            ("--ssd 980pro --target NaNGB/s", "such as 26GB/s"),
            ("--ssd 980pro --target 1GB/s --line 500", "power of two"),
            ("--ssd 970pro --target 1GB/s", "it must be one of p5800x"),
        ] {
            let error = sizing(line).unwrap_err().to_string();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
