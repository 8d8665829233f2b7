//! warpstore's own kernels, against their golden counts, the rules and the budgets.

use std::sync::OnceLock;

use warpstore_builder::{Builder, Ptx};
use warpstore_ptx_tests::listing::Listing;
use warpstore_ptx_tests::{budget, file, golden, hit_order, hit_path, ptxas, root, rules};

/// Kernels that read through the cache: a hit must cost neither a call nor the stack.
const READERS: [&str; 3] = ["bfs_level", "cc_hook", "cache_reads"];
/// The same with counted reads, of which a hit must not cost that either.
const BASELINES: [&str; 9] = [
    "bfs_level_naive",
    "bfs_level_bam",
    "bfs_level_reuse",
    "cc_hook_naive",
    "cc_hook_bam",
    "cc_hook_reuse",
    "cache_reads_naive",
    "cache_reads_bam",
    "cache_reads_reuse",
];

fn ptx() -> &'static Ptx {
    static PTX: OnceLock<Ptx> = OnceLock::new();
    PTX.get_or_init(|| {
        let kernels = root().join("device/kernels");
        let built = Builder::new(kernels)
            .target_dir(env!("CARGO_TARGET_TMPDIR"))
            .build();
        let ptx = built.unwrap_or_else(|error| panic!("{error}"));
        assert!(!ptx.kernels.is_empty(), "device/kernels has no kernel");
        ptx
    })
}

#[test]
fn collectives_fences_and_doorbells_are_neither_lost_nor_doubled() {
    let listing = Listing::parse(&ptx().text).unwrap();
    golden::compare(&golden::counts(&listing), &file("golden/kernels.toml")).unwrap();
}

#[test]
fn no_kernel_breaks_a_rule() {
    let listing = Listing::parse(&ptx().text).unwrap();
    let breaches = listing
        .kernels()
        .flat_map(|kernel| rules::breaches(&listing, kernel));
    assert_eq!(breaches.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_hit_costs_neither_a_call_nor_the_stack() {
    let listing = Listing::parse(&ptx().text).unwrap();
    let names = READERS.iter().chain(&BASELINES);
    let kernels = names.map(|name| listing.kernel(name).unwrap());
    let breaches = kernels.flat_map(hit_path::breaches);
    assert_eq!(breaches.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_hit_is_three_loads_in_order() {
    let listing = Listing::parse(&ptx().text).unwrap();
    let kernels = READERS.map(|name| listing.kernel(name).unwrap());
    let breaches = kernels.into_iter().flat_map(hit_order::breaches);
    assert_eq!(breaches.collect::<Vec<_>>(), [""; 0]);
}

/// [HW-2]: a part of a warp that misses hides from `ptxas` where its masks come from.
#[test]
fn masks_of_parties_are_each_lanes_own() {
    let mut functions = ptx().text.split(".func");
    let miss = functions.find(|text| {
        let head = text.split(';').next().unwrap_or_default();
        head.contains("5fetch4miss") && text.contains("{")
    });
    let miss = miss.expect("the miss path is a function of its own");
    assert!(miss.contains("%lanemask_eq"));
}

#[test]
fn registers_spills_and_stack_are_within_budget() {
    let Some(ptxas) = ptxas::find() else {
        return skip_aloud();
    };
    let budgets = budget::read(&file("budgets.toml")).unwrap();
    let costs = ptxas::ARCHITECTURES
        .iter()
        .flat_map(|arch| ptxas::assemble(&ptxas, &ptx().path, arch).unwrap());
    let breaches = budget::breaches(&costs.collect::<Vec<_>>(), &budgets);
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

/// Past the capture of the test harness.
fn skip_aloud() {
    use std::io::Write;
    let message = "SKIPPED: no ptxas with sm_100 here; `cargo xtask setup` fetches one\n";
    std::io::stderr().write_all(message.as_bytes()).unwrap();
}
