//! A doorbell that is rung in memory, under every interleaving with the controller.

use driver_vfio::Doorbell;
use loom::thread;
use warpstore_loom::{Loom, cell, explore};
use warpstore_simt::{Cell, Order, Platform, System};

/// A value that is in no ring.
const NOTHING: u32 = 99;

#[test]
fn a_controller_that_goes_to_sleep_sees_the_tail_or_is_told() {
    let executions = explore(3, || {
        let (register, value, event) = (
            cell::<u32, System>(NOTHING),
            cell::<u32, System>(2),
            cell::<u32, System>(7),
        );
        let doorbell = Doorbell::<Loom> {
            register,
            shadow: Some([value, event]),
        };
        let submitter = thread::spawn(move || doorbell.ring(2, 3, 8));
        // The controller has nothing to do: it asks to be told of what comes after 2, looks once more,
        // and sleeps.
        event.store(2, Order::Relaxed);
        Loom::full_fence::<System>();
        let seen = value.load(Order::Relaxed);
        submitter.join().unwrap();
        let told = register.load(Order::Relaxed);
        assert!(seen == 3 || told == 3, "seen {seen}, told {told}");
    });
    assert!(executions > 1);
}
