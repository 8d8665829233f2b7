//! The store that most tests begin with: small, so that its bounds are met, and emulated without
//! modelled time.

use std::time::Duration;

use warpstore::device::{CacheMode, Layout};
use warpstore::{
    Configuration, Doorbells, Faults, Medium, Profile, Protocol, SsdConfig, SsdSource, Target,
};

/// An SSD of 1 MiB in memory.
pub fn ssd() -> SsdConfig {
    SsdConfig {
        profile: Profile::IDEAL,
        medium: Medium::Near,
        lba_bytes: 512,
        bytes: 1 << 20,
        volatile_write_cache: false,
        faults: Faults::none(),
    }
}

/// One such SSD, 64 lanes, 2 queues of 64 entries, 8 lines of 512 bytes.
pub fn configuration() -> Configuration {
    Configuration {
        target: Target::Threads { lanes: 64 },
        ssd: SsdSource::Emulated(ssd()),
        ssds: 1,
        layout: Layout::Stripe,
        stripe_bytes: 512,
        queues: 2,
        doorbells: Doorbells::Direct,
        depth: 64,
        protocol: Protocol::Hop,
        in_flight: u32::MAX,
        line_bytes: 512,
        cache_lines: 8,
        mode: CacheMode::Optimistic,
        strict: true,
        blocks: None,
        // Far longer than anything takes on a machine that is busy with other things.
        timeout: Duration::from_secs(120),
    }
}
