//! The checks, tried on kernels that keep the rules and on kernels that break them.

use std::sync::OnceLock;

use warpstore_builder::{Builder, Ptx};
use warpstore_ptx_tests::listing::Listing;
use warpstore_ptx_tests::{file, golden, hit_order, hit_path, ptxas, rules};

fn ptx() -> &'static Ptx {
    static PTX: OnceLock<Ptx> = OnceLock::new();
    PTX.get_or_init(|| {
        let built = Builder::new(file("probe"))
            .target_dir(env!("CARGO_TARGET_TMPDIR"))
            .build();
        built.unwrap_or_else(|error| panic!("{error}"))
    })
}

fn listing() -> Listing {
    Listing::parse(&ptx().text).unwrap()
}

/// Breaches of all rules by one kernel.
fn breaches(kernel: &str) -> Vec<String> {
    let listing = listing();
    let kernel = listing.kernel(kernel).unwrap();
    [
        rules::breaches(&listing, kernel),
        hit_path::breaches(kernel),
    ]
    .concat()
}

#[test]
fn collectives_fences_and_doorbells_are_neither_lost_nor_doubled() {
    golden::compare(&golden::counts(&listing()), &file("golden/probe.toml")).unwrap();
}

#[test]
fn right_kernels_keep_every_rule() {
    let right = ptx()
        .kernels
        .iter()
        .filter(|kernel| !kernel.name.starts_with("wrong_"));
    let breaches: Vec<_> = right.flat_map(|kernel| breaches(&kernel.name)).collect();
    assert_eq!(breaches, [""; 0]);
}

#[test]
fn each_wrong_kernel_is_found() {
    let found = |kernel: &str, what: &str| {
        let breaches = breaches(kernel);
        assert!(
            breaches.iter().any(|breach| breach.contains(what)),
            "{kernel}: {breaches:?}"
        );
    };
    found("wrong_call", "without a call");
    found("wrong_stack", "local memory");
    found("wrong_panic", "panics");
    found("wrong_atomic", "an atomic without order or scope");
}

#[test]
fn a_hit_in_order_is_told_from_those_that_are_not() {
    let listing = listing();
    let breaches = |kernel| hit_order::breaches(listing.kernel(kernel).unwrap()).concat();
    assert_eq!(breaches("hit_in_order"), "");
    assert!(breaches("wrong_order").contains("no second load of the table"));
    assert!(breaches("wrong_fence").contains("no load of the table"));
    assert!(breaches("wrong_mark").contains("no load of the table"));
}

#[test]
fn launch_bounds_reach_the_ptx_in_either_order() {
    let info = |name: &str| {
        ptx()
            .kernels
            .iter()
            .find(|kernel| kernel.name == name)
            .unwrap()
    };
    assert_eq!(info("one_barrier").max_threads, Some(256));
    assert_eq!(info("one_barrier").min_blocks, Some(2));
    assert_eq!(info("hit_or_call").max_registers, Some(32));
    assert!(
        ptx()
            .text
            .contains(".maxntid 256, 1, 1\n.minnctapersm 2\n{")
    );
}

#[test]
fn ptxas_takes_every_kernel() {
    let Some(ptxas) = ptxas::find() else {
        return skip_aloud();
    };
    for arch in ptxas::ARCHITECTURES {
        let costs = ptxas::assemble(&ptxas, &ptx().path, arch).unwrap();
        assert_eq!(costs.len(), ptx().kernels.len());
        let limited = costs
            .iter()
            .find(|cost| cost.kernel == "hit_or_call")
            .unwrap();
        assert!(limited.registers <= 32, "{limited:?}");
        let stacked = costs
            .iter()
            .find(|cost| cost.kernel == "wrong_stack")
            .unwrap();
        assert_eq!(stacked.stack, 64);
    }
}

/// Past the capture of the test harness.
fn skip_aloud() {
    use std::io::Write;
    let message = "SKIPPED: no ptxas with sm_100 here; `cargo xtask setup` fetches one\n";
    std::io::stderr().write_all(message.as_bytes()).unwrap();
}
