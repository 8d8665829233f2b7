//! Drives that the timing model knows, and the links they share.
//!
//! Occupation of a unit is 8 units ÷ published IOPS. Published rates are random reads and writes
//! at 512 bytes and 4 KiB of vendor sheets and papers; minimum latencies are assumed (most
//! published ones are latencies under load, which queueing in the model adds by itself). What no
//! source gives is marked *derived* below. Prices, endurance and latencies at full load are there only
//! where a source gives them, which is named.

use std::sync::Arc;

use crate::layout::INSTANCES;
use crate::memory::SharedWords;
use crate::timing::occupation;

/// The timing constants of one drive; see [`crate::serve`]'s timing model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name on command lines and in results.
    pub name: &'static str,
    /// The product, for people.
    pub product: &'static str,
    /// Occupation of a unit in ns: read 512 B, read 4 KiB, write 512 B, write 4 KiB. Zeros: none.
    pub occupation_ns: [u64; 4],
    /// Minimum latency in ns: read, write.
    pub min_latency_ns: [u64; 2],
    /// Link that the drive's traffic shares on its way to the GPU; `None` for no link term.
    pub link: Option<Generation>,
    /// What it costs and endures.
    pub published: Published,
}

/// What a source says about a product besides its rates; the model does not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// US cents for a gigabyte (10^9 bytes), when the source was written.
    pub cents_per_gb: Option<u32>,
    /// Tenths of the rated drive writes a day (DWPD).
    pub dwpd_tenths: Option<u32>,
    /// Latency of random 512-byte reads at full load, queueing included. Nanoseconds.
    pub loaded_ns: Option<u64>,
    /// Who says so, and when; empty if nobody says anything.
    pub source: &'static str,
}

impl Published {
    /// No source says anything.
    pub const NOTHING: Self = Self {
        cents_per_gb: None,
        dwpd_tenths: None,
        loaded_ns: None,
        source: "",
    };

    /// A row of table 2 of the BaM paper; its latencies at full load are in the text.
    const fn bam(cents_per_gb: u32, dwpd_tenths: u32, loaded_ns: Option<u64>) -> Self {
        Self {
            cents_per_gb: Some(cents_per_gb),
            dwpd_tenths: Some(dwpd_tenths),
            loaded_ns,
            source: "BaM, arXiv 2203.04910 (ASPLOS, March 2023), table 2",
        }
    }
}

/// A PCIe generation of a link with 16 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// 16 GT/s a lane.
    Gen4,
    /// 32 GT/s a lane.
    Gen5,
}

impl Generation {
    /// Time of one payload byte in 2^-20 ns.
    ///
    /// Raw rates after 128b/130b coding are 31.5 and 63.0 GB/s; a payload byte costs 1.28 bytes,
    /// which leaves 24.6 and 49.2 GB/s: what random reads reach on such links.
    pub const fn per_byte(self) -> u64 {
        let raw_mb_per_s = match self {
            Self::Gen4 => 31_508,
            Self::Gen5 => 63_015,
        };
        // 1.28 bytes × 2^20 ÷ (MB/s ÷ 1000 bytes/ns)
        (1280 << 20) / raw_mb_per_s
    }

    /// Payload bytes a second, one way.
    pub fn bytes_per_second(self) -> f64 {
        1e9 * (1u64 << 20) as f64 / self.per_byte() as f64
    }
}

/// All profiles. Writes marked *derived* have no published figure.
pub const PROFILES: [Profile; 8] = [
    Profile {
        name: "ideal",
        product: "no modelled time",
        occupation_ns: [0; 4],
        min_latency_ns: [0; 2],
        link: None,
        published: Published::NOTHING,
    },
    Profile {
        name: "p5800x",
        product: "Intel Optane P5800X",
        occupation_ns: [1569, 5333, 8000, 5333],
        min_latency_ns: [9_000, 9_000],
        link: Some(Generation::Gen4),
        published: Published::bam(254, 1000, Some(11_000)),
    },
    Profile {
        name: "pm1735",
        product: "Samsung PM1735",
        occupation_ns: [7273, 5000, 22_792, 22_792],
        min_latency_ns: [25_000, 25_000],
        link: Some(Generation::Gen4),
        published: Published::bam(256, 30, None),
    },
    Profile {
        name: "980pro",
        product: "Samsung 980 Pro",
        occupation_ns: [10_667, 10_667, 46_512, 46_512],
        min_latency_ns: [80_000, 30_000],
        link: Some(Generation::Gen4),
        published: Published::bam(51, 3, Some(324_000)),
    },
    // Writes derived: 300 K IOPS, as published for its predecessor PM1743.
    Profile {
        name: "pm1753",
        product: "Samsung PM1753",
        occupation_ns: [2073, 2260, 26_667, 26_667],
        min_latency_ns: [60_000, 15_000],
        link: Some(Generation::Gen5),
        published: Published::NOTHING,
    },
    // Writes derived: 900 K IOPS, as published for another Gen6 drive (Micron 9650).
    Profile {
        name: "pm1763",
        product: "Samsung PM1763",
        occupation_ns: [1156, 1176, 8889, 8889],
        min_latency_ns: [55_000, 12_000],
        link: Some(Generation::Gen5),
        published: Published::NOTHING,
    },
    // 4 KiB reads derived: 6.8 M IOPS fill a Gen6 x4 link (28 GB/s). Writes derived: a quarter of
    // the reads. Write latency derived: as for reads.
    Profile {
        name: "gp1",
        product: "Kioxia GP1 (announced)",
        occupation_ns: [800, 1176, 3200, 4704],
        min_latency_ns: [6_000, 6_000],
        link: Some(Generation::Gen5),
        published: Published {
            dwpd_tenths: Some(500),
            source: "Tom's Hardware on Kioxia's announcement; samples are due at the end of 2026",
            ..Published::NOTHING
        },
    },
    // Not a product: 100 M IOPS to test the stack. 4 KiB derived: 13.7 M IOPS fill a Gen7 x4 link
    // (56 GB/s). Writes derived: as reads.
    Profile {
        name: "future100m",
        product: "a future drive of 100 M IOPS",
        occupation_ns: [80, 585, 80, 585],
        min_latency_ns: [5_000, 5_000],
        link: Some(Generation::Gen5),
        published: Published::NOTHING,
    },
];

impl Profile {
    /// The profile without modelled time.
    pub const IDEAL: Self = PROFILES[0];

    /// The profile of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }

    /// Most reads of `bytes` bytes a second that `drives` such drives on one link can complete by
    /// the timing model; `None` without modelled time.
    pub fn most_reads(&self, bytes: u64, drives: u32) -> Option<f64> {
        let by_drives = f64::from(drives) * self.reads_of_one(bytes)?;
        let by_link = self.link.map_or(f64::INFINITY, |generation| {
            generation.bytes_per_second() / bytes as f64
        });
        Some(by_drives.min(by_link))
    }

    /// Most reads of `bytes` bytes a second that one such drive can complete, whatever its link
    /// carries; `None` without modelled time.
    pub fn reads_of_one(&self, bytes: u64) -> Option<f64> {
        let [at_512, at_4096, ..] = self.occupation_ns;
        match occupation(bytes, [at_512, at_4096]) {
            0 => None,
            occupation => Some(INSTANCES as f64 * 1e9 / occupation as f64),
        }
    }

    /// True if commands take modelled time.
    pub fn is_timed(&self) -> bool {
        self.occupation_ns != [0; 4] || self.min_latency_ns != [0; 2]
    }
}

/// The clocks of one link, for the controllers that share it.
///
/// Clones share the link. In GPU memory its place is taken by two zeroed words, see
/// [`Placement`](crate::Placement).
#[derive(Clone)]
pub struct Link {
    clocks: Arc<SharedWords>,
}

impl Link {
    /// An idle link.
    #[expect(
        clippy::new_without_default,
        reason = "a new link is a new identity, not a default"
    )]
    pub fn new() -> Self {
        Self {
            clocks: Arc::new(SharedWords::zeroed(2)),
        }
    }

    /// Address of the two clock words.
    pub(crate) fn address(&self) -> u64 {
        self.clocks.address()
    }
}
